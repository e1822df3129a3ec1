//! The page and the API beyond this machine: by TLS, with a token, for real clients.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::common::Place;
use super::common::browser::Browser;
use super::common::served::done;
use super::daemon::{Daemon, served, two_sets};
use super::tls::{make_certificate, make_certificates};

/// A token of each role.
const TOKENS: [(&str, &str); 3] = [
    ("view", "view-0123456789;\"%"),
    ("operate", "operate-0123456789"),
    ("administer", "administer-0123456789"),
];

/// A daemon that serves `nas`, and has its page at every address of this machine; its port.
fn with_page(name: &str) -> (Place, Daemon, u64) {
    let place = two_sets(name);
    make_certificates(&place);
    let mut text = format!(
        "[page]\nlisten = \"0.0.0.0:0\"\ntls-cert = \"{0}-cert.pem\"\ntls-key = \"{0}-key.pem\"\n",
        place.file("own/server").display()
    );
    for (role, secret) in TOKENS {
        let file = place.file(role);
        std::fs::write(&file, secret).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let file = file.display();
        text += &format!(
            "[[page.token]]\nname = \"of {role}\"\nrole = \"{role}\"\nfile = \"{file}\"\n"
        );
    }
    std::fs::create_dir_all(place.file("config/plexum")).unwrap();
    std::fs::write(place.file("config/plexum/plexum.toml"), text).unwrap();
    done(&place, "config check");
    let daemon = Daemon::start(&place, "--json");
    let told: Value = serde_json::from_str(&daemon.said).unwrap();
    let at = told["page"].as_str().expect("where the page is");
    let port = at.strip_prefix("0.0.0.0:").unwrap().parse().unwrap();
    let url = format!("https://{at}/");
    assert_eq!(told["page_url"], url);
    done(&place, "serve a b");
    (place, daemon, port)
}

/// What curl gets: the status, and head with body. It trusts our authority alone.
fn ask(place: &Place, url: &str, words: &[&str]) -> (String, String) {
    let mut command = place.command("curl");
    let authority = [
        "-sS",
        "-i",
        "--max-time",
        "60",
        "--cacert",
        "own/ca-cert.pem",
    ];
    let output = command.args(authority).args(words).arg(url).output();
    let output = output.expect("curl must be installed");
    let text = String::from_utf8(output.stdout).unwrap();
    let status = text.split(' ').nth(1).unwrap_or("none").to_owned();
    (status, text)
}

fn bearer(role: &str) -> String {
    let (_, secret) = TOKENS.iter().find(|(name, _)| *name == role).unwrap();
    format!("Authorization: Bearer {secret}")
}

#[test]
fn a_new_certificate_counts_at_once_and_one_that_cannot_be_used_does_not() {
    let (place, daemon, port) = with_page("page-renewed");
    let url = format!("https://localhost:{port}/v1/volumes");
    let of_role = bearer("view");
    let by_own = ["-H", of_role.as_str()];
    let by_other = ["-H", of_role.as_str(), "--cacert", "other/ca-cert.pem"];
    assert_eq!(ask(&place, &url, &by_own).0, "200");
    assert_eq!(ask(&place, &url, &by_other).0, "none");
    let names = "subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n";
    make_certificate(&place, "own", "server", "other", names);
    assert_eq!(ask(&place, &url, &by_other).0, "200");
    assert_eq!(ask(&place, &url, &by_own).0, "none");
    std::fs::write(place.file("own/server-cert.pem"), "no certificate").unwrap();
    assert_eq!(ask(&place, &url, &by_other).0, "200");
    drop(daemon);
}

