//! What is wrong with a volume, and the next thing to do, told from its status.
//!
//! Invariants:
//! - a command that is told is one that the volume takes in this state, ready to copy; capital words stand for what
//!   only the user knows;
//! - nothing is advised that throws data away.

use super::status::{Finding, MemberState, MemberStatus, ScrubStatus, Verdict, VolumeStatus};

/// A word as a shell takes it.
#[must_use]
pub fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn finding(code: &str, message: String, commands: Vec<String>) -> Finding {
    Finding {
        code: code.into(),
        message,
        commands,
    }
}

/// Fills in what is wrong, and the next thing to do.
pub fn advise(status: &mut VolumeStatus) {
    let mut findings = Vec::new();
    let mut next = None;
    for member in &status.members {
        advise_member(status, member, &mut findings, &mut next);
    }
    advise_verdict(status, &mut findings, &mut next);
    if let Some(scrub) = &status.last_scrub {
        advise_scrub(status, scrub, &mut findings, &mut next);
    }
    if let Some(bitmap) = &status.bitmap
        && status.is_read_only
        && status.verdict != Verdict::Failed
        && bitmap.doubtful_regions > 0
    {
        findings.push(finding(
            "not_proven",
            format!(
                "{} of {} regions may differ since it was not stopped cleanly; read-only, nothing makes them agree",
                bitmap.doubtful_regions, bitmap.regions
            ),
            Vec::new(),
        ));
    }
    status.next = next.or_else(|| for_slow(&findings));
    status.findings = findings;
}

/// What to do about a member that is slow. It loses nothing: whatever else there is to do comes first.
fn for_slow(findings: &[Finding]) -> Option<String> {
    let slow = findings.iter().find(|found| found.code == "slow_member")?;
    slow.commands.first().cloned()
}

/// Whether members can be exchanged now.
fn takes_members(status: &VolumeStatus) -> bool {
    !status.is_read_only && status.verdict != Verdict::Failed && status.consistency != "none"
}

fn advise_member(
    status: &VolumeStatus,
    member: &MemberStatus,
    findings: &mut Vec<Finding>,
    next: &mut Option<String>,
) {
    let name = shell_word(&status.volume);
    let shown = member.path.clone().unwrap_or_default();
    let path = shell_word(&shown);
    let allowed = |command: String| -> Vec<String> {
        takes_members(status)
            .then_some(command)
            .into_iter()
            .collect()
    };
    if member.state == MemberState::Faulty {
        let why = member.failed_because.as_ref();
        let why = why.map_or(String::new(), |why| format!(": {why}"));
        let commands = allowed(format!("plexum remove {name} {path}"));
        if status.verdict != Verdict::Degraded {
            *next = next.take().or_else(|| commands.first().cloned());
        }
        findings.push(finding(
            "member_faulty",
            format!("{shown} has failed{why}"),
            commands,
        ));
    }
    if member.is_slow {
        let percent = member.latency_vs_peers_percent.unwrap_or(0);
        let commands = allowed(format!("plexum replace {name} {path} NEW"));
        findings.push(finding(
            "slow_member",
            format!(
                "{shown} takes {}.{} times as long as its peers; reads are routed around it where there is another copy",
                percent / 100,
                percent / 10 % 10
            ),
            commands,
        ));
    }
    let is_active = member.state == MemberState::Active;
    if is_active && member.write_errors > 0 && member.bad_bytes == 0 && status.spare_failures == 0 {
        let count = member.write_errors;
        findings.push(finding(
            "last_copy",
            format!("{shown} refused {count} writes, and stays: nobody else holds what is on it"),
            allowed(format!("plexum add {name} MEMBER")),
        ));
    }
    if member.bad_bytes > 0 {
        findings.push(finding(
            "bad_blocks",
            format!(
                "{shown}: {} bytes are on its bad block list",
                member.bad_bytes
            ),
            allowed(format!("plexum replace {name} {path} NEW")),
        ));
    }
}

/// The member that was failed on request or did not answer, and may come back as it is.
fn may_return(member: &MemberStatus) -> bool {
    let why = member.failed_because.as_deref();
    let is_well = why.is_none_or(|why| why == "as asked" || why == "it did not answer in time");
    member.state == MemberState::Faulty && is_well && !member.is_draining
}

fn advise_verdict(status: &VolumeStatus, findings: &mut Vec<Finding>, next: &mut Option<String>) {
    let name = shell_word(&status.volume);
    let has = |state: MemberState| status.members.iter().any(|member| member.state == state);
    let is_waiting = !has(MemberState::Spare) && !has(MemberState::Rebuilding);
    if status.verdict == Verdict::Degraded && is_waiting && takes_members(status) {
        // Only a bitmap says what a member missed.
        let returns = |member: &&MemberStatus| status.bitmap.is_some() && may_return(member);
        let back = status.members.iter().find(returns);
        let back = back.and_then(|member| member.path.as_deref());
        *next = Some(match back {
            Some(path) => format!("plexum re-add {name} {}", shell_word(path)),
            None => format!("plexum add {name} MEMBER"),
        });
    }
    if status.verdict == Verdict::Failed {
        *next = Some(format!("plexum stop {name}"));
        findings.push(finding(
            "too_few_members",
            "bring the lost members back, stop it and serve it again".into(),
            vec![
                format!("plexum stop {name}"),
                "plexum serve MEMBER...".into(),
            ],
        ));
    }
}

fn advise_scrub(
    status: &VolumeStatus,
    scrub: &ScrubStatus,
    findings: &mut Vec<Finding>,
    next: &mut Option<String>,
) {
    let differ = scrub.unmended_bytes();
    if differ == 0 || status.verdict == Verdict::Failed {
        return;
    }
    let mut message = if scrub.is_complete {
        format!(
            "the last scrub found {} bytes that differ",
            scrub.mismatch_bytes
        )
    } else {
        format!("{differ} bytes are known to differ, and the last scrub did not get through")
    };
    let mut commands = Vec::new();
    if status.is_read_only {
        message.push_str("; served read-only, nothing mends them");
    } else if status.jobs.is_empty() {
        let name = shell_word(&status.volume);
        commands.push(format!("plexum scrub {name} --repair --wait"));
        *next = next.take().or_else(|| commands.first().cloned());
    }
    findings.push(finding("mismatch", message, commands));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_blanks_and_quotes_are_quoted_for_the_shell() {
        assert_eq!(shell_word("/dev/sda"), "/dev/sda");
        assert_eq!(shell_word("my disk"), "'my disk'");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
        assert_eq!(shell_word(""), "''");
    }

    #[test]
    fn a_slow_member_has_its_command_among_other_findings() {
        let found =
            |code: &str, command: &str| finding(code, String::new(), vec![command.to_owned()]);
        let both = [found("bad_blocks", "one"), found("slow_member", "two")];
        assert_eq!(for_slow(&both).as_deref(), Some("two"));
        assert_eq!(for_slow(&both[..1]), None);
    }
}
