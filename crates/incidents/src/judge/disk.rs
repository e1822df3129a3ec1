//! What is wrong with a disk.

use crate::facts::{DiskFacts, Facts, Health};
use crate::finding::{Code, Finding, Lines, Object, Severity};

/// What is wrong with `disk`, if anything is. How bad it is comes from the volume that would miss it.
pub(super) fn judge(disk: &DiskFacts, facts: &Facts) -> Option<Finding> {
    let user = disk.used_by.as_ref();
    let volume =
        user.and_then(|(uuid, _)| facts.volumes.iter().find(|volume| volume.uuid == *uuid));
    let is_last = volume.is_some_and(|volume| volume.losses_left == 0);
    let by_loss = if is_last {
        Severity::Critical
    } else {
        Severity::Warning
    };
    let (code, severity, headline) = match &disk.health {
        Health::Fine | Health::NotOffered | Health::Asleep => return None,
        Health::Growing { what } => (Code::DiskHealth, by_loss, format!("gets worse - {what}")),
        Health::Failing { what } => (
            Code::DiskHealth,
            by_loss,
            format!("SAYS THAT IT FAILS - {what}"),
        ),
        Health::Connection { what } => (
            Code::DiskHealth,
            Severity::Warning,
            format!("errors on the way to it, cable or bay - {what}"),
        ),
        Health::Hot { what } => (
            Code::DiskHealth,
            Severity::Warning,
            format!("is hotter than it is made for - {what}"),
        ),
        Health::CannotJudge { reason } => (
            Code::NotJudged,
            Severity::Critical,
            format!("CANNOT BE JUDGED - {reason}"),
        ),
    };
    let replace = match (user, volume) {
        (Some((_, slot)), Some(volume)) => format!(
            "copy it to another while it still serves:   plexum replace {} {slot} /dev/DISK",
            volume.name
        ),
        _ => "use another one".to_owned(),
    };
    let data = match volume {
        Some(volume) if is_last => format!("{} does not survive its loss", volume.name),
        Some(volume) => format!("{} survives its loss", volume.name),
        None => "no volume uses it".to_owned(),
    };
    let advice = match &disk.health {
        Health::Growing { .. } | Health::Failing { .. } => replace,
        Health::Connection { .. } => "look at its cable and its bay first".to_owned(),
        Health::Hot { .. } => "look at the fans and the air around it".to_owned(),
        _ => format!("ask it by hand:   smartctl -x ({})", disk.identity),
    };
    Some(Finding {
        code,
        object: Object::Disk(disk.identity.clone()),
        name: disk.member.clone(),
        severity,
        lines: Lines {
            headline,
            data: vec![data],
            advice: vec![advice],
            ..Lines::default()
        },
    })
}
