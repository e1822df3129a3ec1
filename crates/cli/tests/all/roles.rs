//! Who comes to the daemon's socket has the role of his groups: other users of this machine, as the kernel tells them.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::common::served::done;
use super::common::{Place, Run};
use super::daemon::{Daemon, two_sets};

/// A request to the daemon by an ordinary user with these groups.
fn by(place: &Place, groups: &str, method: &str, route: &str) -> Run {
    let socket = place.file("plexum/daemon.socket");
    let groups = match groups {
        "" => "--clear-groups".to_owned(),
        groups => format!("--groups {groups}"),
    };
    place.tool(
        "setpriv",
        &format!(
            "--reuid 65534 --regid 65534 {groups} curl -sS -X {method} --unix-socket {} http://localhost{route}",
            socket.display()
        ),
    )
}

fn configure(place: &Place, text: &str) {
    let folder = place.file("config/plexum");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("plexum.toml"), text).unwrap();
}

fn mode(place: &Place, name: &str) -> u32 {
    let meta = std::fs::metadata(place.file(name)).unwrap();
    meta.permissions().mode() & 0o777
}

#[test]
fn each_user_has_the_role_of_his_groups_and_a_refusal_says_which_is_missing() {
    let place = two_sets("roles");
    let owner = std::fs::metadata(&place.folder).unwrap().uid();
    assert_eq!(owner, 0, "this test becomes other users, as root");
    configure(
        &place,
        "[roles]\nview = [\"54321\"]\noperate = [\"54322\"]\nadminister = [\"54323\"]\n",
    );
    let _daemon = Daemon::start(&place, "");
    done(&place, "serve a b");
    let scrub = "/v1/volumes/nas/scrub";
    let fail = "/v1/volumes/nas/stop";

    let stranger = by(&place, "", "GET", "/v1/volumes");
    assert!(stranger.out.contains("role_missing"), "{}", stranger.out);
    assert!(
        stranger
            .out
            .contains("that needs the role view, and user 65534 has no role"),
        "{}",
        stranger.out
    );
    let looks = by(&place, "54321", "GET", "/v1/volumes");
    assert!(looks.out.contains("\"volume\":\"nas\""), "{}", looks.out);
    let refused = by(&place, "54321", "POST", scrub);
    assert!(
        refused.out.contains("needs the role operate"),
        "{}",
        refused.out
    );
    assert!(refused.out.contains("[roles] operate ="), "{}", refused.out);
    let operates = by(&place, "54321,54322", "POST", scrub);
    assert!(operates.out.contains("\"message\""), "{}", operates.out);
    let refused = by(&place, "54321,54322", "POST", fail);
    assert!(
        refused.out.contains("needs the role administer"),
        "{}",
        refused.out
    );
    assert_eq!(
        place.plexum("status nas").exit,
        0,
        "root administers, and it still runs"
    );
    let stopped = by(&place, "54323", "POST", fail);
    assert!(stopped.out.contains("nas is stopped"), "{}", stopped.out);
}

#[test]
fn sockets_of_data_stay_the_own_users_when_others_have_roles() {
    let place = two_sets("roles-modes");
    let daemon = Daemon::start(&place, "");
    done(&place, "serve a b");
    assert_eq!(mode(&place, "plexum"), 0o700, "without roles nobody passes");
    assert_eq!(mode(&place, "plexum/daemon.socket"), 0o600);
    daemon.end(&place);
    configure(&place, "[roles]\nothers = \"view\"\n");
    let _daemon = Daemon::start(&place, "");
    assert_eq!(
        mode(&place, "plexum"),
        0o711,
        "others pass, and see no names"
    );
    assert_eq!(mode(&place, "plexum/daemon.socket"), 0o666);
    for name in std::fs::read_dir(place.file("plexum")).unwrap() {
        let name = name.unwrap().file_name().into_string().unwrap();
        if name != "daemon.socket" {
            assert_eq!(mode(&place, &format!("plexum/{name}")) & 0o077, 0, "{name}");
        }
    }
}

#[test]
fn what_is_wrong_in_the_tables_of_roles_and_page_is_told_in_a_line_and_volumes_are_served() {
    let place = two_sets("roles-wrong");
    std::fs::write(place.file("open.token"), "0123456789abcdefghij").unwrap();
    let token = place.file("open.token").display().to_string();
    for (text, line) in [
        (
            "[roles]\nview = [\"no-such-group\"]\n",
            "view: there is no group \"no-such-group\"",
        ),
        (
            "[roles]\nothers = \"administer\"\n",
            "others: it is \"view\" or \"nothing\"",
        ),
        (
            "[page]\nlisten = \"0.0.0.0:9838\"\n",
            "without tls-cert and tls-key, a [[page.token]]",
        ),
        (
            "[page]\nlisten = \"127.0.0.1:9838\"\ntls-cert = \"page.pem\"\n",
            "tls-cert: without tls-key there is no TLS",
        ),
        (
            "[page]\ntls-cert = \"/nothere.pem\"\ntls-key = \"/nothere.key\"\n",
            "tls-cert: /nothere.key: no such file",
        ),
        (
            "[page]\nlisten = \"9838\"\n",
            "an address with a port is needed",
        ),
        (
            &format!("[page]\n[[page.token]]\nname = \"a\"\nrole = \"view\"\nfile = \"{token}\"\n"),
            "others may read",
        ),
        (
            "[page]\n[[page.token]]\nname = \"a\"\nrole = \"root\"\nfile = \"/dev/null\"\n",
            "role: it is view, operate or administer",
        ),
    ] {
        configure(&place, text);
        let check = place.plexum("config check");
        assert_eq!(check.exit, 1, "{text}");
        let told = format!("{}{}", check.out, check.err);
        let lines: Vec<&str> = told.lines().filter(|told| told.contains(line)).collect();
        assert_eq!(lines.len(), 1, "{text}: {told}");
        assert!(lines[0].contains("plexum.toml: line "), "{told}");
    }
    let daemon = Daemon::start(&place, "");
    done(&place, "serve a b");
    assert!(daemon.said.contains("0 volumes served"));
}