#[test]
fn beyond_this_machine_programs_come_by_tls_with_a_token_and_do_what_its_role_allows() {
    let (place, mut daemon, port) = with_page("page-tls");
    let at = format!("https://localhost:{port}");
    let volumes = format!("{at}/v1/volumes");
    let fail = format!("{at}/v1/volumes/nas/fail");
    let change = [
        "-H",
        "Content-Type: application/json",
        "-d",
        r#"{"member":"b"}"#,
    ];
    let (none, _) = ask(&place, &volumes.replace("https", "http"), &[]);
    assert_eq!(none, "none", "nothing in the clear");

    let (status, text) = ask(&place, &volumes, &[]);
    assert_eq!(status, "403", "{text}");
    assert!(
        text.contains("whoever shows no token has no role"),
        "{text}"
    );
    let (status, text) = ask(
        &place,
        &volumes,
        &["-H", "Authorization: Bearer 0123456789abcdef"],
    );
    assert_eq!(status, "401", "{text}");
    assert!(text.contains("nobody knows this token"), "{text}");
    assert!(
        text.to_lowercase().contains("www-authenticate: bearer"),
        "{text}"
    );

    let (status, text) = ask(&place, &volumes, &["-H", &bearer("view")]);
    assert_eq!(status, "200", "{text}");
    assert!(text.contains("\"volume\":\"nas\""), "{text}");
    for role in ["view", "operate"] {
        let of_role = bearer(role);
        let words = [&["-H", of_role.as_str()], &change[..]].concat();
        let (status, text) = ask(&place, &fail, &words);
        assert_eq!(status, "403", "{role}: {text}");
    }
    let of_role = bearer("administer");
    let words = [&["-H", of_role.as_str()], &change[..]].concat();
    let (status, text) = ask(&place, &fail, &words);
    assert_eq!(status, "200", "{text}");
    let events = done(&place, "events nas").out;
    assert!(
        events.contains("token of administer asked: fail b"),
        "{events}"
    );

    // Who points a name of his own at this machine has no certificate for it; one who takes any is not answered.
    let other = format!("https://example.com:{port}/");
    let resolve = format!("example.com:{port}:127.0.0.1");
    let (status, _) = ask(&place, &other, &["--resolve", &resolve]);
    assert_eq!(status, "none");
    let (status, text) = ask(&place, &other, &["-k", "--resolve", &resolve]);
    assert_eq!(status, "403", "{text}");
    assert!(text.contains("for which its certificate is"), "{text}");

    let mut notes = daemon.notes();
    daemon.kill();
    let mut said = String::new();
    notes.read_to_string(&mut said).unwrap();
    for (_, secret) in TOKENS {
        assert!(!said.contains(secret), "{said}");
    }
}

#[test]
fn who_guesses_tokens_is_slowed_down_and_volumes_are_served_meanwhile() {
    let (place, _daemon, port) = with_page("page-guess");
    let url = format!("https://127.0.0.1:{port}/v1/volumes");
    // One connection, so that a handshake takes longer than none of them.
    let mut config = String::new();
    for number in 0..40 {
        config += &format!(
            "next\nurl = \"{url}\"\nheader = \"Authorization: Bearer guess-{number:016}\"\ncacert = own/ca-cert.pem\n\
             silent\noutput = /dev/null\nwrite-out = \"%{{http_code}}\\n\"\n"
        );
    }
    std::fs::write(
        place.file("guesses"),
        config.strip_prefix("next\n").unwrap(),
    )
    .unwrap();
    let run = place.tool("curl", "--config guesses");
    let codes: Vec<&str> = run.out.lines().collect();
    assert_eq!(codes.len(), 40, "{}{}", run.out, run.err);
    assert_eq!(codes[0], "401");
    assert!(
        codes.iter().all(|code| ["401", "429"].contains(code)),
        "{codes:?}"
    );
    assert!(codes.contains(&"429"), "{codes:?}");
    // Nothing ever gives in: who knows his token is heard again by and by, and whoever comes without one at once.
    assert_eq!(ask(&place, &url, &[]).0, "403");
    let known = bearer("view");
    super::common::served::wait_until(&place, "the right token is heard", || {
        ask(&place, &url, &["-H", &known]).0 == "200"
    });
    assert_eq!(served(&place), ["nas"]);
}

