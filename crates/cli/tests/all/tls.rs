//! TLS with certificates: real clients, clients that are not let in, and a member on the other side of it.

use std::io::{Read, Write};

use crate::common::Place;
use crate::common::served::{Server, done, status};

/// Runs openssl in the place.
fn openssl(place: &Place, words: &str) {
    let run = place.tool("openssl", words);
    assert_eq!(run.exit, 0, "openssl {words}: {}", run.err);
}

/// An authority in `FOLDER/ca-cert.pem`.
fn make_authority(place: &Place, folder: &str) {
    std::fs::create_dir_all(place.file(folder)).unwrap();
    openssl(
        place,
        &format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN={folder} \
             -keyout {folder}/ca-key.pem -out {folder}/ca-cert.pem"
        ),
    );
}

/// `FOLDER/WHO-cert.pem` and `FOLDER/WHO-key.pem`, signed by the authority of `signer`.
pub(super) fn make_certificate(
    place: &Place,
    folder: &str,
    who: &str,
    signer: &str,
    extensions: &str,
) {
    std::fs::write(place.file("extensions"), extensions).unwrap();
    openssl(
        place,
        &format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN={who} \
             -keyout {folder}/{who}-key.pem -out request"
        ),
    );
    openssl(
        place,
        &format!(
            "x509 -req -in request -days 2 -CA {signer}/ca-cert.pem -CAkey {signer}/ca-key.pem \
             -CAcreateserial -extfile extensions -out {folder}/{who}-cert.pem"
        ),
    );
}

/// Folders `own` (authority, server, client), `bare` (our authority, no client), `strange` (a client of another
/// authority).
pub(super) fn make_certificates(place: &Place) {
    make_authority(place, "own");
    make_authority(place, "other");
    let server = "subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n";
    let client = "extendedKeyUsage=clientAuth\nbasicConstraints=CA:FALSE\n";
    make_certificate(place, "own", "server", "own", server);
    make_certificate(place, "own", "client", "own", client);
    for folder in ["bare", "strange"] {
        std::fs::create_dir_all(place.file(folder)).unwrap();
        std::fs::copy(
            place.file("own/ca-cert.pem"),
            place.file(&format!("{folder}/ca-cert.pem")),
        )
        .unwrap();
    }
    make_certificate(place, "strange", "client", "other", client);
}

const TLS: &str =
    "--tls-cert own/server-cert.pem --tls-key own/server-key.pem --tls-clients own/ca-cert.pem";

/// The TCP address of the volume `nas`, as `127.0.0.1:PORT`.
fn address(place: &Place) -> String {
    let status = status(place);
    let uri = status["exports"][1]["uri"].as_str().unwrap().to_owned();
    let rest = uri.split_once("://").unwrap().1;
    rest.split_once('/').unwrap().0.to_owned()
}

#[test]
fn forced_tls_lets_in_clients_with_a_certificate_and_nobody_else() {
    let place = Place::new("tls-forced");
    make_certificates(&place);
    done(&place, "create nas --level 1 --member-size 16M a b");
    let server = Server::start(&place, &format!("a b --listen 127.0.0.1:0 {TLS}"));
    let uri = status(&place)["exports"][1]["uri"].clone();
    assert!(uri.as_str().unwrap().starts_with("nbds://"), "{uri}");
    let address = address(&place);
    let folder = |name: &str| place.file(name).display().to_string();
    let secure = |name: &str| format!("nbds://{address}/nas?tls-certificates={}", folder(name));
    let good = place.tool("nbdinfo", &format!("--json {}", secure("own")));
    assert_eq!(good.exit, 0, "{}", good.err);
    assert!(good.out.contains("\"TLS\": true"), "{}", good.out);
    // A few MiB in both directions, in records.
    let content: Vec<u8> = (0..14_u32 << 18)
        .flat_map(|n| n.wrapping_mul(77).to_le_bytes())
        .collect();
    std::fs::write(place.file("content"), &content).unwrap();
    let copied = place.tool("nbdcopy", &format!("content {}", secure("own")));
    assert_eq!(copied.exit, 0, "{}", copied.err);
    let copied = place.tool("nbdcopy", &format!("{} back", secure("own")));
    assert_eq!(copied.exit, 0, "{}", copied.err);
    assert!(
        std::fs::read(place.file("back")).unwrap() == content,
        "content differs"
    );
    for (who, uri) in [
        ("in the clear", format!("nbd://{address}/nas")),
        ("without a certificate", secure("bare")),
        ("of another authority", secure("strange")),
    ] {
        let run = place.tool("nbdinfo", &uri);
        assert_ne!(run.exit, 0, "a client {who} was let in: {}", run.out);
    }
    // What comes in the clear behind STARTTLS does not count as said by TLS: the connection ends without a word.
    let mut stream = std::net::TcpStream::connect(&address).unwrap();
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).unwrap();
    let mut words = 3_u32.to_be_bytes().to_vec();
    for option in [5_u32, 3] {
        words.extend_from_slice(b"IHAVEOPT");
        words.extend_from_slice(&option.to_be_bytes());
        words.extend_from_slice(&0_u32.to_be_bytes());
    }
    stream.write_all(&words).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty(), "{answer:?}");
    // On the Unix socket of this user TLS is offered and not demanded.
    let socket = format!("socket={}/plexum/nas.nbd", place.folder.display());
    let clear = place.tool("nbdinfo", &format!("nbd+unix:///nas?{socket}"));
    assert_eq!(clear.exit, 0, "{}", clear.err);
    let certificates = format!("tls-certificates={}", folder("own"));
    let secure = format!("nbds+unix:///nas?{socket}&{certificates}&tls-hostname=localhost");
    let run = place.tool("nbdinfo", &secure);
    assert_eq!(run.exit, 0, "{}", run.err);
    server.stop(&place);
}

