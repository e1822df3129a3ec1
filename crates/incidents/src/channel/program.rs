//! A program of the user's: the message as JSON on standard input, the main parts in its environment.

use crate::message::Message;

/// What to start, and with what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The program and its arguments; never given to a shell.
    pub command: Vec<String>,
    /// Added to its environment.
    pub environment: Vec<(&'static str, String)>,
    /// What it gets on standard input.
    pub input: String,
}

/// How `command` is started for `message`.
#[must_use]
pub fn start(message: &Message, command: &[String]) -> Start {
    let environment = vec![
        ("PLEXUM_MESSAGE_ID", message.id.clone()),
        ("PLEXUM_KIND", message.kind.name().to_owned()),
        ("PLEXUM_INCIDENT", message.incident.clone()),
        ("PLEXUM_CODE", message.code.name().to_owned()),
        ("PLEXUM_SEVERITY", message.severity.to_string()),
        ("PLEXUM_HOST", message.host.clone()),
        ("PLEXUM_NAME", message.name.clone()),
        ("PLEXUM_SUBJECT", message.first_line()),
        ("PLEXUM_MESSAGE", message.body()),
    ];
    Start {
        command: command.to_vec(),
        environment,
        input: message.json(),
    }
}
