//! A mail that is given to a mail server itself, where this machine has no `sendmail`: what curl is started with.
//!
//! Invariants:
//! - nothing secret is in the command line, which everybody may read: the password is in a file that curl reads;
//! - without TLS nothing is sent, unless that was configured.

use super::mail::{Addresses, host_of, mail};
use super::program::Start;
use crate::message::Message;

/// A mail server, and who sends by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailServer {
    /// `smtp://HOST` or `smtps://HOST`, with a port where it is another than usual.
    pub url: String,
    /// Who gets it: bare addresses.
    pub to: Vec<String>,
    /// Who sends it: a bare address.
    pub from: String,
    /// A file in the form of `.netrc` with name and password; none where the server wants none.
    pub login_file: Option<String>,
    /// Certificates that are trusted; none: those of this machine.
    pub ca_file: Option<String>,
    /// Whether the mail may go in the clear.
    pub tls: MailTls,
}

/// How a mail is kept from whoever is on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MailTls {
    /// By TLS, or it is not sent.
    #[default]
    Required,
    /// Not at all.
    None,
}

/// What sends `message`.
///
/// Source: curl(1); the path of the address is the name that the client gives itself (RFC 5321, 4.1.1.1).
#[must_use]
pub fn start(message: &Message, server: &MailServer) -> Start {
    let mut command: Vec<String> = vec!["curl".into()];
    let mut words = |words: &[&str]| command.extend(words.iter().map(|word| (*word).to_owned()));
    words(&["--disable", "--silent", "--show-error", "--globoff"]);
    words(&["--max-time", "30", "--proto", "=smtp,smtps", "--crlf"]);
    if server.tls == MailTls::Required {
        words(&["--ssl-reqd"]);
    }
    if let Some(file) = &server.login_file {
        words(&["--netrc-file", file]);
    }
    if let Some(file) = &server.ca_file {
        words(&["--cacert", file]);
    }
    words(&["--mail-from", &server.from]);
    for to in &server.to {
        words(&["--mail-rcpt", to]);
    }
    words(&[
        "--write-out",
        "SMTP %{response_code}%{onerror}: %{errormsg}\n",
        "--upload-file",
        "-",
    ]);
    words(&[
        "--url",
        &format!("{}/{}", server.url, host_of(&message.host)),
    ]);
    let addresses = Addresses {
        to: server.to.join(", "),
        from: Some(server.from.clone()),
    };
    Start {
        command,
        environment: Vec::new(),
        input: mail(message, &addresses),
    }
}
