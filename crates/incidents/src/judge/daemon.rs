//! What is wrong with the process that serves the volumes.

use super::volume::not_judged;
use crate::facts::{AbsentVolume, DaemonFacts, DeliveryFailure};
use crate::finding::{Code, Finding, Lines, Object, Severity};

/// Everything that is wrong with it.
pub(super) fn judge(daemon: &DaemonFacts, utc_offset_s: i32) -> Vec<Finding> {
    let mut found: Vec<Finding> = daemon.absent.iter().map(absent).collect();
    let failures = daemon.delivery_failures.iter();
    found.extend(failures.map(|failure| delivery(failure, utc_offset_s)));
    found.extend(daemon.journal_not_writable.as_deref().map(journal));
    found.extend(daemon.configuration.as_deref().map(configuration));
    found
}

/// A volume that is not there cannot be judged: it is the same incident, whichever way it began.
fn absent(volume: &AbsentVolume) -> Finding {
    let members = volume.members.iter();
    Finding {
        code: Code::NotJudged,
        object: Object::Volume(volume.uuid.clone()),
        name: volume.name.clone(),
        severity: Severity::Critical,
        lines: Lines {
            headline: format!("IS NOT THERE - {}", volume.reason),
            data: vec!["cannot be reached; whether they are lost is not known".to_owned()],
            advice: vec!["which of its members are found:   plexum scan".to_owned()],
            before: members
                .map(|member| format!("belongs to it: {member}"))
                .collect(),
            ..not_judged(&volume.name, &volume.reason)
        },
    }
}

fn delivery(failure: &DeliveryFailure, utc_offset_s: i32) -> Finding {
    let since = failure.since.text(utc_offset_s);
    let mut what = vec![format!(
        "{} attempts failed since {since}",
        failure.attempts
    )];
    if failure.given_up > 0 {
        what.push(format!("{} messages were given up", failure.given_up));
    }
    Finding {
        code: Code::DeliveryFails,
        object: Object::Channel(failure.channel.clone()),
        name: failure.channel.clone(),
        severity: Severity::Warning,
        lines: Lines {
            headline: format!("MESSAGES DO NOT ARRIVE - {}", failure.error),
            what,
            advice: vec![format!("try it:   plexum alert test {}", failure.channel)],
            ..Lines::default()
        },
    }
}

fn journal(reason: &str) -> Finding {
    Finding {
        code: Code::JournalNotWritable,
        object: Object::Daemon,
        name: "plexum".to_owned(),
        severity: Severity::Critical,
        lines: Lines {
            headline: format!("INCIDENTS CANNOT BE KEPT - {reason}"),
            data: vec!["not concerned; after a restart a message may come twice".to_owned()],
            advice: vec!["look at room and rights of the folder it names".to_owned()],
            ..Lines::default()
        },
    }
}

fn configuration(reason: &str) -> Finding {
    Finding {
        code: Code::Configuration,
        object: Object::Daemon,
        name: "plexum".to_owned(),
        severity: Severity::Warning,
        lines: Lines {
            headline: format!("CONFIGURATION IS NOT READ - {reason}"),
            data: vec!["not concerned; what is written there does not count".to_owned()],
            advice: vec!["all that is wrong with it:   plexum config check".to_owned()],
            ..Lines::default()
        },
    }
}
