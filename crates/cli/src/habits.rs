//! What users of other tools type from habit, answered with the right command.
//!
//! Invariants: pure functions over the words typed; an answer never runs anything, it only says what to type.

use plexum_daemon::problem::{Code, Problem};

/// Looks for habits before the command line is parsed. `words` is without the program's name.
#[must_use]
pub fn advise(words: &[String]) -> Option<Problem> {
    let first = words.first()?.as_str();
    mdadm_mode(first, words)
        .or_else(|| count_option(words))
        .or_else(|| other_tool(first, words))
}

fn answer(typed: &str, whose: &str, say: &str, command: &str) -> Problem {
    Problem::new(
        Code::Usage,
        format!("{typed} is {whose}; plexum does not know it"),
    )
    .hint(format!("{say}   {command}"))
}

/// mdadm's modes are options: `--create /dev/md0 ...`.
fn mdadm_mode(first: &str, words: &[String]) -> Option<Problem> {
    let rest = |from: usize| words.get(from..).unwrap_or_default().join(" ");
    let (say, command) = match first {
        "-C" | "--create" | "--build" | "-B" => (
            "to make a volume:",
            "plexum create NAME --level 5 a.img b.img c.img".to_owned(),
        ),
        "-A" | "--assemble" | "-I" | "--incremental" => (
            "to assemble and serve members:",
            "plexum serve MEMBER...".to_owned(),
        ),
        "-E"
        | "--examine"
        | "-X"
        | "--examine-bitmap"
        | "--examine-badblocks"
        | "-Q"
        | "--query" => (
            "to see what is on members:",
            format!("plexum examine {}", non_empty(&rest(1), "MEMBER...")),
        ),
        "-D" | "--detail" => (
            "for the state of a volume:",
            "plexum status VOLUME".to_owned(),
        ),
        "-S" | "--stop" => ("to stop a volume:", "plexum stop VOLUME".to_owned()),
        "-s" | "--scan" => ("to find all sets:", "plexum scan DIR".to_owned()),
        "-G" | "--grow" => (
            "growing comes later; settings are changed with:",
            "plexum set VOLUME NAME=VALUE".to_owned(),
        ),
        "-F" | "--monitor" | "--follow" => {
            ("to see what happens:", "plexum events --follow".to_owned())
        }
        "-a" | "--add" => ("to add a member:", "plexum add VOLUME MEMBER".to_owned()),
        "-r" | "--remove" => (
            "to let go of a member:",
            "plexum remove VOLUME MEMBER".to_owned(),
        ),
        "--fail" | "--set-faulty" => (
            "to treat a member as failed:",
            "plexum fail VOLUME MEMBER".to_owned(),
        ),
        "--replace" => (
            "to replace a member:",
            "plexum replace VOLUME OLD NEW".to_owned(),
        ),
        "--re-add" => (
            "to take a member back:",
            "plexum re-add VOLUME MEMBER".to_owned(),
        ),
        "--zero-superblock" => (
            "to use the member anew:",
            "plexum create NAME --force ... MEMBER...".to_owned(),
        ),
        _ => return None,
    };
    Some(answer(first, "a mode of mdadm", say, &command))
}

fn non_empty<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}

/// `-n 4`, `-n4`, `--raid-devices=4`: mdadm counts members, here they are counted by naming them.
fn count_option(words: &[String]) -> Option<Problem> {
    if words.first().is_none_or(|word| word != "create") {
        return None;
    }
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    for (at, word) in words.iter().enumerate() {
        let next_is_number = words.get(at + 1).is_some_and(|next| is_number(next));
        let typed = match word.as_str() {
            "-n" | "--raid-devices" | "--raid-disks" if next_is_number => {
                format!("{word} {}", words[at + 1])
            }
            "-x" | "--spare-devices" => word.clone(),
            _ if word.strip_prefix("-n").is_some_and(is_number)
                || word.starts_with("--raid-devices=")
                || word.starts_with("--raid-disks=")
                || word.starts_with("--spare-devices=")
                || word.strip_prefix("-x").is_some_and(is_number) =>
            {
                word.clone()
            }
            _ => continue,
        };
        if typed.starts_with("-x") || typed.starts_with("--spare") {
            return Some(answer(
                &typed,
                "mdadm's number of spares",
                "name each spare:",
                "plexum create NAME --level 5 a b c --spare d",
            ));
        }
        return Some(
            answer(
                &typed,
                "mdadm's number of members",
                "members are counted by naming them, `missing` for an empty slot:",
                "plexum create NAME --level 5 a b c missing",
            )
            .why("-n means --dry-run here"),
        );
    }
    None
}

