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
        .or_else(|| own_command(first, words))
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
            "for more members, another level, layout or strip:",
            "plexum grow VOLUME --add MEMBER...".to_owned(),
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
            "nothing is erased by a command of its own; to see what is on a member:",
            format!("plexum examine {}", non_empty(&rest(1), "MEMBER...")),
        ),
        "-W" | "--wait" => (
            "to wait for what runs, look until it is gone:",
            "plexum status VOLUME --watch".to_owned(),
        ),
        "-o" | "--readonly" => (
            "to serve without writing:",
            "plexum serve MEMBER... --read-only".to_owned(),
        ),
        "-R" | "--run" => (
            "to start with members missing:",
            "plexum serve MEMBER... --run-degraded".to_owned(),
        ),
        "--manage" | "--misc" => ("for all commands:", "plexum --help".to_owned()),
        _ => return array_first(first, words),
    };
    Some(answer(first, "a mode of mdadm", say, &command))
}

/// mdadm's `/dev/md0 --fail /dev/sdb`: the array comes before the mode.
fn array_first(first: &str, words: &[String]) -> Option<Problem> {
    if !first.starts_with("/dev/") {
        return None;
    }
    let mode = words.get(1)?.as_str();
    let member = words.get(2).map_or("MEMBER", String::as_str);
    let command = match mode {
        "-f" | "--fail" | "--set-faulty" => "fail",
        "-a" | "--add" | "--add-spare" => "add",
        "-r" | "--remove" => "remove",
        "--re-add" => "re-add",
        _ => return None,
    };
    let whole = format!("plexum {command} VOLUME {member}");
    let say = "with the name of the volume, as status shows it:";
    Some(answer(mode, "a mode of mdadm", say, &whole))
}