#[test]
fn a_browser_without_script_shows_its_token_by_the_form_and_keeps_it_from_scripts_and_other_pages()
{
    let (place, _daemon, port) = with_page("page-form");
    let at = format!("https://localhost:{port}");
    let page = format!("{at}/");
    let mut browser = Browser::start(&place);
    // Our authority is none of the browser's.
    browser.call(
        "Security.setIgnoreCertificateErrors",
        json!({"ignore": true}),
    );
    browser.call(
        "Emulation.setScriptExecutionDisabled",
        json!({"value": true}),
    );
    let text = "document.body.innerText";
    browser.open(&page);
    let shown = browser.ask(text);
    let shown = shown.as_str().unwrap();
    assert!(
        shown.contains("that needs the role view") && !shown.contains("nas"),
        "{shown}"
    );
    let mut show = |token: &str| {
        browser.ask("document.querySelector('input').focus()");
        browser.type_text(token);
        browser.loading(|browser| browser.press("Enter"));
        browser.ask(text).as_str().unwrap().to_owned()
    };
    let shown = show("nobody-knows-this-one");
    assert!(shown.contains("nobody knows this token"), "{shown}");
    let shown = show(TOKENS[0].1);
    assert!(shown.contains("Losses survived"), "{shown}");
    assert!(
        shown.contains("You are token of view and may view"),
        "{shown}"
    );
    assert_eq!(browser.ask("location.href"), page);
    assert_eq!(browser.ask("document.cookie"), "", "no script reads it");
    // With script the page is live with what the browser keeps.
    browser.call(
        "Emulation.setScriptExecutionDisabled",
        json!({"value": false}),
    );
    browser.open(&page);
    browser.wait_until("document.getElementById('link').textContent.includes('Live.')");
    done(&place, "fail nas b");
    browser.wait_until("document.querySelector('h1').innerText.includes('nas')");
    browser.loading(|browser| {
        browser.ask("document.querySelector('button[name=leave]').click()");
    });
    let shown = browser.ask(text);
    assert!(
        shown.as_str().unwrap().contains("that needs the role view"),
        "{shown}"
    );

    // What a browser gets to keep, as a program sees it; and what it is worth to somebody else's page.
    let form = format!("{at}/page/token");
    let token = format!("token={}", TOKENS[2].1);
    let (status, text) = ask(&place, &form, &["-d", &token, "-c", "kept"]);
    assert_eq!(status, "303", "{text}");
    let line = text
        .lines()
        .find(|line| line.to_lowercase().starts_with("set-cookie:"))
        .unwrap();
    for word in [
        "__Host-plexum=",
        "; Secure",
        "; HttpOnly",
        "; SameSite=Strict",
        "; Path=/",
    ] {
        assert!(line.contains(word), "{line}");
    }
    assert!(
        !line.contains("Max-Age") && !line.contains("Domain"),
        "{line}"
    );
    let stop = format!("{at}/v1/volumes/nas/stop");
    let json = [
        "-b",
        "kept",
        "-H",
        "Content-Type: application/json",
        "-d",
        "{}",
    ];
    let foreign = [&json[..], &["-H", "Origin: https://example.com"]].concat();
    assert_eq!(ask(&place, &stop, &foreign).0, "403");
    let clear = format!("Origin: http://localhost:{port}");
    let clear = [&json[..], &["-H", clear.as_str()]].concat();
    assert_eq!(ask(&place, &stop, &clear).0, "403");
    let login = ["-d", token.as_str(), "-H", "Origin: https://example.com"];
    assert_eq!(ask(&place, &form, &login).0, "403");
    assert_eq!(
        ask(&place, &stop, &["-b", "kept", "-d", "{}"]).0,
        "400",
        "a form"
    );
    assert_eq!(served(&place), ["nas"]);
    let own = format!("Origin: {at}");
    let own = [&json[..], &["-H", own.as_str()]].concat();
    assert_eq!(ask(&place, &stop, &own).0, "200");
    assert_eq!(served(&place), [""; 0]);
}

#[test]
fn a_page_whose_certificate_or_token_goes_bad_is_nowhere_and_volumes_are_served() {
    let (place, daemon, _) = with_page("page-bad");
    daemon.end(&place);
    let key = place.file("own/server-key.pem");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let check = place.plexum("config check");
    assert_eq!(check.exit, 1);
    assert_eq!(check.out.lines().count(), 1, "{}", check.out);
    let told = "plexum.toml: line 3: tls-cert: ";
    assert!(check.out.contains(told), "{}", check.out);
    assert!(
        check
            .out
            .contains("server-key.pem: everybody may read it: chmod 600"),
        "{}",
        check.out
    );
    let daemon = Daemon::start(&place, "--json");
    let told: Value = serde_json::from_str(&daemon.said).unwrap();
    assert_eq!(told["page"], Value::Null, "{told}");
    assert_eq!(served(&place), ["nas"]);
    daemon.end(&place);
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    for (role, _) in TOKENS {
        std::fs::set_permissions(place.file(role), std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    let check = place.plexum("config check");
    assert_eq!(check.exit, 1);
    assert!(check.out.contains("line 2: listen: "), "{}", check.out);
    assert!(
        check.out.contains("without a [[page.token]]"),
        "{}",
        check.out
    );
}