/// Commands of zpool, gmirror, gvinum and others.
fn other_tool(first: &str, words: &[String]) -> Option<Problem> {
    let rest = words.get(1..).unwrap_or_default();
    let arguments = |otherwise: &str| {
        if rest.is_empty() {
            otherwise.to_owned()
        } else {
            rest.join(" ")
        }
    };
    let (whose, say, command) = match first {
        "import" | "assemble" | "start" | "load" => (
            "a command of other tools",
            "to find sets, then to serve one:",
            "plexum scan DIR   and   plexum serve MEMBER...".to_owned(),
        ),
        "offline" | "deactivate" => (
            "a command of zpool and gmirror",
            "to take a member out of use:",
            format!("plexum fail {}", arguments("VOLUME MEMBER")),
        ),
        "online" | "activate" | "reattach" => (
            "a command of zpool and gmirror",
            "to take a member back:",
            format!("plexum re-add {}", arguments("VOLUME MEMBER")),
        ),
        "attach"
            if rest.iter().filter(|word| !word.starts_with('-')).count() >= 3
                && !rest.iter().any(|word| word.starts_with("--dataset")) =>
        {
            (
                "a form of zpool",
                "to add a member:",
                format!("plexum add {} {}", rest[0], rest[rest.len() - 1]),
            )
        }
        "resilver" | "rebuild" => (
            "a command of zpool and gmirror",
            "a rebuild starts by itself when a member is added:",
            "plexum add VOLUME MEMBER".to_owned(),
        ),
        "insert" => (
            "a command of gmirror",
            "to add a member:",
            format!("plexum add {}", arguments("VOLUME MEMBER")),
        ),
        "forget" => (
            "a command of gmirror",
            "to let go of a failed member:",
            "plexum remove VOLUME MEMBER".to_owned(),
        ),
        "label" => (
            "a command of gmirror",
            "to make a mirror:",
            "plexum create NAME --level 1 a.img b.img".to_owned(),
        ),
        "configure" => (
            "a command of gmirror",
            "to change a setting:",
            "plexum set VOLUME balance=load".to_owned(),
        ),
        "export" => (
            "a command of zpool",
            "to stop a volume:",
            format!("plexum stop {}", arguments("VOLUME")),
        ),
        "iostat" => (
            "a command of zpool",
            "for rates and latency:",
            "plexum stats VOLUME --interval 1".to_owned(),
        ),
        "list" | "ls" | "l" | "lv" | "lp" | "lsd" | "detail" | "mdstat" => (
            "a command of other tools",
            "for the state of volumes:",
            "plexum status".to_owned(),
        ),
        "history" => (
            "a command of zpool",
            "to see what happened:",
            "plexum events".to_owned(),
        ),
        "check" | "checkparity" | "verify" => (
            "a command of other tools",
            "to compare copies or parity:",
            "plexum scrub VOLUME --wait".to_owned(),
        ),
        "repair" | "rebuildparity" | "sync" => (
            "a command of other tools",
            "to mend what differs:",
            "plexum scrub VOLUME --repair --wait".to_owned(),
        ),
        "destroy" | "clear" | "labelclear" | "delete" => (
            "a command of zpool and gmirror",
            "a stopped volume is its members: delete the files, or make something new of them with",
            "plexum create NAME --force ...".to_owned(),
        ),
        "dump" => (
            "a command of gmirror",
            "to see what is on members:",
            format!("plexum examine {}", arguments("MEMBER...")),
        ),
        "help" => (
            "a word of other tools",
            "for help:",
            if rest.is_empty() {
                "plexum --help".to_owned()
            } else {
                format!("plexum {} --help", rest[0])
            },
        ),
        _ => return None,
    };
    Some(answer(first, whose, say, &command))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        advise(&words).map_or(String::new(), |problem| problem.hints.join("\n"))
    }

    #[test]
    fn mdadm_zpool_and_gmirror_users_get_the_right_command() {
        for (typed, command) in [
            ("--create /dev/md0 -l5 -n3 a b c", "plexum create NAME"),
            ("-E a b", "plexum examine a b"),
            ("-D /dev/md0", "plexum status VOLUME"),
            ("-S /dev/md0", "plexum stop VOLUME"),
            ("create nas -l 5 -n 3 a b c", "a b c missing"),
            ("create nas -l 5 -n3 a b c", "a b c missing"),
            ("create nas --raid-devices=3 a b c", "a b c missing"),
            ("create nas -l 5 -x 1 a b c d", "--spare d"),
            ("import", "plexum scan DIR"),
            ("offline tank sda", "plexum fail tank sda"),
            ("attach tank sda sdb", "plexum add tank sdb"),
            ("label -b load gm0 a b", "--level 1"),
            ("checkparity", "plexum scrub"),
            ("help create", "plexum create --help"),
        ] {
            assert!(hint(typed).contains(command), "{typed}: {}", hint(typed));
        }
    }

    #[test]
    fn own_commands_are_left_alone() {
        for typed in [
            "create nas --level 5 a b c -n",
            "create nas -n --level 5 a b c",
            "status",
            "attach nas /mnt",
            "remove nas a",
            "--help",
        ] {
            assert_eq!(hint(typed), "", "{typed}");
        }
    }
}