/// Options of other tools behind a command that is ours as well.
fn own_command(first: &str, words: &[String]) -> Option<Problem> {
    let has = |option: &str| words.iter().any(|word| word == option);
    let others = words.iter().skip(1).filter(|word| !word.starts_with('-'));
    let others: Vec<&str> = others.map(String::as_str).collect();
    let volume = others.first().copied().unwrap_or("VOLUME");
    let kind = others.get(1).copied().unwrap_or_default();
    let level = match kind {
        "mirror" => Some(("1", 2)),
        "raidz" | "raidz1" => Some(("5", 3)),
        "raidz2" => Some(("6", 4)),
        _ => None,
    };
    let (typed, say, command) = match (first, level) {
        ("create", Some((level, _))) if !has("-l") && !has("--level") => {
            let members = match others.get(2..) {
                Some(members) if !members.is_empty() => members.join(" "),
                _ => "MEMBER...".to_owned(),
            };
            let command = format!("plexum create {volume} --level {level} {members}");
            (kind, "the level is an option:", command)
        }
        ("scrub", _) if has("-s") || has("-p") => {
            let command = format!("plexum scrub {volume} --stop");
            ("scrub -s", "to stop a scrub:", command)
        }
        ("scrub", _) if has("-w") => {
            let command = format!("plexum scrub {volume} --wait");
            ("scrub -w", "to wait for its end:", command)
        }
        ("status", _) if has("-x") => (
            "status -x",
            "to see what is wrong:",
            "plexum status".to_owned(),
        ),
        ("add" | "replace" | "remove" | "attach" | "create", _)
            if has("-f") && first != "create" =>
        {
            let command = format!("plexum {first} --help");
            ("-f", "nothing is forced by a short option:", command)
        }
        _ => return None,
    };
    Some(answer(typed, "a form of zpool", say, &command))
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
            format!("plexum fail {}", two(rest)),
        ),
        "online" | "activate" | "reattach" => (
            "a command of zpool and gmirror",
            "to take a member back:",
            format!("plexum re-add {}", two(rest)),
        ),
        "attach"
            if rest.iter().filter(|word| !word.starts_with('-')).count() >= 3
                && !rest.iter().any(|word| {
                    [
                        "--dataset",
                        "--reconnect",
                        "--by",
                        "--timeout",
                        "--connections",
                    ]
                    .contains(&word.split('=').next().unwrap_or_default())
                }) =>
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
            format!("plexum add {}", two(rest)),
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
            format!("plexum stop {}", one(rest)),
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
        "clear" => (
            "a command of zpool and gmirror",
            "errors are counted from each start of the server; to take a failed member back:",
            format!("plexum re-add {}", two(rest)),
        ),
        "destroy" | "delete" => (
            "a command of zpool and gmirror",
            "nothing is erased: a volume that is stopped stays on its members. To stop it:",
            format!("plexum stop {}", one(rest)),
        ),
        "get" | "properties" => (
            "a command of zpool",
            "to see everything about a volume:",
            "plexum status -v".to_owned(),
        ),
        "clearlog" | "trim" | "initialize" | "checkpoint" | "upgrade" | "split" | "reopen" => (
            "a command of zpool",
            "there is nothing like it; for all commands:",
            "plexum --help".to_owned(),
        ),
        "labelclear" => (
            "a command of zpool",
            "nothing is erased by a command of its own; to see what is on a member:",
            "plexum examine MEMBER".to_owned(),
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

/// A volume out of what was typed, without the options of others.
fn one(rest: &[String]) -> &str {
    let mut words = rest.iter().filter(|word| !word.starts_with('-'));
    words.next().map_or("VOLUME", String::as_str)
}

/// A volume and a member out of what was typed, without the options of others.
fn two(rest: &[String]) -> String {
    let mut words = rest.iter().filter(|word| !word.starts_with('-'));
    let volume = words.next().map_or("VOLUME", String::as_str);
    let member = words.next().map_or("MEMBER", String::as_str);
    format!("{volume} {member}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    use crate::args::Cli;

    /// Whether the command line takes an advised command, with a word for what only the user knows.
    fn is_accepted(command: &str) -> Result<(), String> {
        let words = command.split_whitespace().map(|word| {
            let word = word.trim_end_matches("...");
            match word {
                "NAME=VALUE" => "balance=load",
                _ if word.contains('{') => "1",
                _ => word,
            }
        });
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        let parsed = Cli::try_parse_from(&words);
        match parsed {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == clap::error::ErrorKind::DisplayHelp => Ok(()),
            Err(error) => Err(format!("{command}: {error}")),
        }
    }

    #[test]
    fn every_answer_to_a_habit_is_a_command_that_is_accepted() {
        for typed in [
            "--create /dev/md0",
            "-A",
            "-I x",
            "-E a b",
            "-X a",
            "-D /dev/md0",
            "-S /dev/md0",
            "-s",
            "-G",
            "-F",
            "-a",
            "-r",
            "--fail",
            "--replace",
            "--re-add",
            "--zero-superblock a",
            "-W",
            "-o",
            "-R",
            "--manage",
            "/dev/md0 --fail /dev/sdb",
            "/dev/md0 -a /dev/sdb",
            "/dev/md0 -r x",
            "/dev/md0 --re-add x",
            "create nas -l 5 -n 3 a b c",
            "create nas -x 1 a b",
            "create tank mirror a b",
            "create tank raidz2 a b c d",
            "create tank raidz",
            "scrub -s tank",
            "scrub -w tank",
            "status -x",
            "replace -f tank a b",
            "import",
            "assemble",
            "start",
            "offline -f tank a",
            "offline",
            "online tank a",
            "deactivate gm0 a",
            "activate gm0 a",
            "attach tank a b",
            "resilver tank",
            "rebuild gm0 a",
            "insert gm0 a",
            "insert",
            "label gm0 a b",
            "configure",
            "export tank",
            "export",
            "iostat 1",
            "list",
            "lv",
            "detail",
            "check",
            "verify",
            "repair",
            "sync",
            "clear",
            "clear tank sda",
            "destroy -f tank",
            "labelclear a",
            "delete x",
            "dump a",
            "dump",
            "help",
            "help create",
            "get all tank",
            "trim tank",
            "upgrade",
        ] {
            let words: Vec<String> = typed.split(' ').map(str::to_owned).collect();
            let problem = advise(&words).unwrap_or_else(|| panic!("{typed} has no answer"));
            assert!(!problem.hints.is_empty(), "{typed}");
            for hint in &problem.hints {
                let command = &hint[hint.find("plexum ").unwrap()..];
                for command in command.split("   and   ") {
                    is_accepted(command).unwrap();
                }
            }
        }
    }

    /// Every command that stands behind three blanks in a text of the program, wherever that is.
    #[test]
    fn every_command_that_the_program_advises_is_accepted() {
        let mut count = 0;
        for folder in ["src", "../daemon/src", "../engine/src"] {
            let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
            for text in sources(&root) {
                let program = text.split("#[cfg(test)]").next().unwrap();
                for rest in program.split(":   plexum ").skip(1) {
                    let end = rest.find(['"', '\\', '\n']).unwrap();
                    let line = format!("plexum {}", &rest[..end]);
                    if line.contains(", ") {
                        continue; // a sentence
                    }
                    for command in line.split("   and   ") {
                        is_accepted(command).unwrap();
                        count += 1;
                    }
                }
            }
        }
        assert!(count > 40, "only {count} were found");
    }

    fn sources(folder: &std::path::Path) -> Vec<String> {
        let mut texts = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                texts.extend(sources(&path));
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                texts.push(std::fs::read_to_string(&path).unwrap());
            }
        }
        texts
    }

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
