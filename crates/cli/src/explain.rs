//! `plexum explain`: what a problem code means, and what the loss of a member would mean.

use plexum_daemon::problem::{Code, Problem};
use plexum_daemon::status::{MemberState, ScrubStatus, VolumeStatus};
use serde_json::json;

use crate::args::Explain;
use crate::client::Client;
use crate::errors::Outcome;
use crate::member_ops::member_word;
use crate::output::{Screen, object, table};
use crate::units::{show_bytes, show_seconds};

/// Runs the command.
///
/// # Errors
/// `Usage` for an unknown code, and what the control socket refuses.
pub fn run(args: &Explain, screen: &Screen) -> Outcome {
    match (&args.what, args.lost.is_empty()) {
        (None, true) => list_codes(screen),
        (Some(word), true) => explain_code(word, screen),
        (volume, false) => explain_loss(volume.as_deref(), &args.lost, screen),
    }
}

fn list_codes(screen: &Screen) -> Outcome {
    let mut rows = vec![vec![
        "CODE".to_owned(),
        "EXIT".to_owned(),
        "MEANING".to_owned(),
    ]];
    for code in Code::ALL {
        let meaning = text_of(*code).0;
        rows.push(vec![
            code.slug().to_owned(),
            code.exit().to_string(),
            meaning.to_owned(),
        ]);
        screen.object(&object(
            "code",
            None,
            json!({"code": code.slug(), "exit": code.exit(), "meaning": meaning}),
        ));
    }
    for line in table(&rows) {
        screen.line(line);
    }
    Ok(0)
}

/// What `status` finds wrong and no command ends with: slug, meaning, more.
const FINDINGS: &[(&str, &str, &str)] = &[
    (
        "member_faulty",
        "A member failed and is not used any more.",
        "Its slot is filled from the others as soon as a spare is there. `plexum re-add` takes it back when it is well again.",
    ),
    (
        "bad_blocks",
        "Some ranges of a member hold wrong or unreadable data.",
        "They are on its bad block list and are read from the other members. Replace it while they are whole.",
    ),
    (
        "reshape_interrupted",
        "A reshape was stopped in the middle; the volume is read from both halves.",
        "What is done lies in the new geometry, the rest in the old one. Both are needed: the slots that either lacks are shown, and\n\
         the redundancy is that of the worse one. The Linux kernel can go on with it.",
    ),
    (
        "journal_not_replayed",
        "Writes that were answered are only in md's write journal.",
        "They are read from there. Nothing is written; the Linux kernel puts them in place when it assembles the array.",
    ),
    (
        "not_kept",
        "Events, results and settings are not all kept for the next start.",
        "They lie in /var/lib/plexum, for a user in ~/.local/state/plexum or $XDG_STATE_HOME/plexum. The volume is served\n\
         all the same; after a restart, events and the last scrub may be missing.",
    ),
    (
        "slow_member",
        "A member takes much longer than its peers, without any error.",
        "Disks often do that before they fail. Reads that take too long are asked of another copy as well; writes wait for it.",
    ),
    (
        "space_refused",
        "A member had no space for a write: the file system under it is full, or a limit is reached.",
        "The write was answered with an error, and nothing else is wrong with the member. Free some space; what has space already can be written all the while.",
    ),
    (
        "space_short",
        "The file systems under the members have less space than the members may still want.",
        "Sparse files get their space when they are written to. When it is used up, writes are answered with an error.",
    ),
    (
        "not_proven",
        "The volume was not stopped cleanly, and read-only nothing makes its copies or parity agree.",
        "Data are read from the members as they are. Served for writing, a resync makes them agree.",
    ),
    (
        "mismatch",
        "The last scrub found copies or parity that do not agree.",
        "`plexum scrub --repair` makes them agree; where nothing tells which one is right, the data are kept and parity or the later copies are written anew.",
    ),
];

fn explain_code(word: &str, screen: &Screen) -> Outcome {
    let wanted = word.replace('-', "_").to_ascii_lowercase();
    if let Some((slug, meaning, more)) = FINDINGS.iter().find(|(slug, ..)| *slug == wanted) {
        screen.object(&object(
            "code",
            None,
            json!({"code": slug, "exit": null, "meaning": meaning, "text": more}),
        ));
        screen.line(format!("{slug} (told by plexum status)"));
        screen.line(format!("  {meaning}"));
        screen.line(format!("  {more}"));
        return Ok(0);
    }
    let Some(code) = Code::ALL.iter().find(|code| code.slug() == wanted) else {
        return Err(
            Problem::new(Code::Usage, format!("{word} is no problem code"))
                .hint("to see all codes:   plexum explain")
                .hint(format!(
                    "for a running volume:   plexum explain {word} --if MEMBER"
                )),
        );
    };
    let (meaning, more) = text_of(*code);
    screen.object(&object(
        "code",
        None,
        json!({"code": code.slug(), "exit": code.exit(), "meaning": meaning, "text": more}),
    ));
    screen.line(format!("{} (exit code {})", code.slug(), code.exit()));
    screen.line(format!("  {meaning}"));
    for line in more.lines() {
        screen.line(format!("  {line}"));
    }
    Ok(0)
}

