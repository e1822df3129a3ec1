//! Mails that a mail server gets from the daemon itself: by TLS, or not at all.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use super::alarms::{AT_ONCE, configure};
use super::common::Place;
use super::common::served::done;
use super::daemon::Daemon;

/// A mail server for one test. It says its port, and then a line for each thing that a client did; `plain` offers no
/// TLS. Source: RFC 5321 (commands and answers), RFC 3207 (STARTTLS), RFC 4954 (AUTH PLAIN).
const SERVER: &str = r#"
import base64, socket, ssl, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    stream, _ = listener.accept()
    file = stream.makefile("rwb")
    def answer(text):
        file.write(text.encode() + b"\r\n"); file.flush()
    secure = ""
    answer("220 here")
    while line := file.readline():
        word = line.decode().strip()
        verb = word.upper()
        if verb.startswith("EHLO"):
            print(secure + word, flush=True)
            more = "250-AUTH PLAIN" if secure else "250-STARTTLS" if "plain" not in sys.argv else "250-8BITMIME"
            answer("250-here"); answer(more); answer("250 SIZE 1000000")
        elif verb == "STARTTLS":
            answer("220 go on")
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain("cert.pem", "key.pem")
            try:
                stream = context.wrap_socket(stream, server_side=True)
            except OSError:
                break
            file = stream.makefile("rwb"); secure = "by TLS: "
        elif verb.startswith("AUTH PLAIN"):
            parts = word.split()
            if len(parts) < 3:
                answer("334 "); parts.append(file.readline().decode().strip())
            print(secure + "AUTH " + base64.b64decode(parts[2]).decode().replace("\0", "/"), flush=True)
            answer("235 welcome")
        elif verb == "DATA":
            answer("354 go on")
            for line in iter(file.readline, b".\r\n"):
                assert line.endswith(b"\r\n")
                print(secure + "| " + line.decode().rstrip(), flush=True)
            print("END", flush=True)
            answer("250 taken as 77")
        else:
            print(secure + word, flush=True)
            answer("221 bye" if verb == "QUIT" else "250 ok")
"#;

struct Server {
    child: Child,
    lines: Box<dyn Iterator<Item = String>>,
    port: String,
}

impl Server {
    fn start(place: &Place, words: &[&str]) -> Self {
        fs::write(place.file("server.py"), SERVER).unwrap();
        let mut child = place
            .command("python3")
            .arg("server.py")
            .args(words)
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 can be started");
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines = lines.map_while(Result::ok);
        let port = lines.next().unwrap();
        let lines = Box::new(lines);
        Self { child, lines, port }
    }

    /// What clients have done up to the end of a mail.
    fn until_end(&mut self) -> Vec<String> {
        self.lines
            .by_ref()
            .take_while(|line| line != "END")
            .collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A channel `post` with more keys.
fn channel(port: &str, more: &str) -> String {
    format!(
        "{AT_ONCE}[[alarm.channel]]\nname = \"post\"\nkind = \"smtp\"\nurl = \"smtp://localhost:{port}\"\n\
         to = \"ute@example.com, max@example.com\"\nfrom = \"nas@example.com\"\n{more}"
    )
}

#[test]
fn a_mail_goes_to_the_mail_server_by_tls_and_with_the_password_of_a_file() {
    let place = Place::in_memory("alarms-smtp");
    let key = "req -x509 -newkey rsa:2048 -nodes -days 9 -keyout key.pem -out cert.pem -subj /CN=localhost \
               -addext subjectAltName=DNS:localhost";
    assert_eq!(place.tool("openssl", key).exit, 0);
    let mut server = Server::start(&place, &[]);
    let login = place.file("login");
    fs::write(&login, "machine localhost login nas password secret1\n").unwrap();
    let (ca, login) = (place.file("cert.pem"), login.display());
    let more = format!("ca-file = \"{}\"\nlogin-file = \"{login}\"\n", ca.display());
    configure(&place, &channel(&server.port, &more));
    let _daemon = Daemon::start(&place, "");
    let told = done(&place, "alert test post");
    assert!(told.out.contains("SMTP 250"), "{}", told.out);
    let lines = server.until_end();
    let has = |line: &str| lines.iter().any(|one| one == line);
    for line in [
        "by TLS: AUTH /nas/secret1",
        "by TLS: RCPT TO:<ute@example.com>",
        "by TLS: RCPT TO:<max@example.com>",
        "by TLS: | To: ute@example.com, max@example.com",
        "by TLS: | From: nas@example.com",
    ] {
        assert!(has(line), "no {line:?} in {lines:#?}");
    }
    let subject = lines.iter().find(|line| line.contains("| Subject: "));
    assert!(subject.unwrap().contains("TEST"), "{subject:?}");
    let in_clear = lines.iter().filter(|line| !line.starts_with("by TLS: "));
    let in_clear: Vec<&String> = in_clear.collect();
    assert_eq!(in_clear.len(), 1, "{in_clear:?}");
    assert!(in_clear[0].starts_with("EHLO "), "{in_clear:?}");
}

#[test]
fn without_tls_nothing_is_sent_unless_that_was_configured() {
    let place = Place::in_memory("alarms-smtp-plain");
    let mut server = Server::start(&place, &["plain"]);
    configure(&place, &channel(&server.port, ""));
    let daemon = Daemon::start(&place, "");
    let refused = place.plexum("alert test post");
    assert_ne!(refused.exit, 0);
    let said = format!("{}{}", refused.out, refused.err);
    assert!(said.contains("STARTTLS"), "{said}");
    daemon.end(&place);
    configure(&place, &channel(&server.port, "tls = \"none\"\n"));
    let _daemon = Daemon::start(&place, "");
    done(&place, "alert test post");
    let lines = server.until_end();
    let greetings = lines.iter().filter(|line| line.starts_with("EHLO "));
    assert!(greetings.count() >= 2, "{lines:#?}");
    let mails = lines.iter().filter(|line| line.starts_with("MAIL FROM"));
    assert_eq!(mails.count(), 1, "the first one was not begun: {lines:#?}");
}