#[test]
fn a_member_may_be_on_the_other_side_of_tls() {
    let place = Place::new("tls-member");
    make_certificates(&place);
    done(&place, "create far --level linear --member-size 24M x");
    let words = format!("serve x --background --listen 127.0.0.1:0 --json {TLS}");
    let ready = place.plexum(&words);
    assert_eq!(ready.exit, 0, "{}", ready.err);
    let far = place.plexum("status far --json").objects().remove(0);
    let uri = far["exports"][1]["uri"].as_str().unwrap().to_owned();
    let member = format!("{uri}?tls-certificates={}", place.file("own").display());
    done(
        &place,
        &format!("create nas --level 1 --member-size 16M a {member} --yes"),
    );
    let server = Server::start(&place, &format!("a {member}"));
    let content: Vec<u8> = (0..4_u32 << 18).flat_map(u32::to_le_bytes).collect();
    std::fs::write(place.file("content"), &content).unwrap();
    let nas = format!(
        "nbd+unix:///nas?socket={}/plexum/nas.nbd",
        place.folder.display()
    );
    let copied = place.tool("nbdcopy", &format!("content {nas}"));
    assert_eq!(copied.exit, 0, "{}", copied.err);
    done(&place, "fail nas 0");
    let copied = place.tool("nbdcopy", &format!("{nas} back"));
    assert_eq!(copied.exit, 0, "{}", copied.err);
    let back = std::fs::read(place.file("back")).unwrap();
    assert!(back[..content.len()] == content, "content differs");
    server.stop(&place);
    for (words, exit, text) in [
        (format!("examine {uri}"), 2, "certificates"),
        (
            format!("examine {uri}?tls-certificates=nowhere"),
            2,
            "ca-cert.pem",
        ),
        (
            format!(
                "examine {uri}?tls-certificates={}",
                place.file("strange").display()
            ),
            5,
            "far",
        ),
        (
            format!("examine {}", uri.replace("nbds:", "nbd:")),
            5,
            "TLS",
        ),
    ] {
        let run = place.plexum(&words);
        assert_eq!(run.exit, exit, "{words}: {}{}", run.out, run.err);
        assert!(run.err.contains(text), "{words}: {}", run.err);
    }
    done(&place, "stop far");
}

#[test]
fn an_address_that_others_reach_needs_tls_or_a_word() {
    let place = Place::new("tls-refused");
    make_certificates(&place);
    done(&place, "create nas --level 1 --member-size 16M a b");
    for (words, exit, text) in [
        ("--listen 0.0.0.0:0", 3, "--insecure-listen"),
        (
            "--listen 0.0.0.0:0 --tls selective TLS",
            3,
            "TLS is not demanded",
        ),
        ("--tls-cert own/server-cert.pem", 2, "--tls-key"),
        ("--tls forced", 2, "--tls-cert"),
        ("--tls sometimes TLS", 2, "selective or forced"),
        ("--tls-cert a --tls-key own/server-key.pem", 2, "a: "),
        (
            "--tls-cert nothing --tls-key own/server-key.pem",
            2,
            "nothing: ",
        ),
    ] {
        let words = format!("serve a b {}", words.replace("TLS", TLS));
        let run = place.plexum(&words);
        assert_eq!(run.exit, exit, "{words}: {}{}", run.out, run.err);
        assert!(run.err.contains(text), "{words}: {}", run.err);
    }
}