/// What is left when the members in `lost` (slots or paths) are gone as well.
///
/// `spare_failures` counts losses in the worst order, so the answer is "kept" only when it is certain.
fn explain_loss(volume: Option<&str>, lost: &[String], screen: &Screen) -> Outcome {
    let client = Client::find(volume)?;
    let status = client.status()?;
    let mut slots = Vec::new();
    let mut names = Vec::new();
    for word in lost {
        let member = find_member(&status, &member_word(word))?;
        if member.state == MemberState::Active
            && let Some(slot) = member.slot
            && !slots.contains(&slot)
        {
            slots.push(slot);
        }
        names.push(member.path.clone().unwrap_or_else(|| word.clone()));
    }
    let needed = slots.len() as u32;
    let doubts = doubts(&status, &slots);
    let is_kept = needed <= status.spare_failures && (needed == 0 || doubts.is_empty());
    let left = status.spare_failures.saturating_sub(needed);
    let rebuild_bytes = status.member_bytes.unwrap_or(0);
    let rate = status.jobs.iter().map(|job| job.rate_bytes_per_s).max();
    let exposed = rate
        .filter(|rate| *rate > 0)
        .map(|rate| rebuild_bytes.div_ceil(rate));
    screen.object(&object(
        "explain_loss",
        Some(&status.volume),
        json!({"lost": names, "slots": slots, "is_data_kept": is_kept,
            "spare_failures": left, "rebuild_bytes": rebuild_bytes, "exposed_s": exposed}),
    ));
    let who = names.join(" and ");
    if needed == 0 {
        screen.line(format!("{who}: not in use, so nothing changes"));
    } else if needed <= status.spare_failures && !doubts.is_empty() {
        screen.line(format!(
            "{} is served without {who}, but not whole:",
            status.volume
        ));
        for doubt in &doubts {
            screen.line(format!("  {doubt}"));
        }
    } else if !is_kept {
        screen.line(format!(
            "{} would be LOST without {who}: it survives {} more in the worst order",
            status.volume, status.spare_failures
        ));
        screen.line("  requests get errors, nothing is written; with the members back it goes on");
    } else {
        screen.line(format!("{} keeps all data without {who}", status.volume));
        screen.line(match left {
            0 => "  one more failure after that would lose the volume".to_owned(),
            n => format!("  {n} more could fail after that, in any order"),
        });
        let time = exposed.map_or(String::new(), |s| format!(", about {}", show_seconds(s)));
        screen.line(format!(
            "  a rebuild writes {} for each member{time}",
            show_bytes(rebuild_bytes)
        ));
    }
    Ok(u8::from(!is_kept))
}

/// What could not be made again without these slots, although enough members are left.
fn doubts(status: &VolumeStatus, slots: &[u32]) -> Vec<String> {
    let mut doubts = Vec::new();
    for member in &status.members {
        let stays = member.slot.is_some_and(|slot| !slots.contains(&slot));
        if stays && member.bad_bytes > 0 {
            let path = member.path.as_deref().unwrap_or("a member");
            doubts.push(format!(
                "{path} has {} bytes on its bad block list",
                member.bad_bytes
            ));
        }
    }
    if let Some(bitmap) = status
        .bitmap
        .as_ref()
        .filter(|bitmap| bitmap.doubtful_regions > 0)
    {
        doubts.push(format!(
            "in {} of {} regions copies or parity are not known to agree",
            bitmap.doubtful_regions, bitmap.regions
        ));
    }
    let unmended = status
        .last_scrub
        .as_ref()
        .map_or(0, ScrubStatus::unmended_bytes);
    if unmended > 0 {
        doubts.push(format!(
            "a scrub found {unmended} bytes that differ and are not mended"
        ));
    }
    doubts
}

/// The member that `word` names by slot, path or serial.
///
/// # Errors
/// `NoSuchMember` with the members there are.
pub fn find_member<'a>(
    status: &'a VolumeStatus,
    word: &str,
) -> Result<&'a plexum_daemon::status::MemberStatus, Problem> {
    let slot: Option<u32> = word.parse().ok();
    status
        .members
        .iter()
        .find(|member| {
            member.path.as_deref() == Some(word)
                || member.serial.as_deref() == Some(word)
                || (slot.is_some() && member.slot == slot)
        })
        .ok_or_else(|| {
            let known: Vec<String> = status
                .members
                .iter()
                .filter_map(|m| m.path.clone())
                .collect();
            Problem::new(
                Code::NoSuchMember,
                format!("{} has no member {word}", status.volume),
            )
            .member(word)
            .hint(format!("its members are:   {}", known.join(" ")))
        })
}

