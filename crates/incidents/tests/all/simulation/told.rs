//! What arrived, held against what may arrive.

use plexum_incidents::finding::{Code, Object, Severity};
use plexum_incidents::incident::NoticeKind;
use plexum_incidents::message::Message;
use plexum_incidents::time::DAY_S;

/// What a message says, whenever it was decided.
pub fn said(message: &Message) -> (NoticeKind, Code, &Object, Severity) {
    (
        message.kind,
        message.code,
        &message.object,
        message.severity,
    )
}

/// What one channel got of one incident.
pub fn in_order(least: Severity, messages: &[&Message]) -> Result<(), String> {
    let incident = &messages[0].incident;
    let kinds: Vec<NoticeKind> = messages.iter().map(|message| message.kind).collect();
    let ids: Vec<&str> = messages.iter().map(|message| message.id.as_str()).collect();
    let say = |what: &str| Err(format!("incident {incident}: {what}: {ids:?}"));
    let count = |kind| kinds.iter().filter(|other| **other == kind).count();
    // A channel for the worst hears of an incident when it becomes as bad.
    let starts_late = least > Severity::Warning && kinds[0] == NoticeKind::Worse;
    if count(NoticeKind::Opened) > 1 || count(NoticeKind::Closed) > 1 {
        return say("told twice");
    }
    if kinds[0] != NoticeKind::Opened && !starts_late {
        return say("does not begin with its beginning");
    }
    if kinds.last() != Some(&NoticeKind::Closed) {
        return say("does not end with its end");
    }
    for pair in messages.windows(2) {
        if pair[0].count >= pair[1].count {
            return say("out of order");
        }
        let gap_s = pair[1].decided.since_s(pair[0].decided);
        if pair[1].kind == NoticeKind::Repeated && gap_s < DAY_S {
            return say("repeated too early");
        }
        let known = pair[1].acknowledged.as_ref();
        let is_known = known.is_some_and(|known| pair[1].severity <= known.severity);
        if pair[1].kind == NoticeKind::Repeated && is_known {
            return say("repeated to who knows");
        }
    }
    Ok(())
}
