//! One line for the journal, which needs no network and nobody's configuration.

use crate::finding::Severity;
use crate::incident::NoticeKind;
use crate::message::Message;

/// The priority of `message` as syslog counts: 0 is the worst.
///
/// Source: syslog(3).
#[must_use]
pub fn priority(message: &Message) -> u8 {
    match (message.kind, message.severity) {
        (NoticeKind::Closed | NoticeKind::Test, _) => 5,
        (_, Severity::Warning) => 4,
        (_, Severity::Critical) => 2,
        (_, Severity::Emergency) => 0,
    }
}

/// The line on standard error: systemd takes the priority from its front.
///
/// Source: sd-daemon(3).
#[must_use]
pub fn line(message: &Message) -> String {
    format!(
        "<{}>{} (incident {}, {})",
        priority(message),
        message.first_line(),
        message.incident,
        message.kind.name()
    )
}