/// One sentence, and more lines, for a code.
fn text_of(code: Code) -> (&'static str, &'static str) {
    match code {
        Code::Usage => (
            "The command line is not understood or contradicts itself.",
            "Nothing was done. `plexum COMMAND --help` shows the options and an example.",
        ),
        Code::NotYet => (
            "Understood, but this version cannot do it.",
            "Nothing was done.",
        ),
        Code::AmbiguousVolume => (
            "Several volumes are served and none was named.",
            "Name one: `plexum status` lists them.",
        ),
        Code::WouldDestroy => (
            "Something was found on a member that would be overwritten.",
            "A file system, a partition table, another array's superblock, or unknown data at its start or end.\n\
             Look at it with `plexum examine MEMBER`. `--force` overwrites it; that cannot be undone.",
        ),
        Code::NotConfirmed => (
            "A step that destroys data was not agreed to.",
            "On a terminal the command asks; in a script give `--yes`. `--dry-run` shows what would be done.",
        ),
        Code::NotProvenZero => (
            "`--assume-clean` on members that are not known to be all zero.",
            "Parity or copies then do not agree, and small writes would spread the fault: after the loss of a member\n\
             wrong data would come back. Leave the option out (a resync runs in the background), or use `--force`\n\
             when you know that the members agree, for example because they already held this very array.",
        ),
        Code::DirtyDegraded => (
            "A parity volume was not stopped cleanly and lacks a member.",
            "Rows that were being written at that moment may give wrong data for the missing member, and nothing can\n\
             tell which content is right. Best way out: bring the missing member back. Otherwise `--force` starts it:\n\
             rows in doubt answer with an error until they are overwritten; `--force-data` answers what is there.",
        ),
        Code::SeveralOwners => (
            "Several sets claim the bytes of a member, and it was not said which is meant.",
            "An array may lie inside of another one, or metadata are left over from an earlier use. Serving the wrong set would write over\n\
             the other one. `plexum examine` shows all of them, with what was written last; `--format md-1.0` (or another format) says\n\
             which one to serve.",
        ),
        Code::LogLost => (
            "Answered writes are only in a log, and the log cannot be used.",
            "With `--log write-back` a write is answered when it is durable in the log. Until the next clean stop the rows\n\
             are older than that. When one member's log is damaged, leave that member out: it is rebuilt from the others.\n\
             `--force` gives up what is only in the log and starts with the old content of those rows.\n\
             md's write journal is a device of its own: name it with the others. Without it the array can only be read, by force.",
        ),
        Code::ReshapeTorn => (
            "A reshape in place was interrupted, and what it was moving may be nowhere but in a backup file.",
            "`mdadm --grow --backup-file` moves data onto themselves. The superblocks say how far it was some time before, so what\n\
             comes after that may be half moved. `--backup-file FILE` reads it from that file. `--force` starts without it: the\n\
             bytes in doubt answer with errors, and with `--force-data` with what is there.",
        ),
        Code::DegradedStart => (
            "A member is missing that was there at the last stop.",
            "Perhaps it was only forgotten on the command line or not plugged in: once the volume is written to\n\
             without it, it has to be brought up to date. `--run-degraded` starts without it.",
        ),
        Code::WouldLoseData => (
            "The step would take away a member that the volume cannot do without.",
            "Rebuild first: `plexum status` says what is missing, `plexum add VOLUME MEMBER` fills an empty slot.",
        ),
        Code::MemberReadOnly => (
            "A member that was to be written is write-protected.",
            "A write blocker, a loop device made with `losetup -r`, a file system mounted read-only, a file without the right to\n\
             write, or an NBD server that takes no writes: `--read-only` serves it as it is, and changes nothing.",
        ),
        Code::ReadOnly => (
            "The volume is served read-only.",
            "Stop it and serve it again without `--read-only` (some foreign formats also need `--write`).",
        ),
        Code::InsecureListen => (
            "The address can be reached from other machines, and the connection has no TLS.",
            "Everybody who reaches it could read and write the volume. `--insecure-listen` allows it all the same.",
        ),
        Code::TooFewMembers => (
            "Fewer members are usable than the volume needs.",
            "`plexum examine MEMBER...` says for each what it is and why it cannot be used; `plexum scan` looks for the rest.",
        ),
        Code::StaleMember => (
            "A member missed writes that the others have.",
            "Its event count is behind: it was failed, removed or away while the volume was written to. It is never\n\
             read. `plexum re-add VOLUME MEMBER` brings it up to date, with a bitmap only what it missed is copied.",
        ),
        Code::ForeignMember => (
            "A member belongs to another array than the others.",
            "`plexum scan` sorts members by the arrays they belong to.",
        ),
        Code::DuplicateMember => (
            "The same member was given twice, or two members claim the same slot.",
            "One of them may be a copy (`cp`, `dd`) of the other. Give only one of them.",
        ),
        Code::SplitBrain => (
            "Two parts of an array each went on without the other.",
            "Both have writes that the other lacks, so they cannot be joined. Decide which part is right, serve exactly\n\
             its members with `--force`, then re-add the others: what only they had is lost.\n\
             A member that was lost long ago looks the same while all those are away with which it was last together:\n\
             the message then names one of them. With it, or without the old member, the volume starts.",
        ),
        Code::NoMetadata => (
            "Nothing that Plexum knows was found on the member.",
            "It may be blank, or the wrong partition or offset was given (`disk.img:p1` is partition 1 of a disk image).",
        ),
        Code::DamagedMetadata => (
            "Metadata was found, but it is damaged.",
            "The message names field, place, what was found and what was expected. With enough other members the\n\
             volume starts without this one; then it can be added anew.",
        ),
        Code::UnsupportedFeature => (
            "The metadata uses a feature that this version must not touch.",
            "Going on could destroy data. `plexum examine` names the feature; `--read-only` may still be possible.",
        ),
        Code::MemberTooSmall => (
            "The member is smaller than its metadata says, or than the volume needs.",
            "A truncated image, or the wrong device. A new member needs at least the size that `plexum status` shows.",
        ),
        Code::NoSuchMember => (
            "The volume has no such member.",
            "Members are named by path, slot number or serial, as in `plexum status`.",
        ),
        Code::WrongState => (
            "The member is in a state that does not allow the step.",
            "For example only failed members and spares can be removed; `plexum fail` comes first.",
        ),
        Code::NoSuchFile => (
            "The path of a member does not exist.",
            "`missing` leaves a slot empty; `create --member-size SIZE` makes files that do not exist.",
        ),
        Code::IoError => (
            "Reading or writing failed.",
            "The kernel's log (`dmesg`) often says more about a device.",
        ),
        Code::NoSpace => (
            "No space is left in the file system that holds a file.",
            "Sparse members need space when they are written to. Nothing else is wrong with the member.",
        ),
        Code::DeviceGone => (
            "A member vanished: unplugged, unlinked or truncated.",
            "Writes to it would be lost, so it is not used any more.",
        ),
        Code::NotPermitted => (
            "Access to a file, device or socket is not allowed.",
            "Devices need root or membership in the group that owns them (often `disk`).",
        ),
        Code::UnknownToken => (
            "Nobody knows the token that was shown to the page or to the API.",
            "Tokens are in the files that `[[page.token]]` in plexum.toml names; a change there counts from the daemon's next\n\
             start on.",
        ),
        Code::TooManyGuesses => (
            "From one address too many tokens were shown that nobody knows.",
            "One more is looked at every two seconds. A program that keeps asking with an old token is stopped first.",
        ),
        Code::RoleMissing => (
            "Whoever asks has no role at the daemon that allows it.",
            "Roles are given to groups by `[roles]` and to tokens by `[[page.token]]` in plexum.toml; root and the daemon's own user administer.",
        ),
        Code::NotDelivered => (
            "A message did not arrive where it was sent.",
            "What the transport said is in the message. Address, token and rights are in the configuration; `plexum config check` reads it.",
        ),
        Code::Busy => (
            "A member or socket is in use by another process.",
            "Another Plexum, the kernel's md (`/proc/mdstat`; udev assembles arrays by itself), or a mounted file system.",
        ),
        Code::SocketInUse => (
            "A running server already uses the name or the socket.",
            "`plexum status` shows what runs. Another name: `serve --name`; another socket: `serve --socket`.",
        ),
        Code::JobRunning => (
            "Work of that kind runs already.",
            "`plexum status` shows how far it is; a scrub is stopped with `plexum scrub VOLUME --stop`.",
        ),
        Code::NoSuchVolume => (
            "No volume of that name is served by this user.",
            "`plexum status` lists those that are. Servers of other users are not seen.",
        ),
        Code::NoSuchIncident => (
            "No incident of that number is open.",
            "`plexum incident` lists those that are open or were today. What is over cannot be acknowledged.",
        ),
        Code::NoServer => (
            "The server did not answer.",
            "It may have been killed; its members are unharmed and can be served again.",
        ),
        Code::Bug => (
            "A bug in Plexum.",
            "Please report it with the message, the command line and the version.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_sentence_and_more() {
        for code in Code::ALL {
            let (meaning, more) = text_of(*code);
            assert!(
                meaning.ends_with('.') && meaning.len() > 10,
                "{}",
                code.slug()
            );
            assert!(more.len() > 10, "{}", code.slug());
        }
    }
}
