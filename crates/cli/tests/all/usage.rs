//! The program as a user meets it: words, messages and exit codes, without any volume.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

struct Run {
    exit: i32,
    out: String,
    err: String,
}

/// Runs plexum with a runtime folder of its own and no terminal.
fn plexum(words: &str) -> Run {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("usage-run");
    std::fs::create_dir_all(&folder).unwrap();
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(env!("CARGO_BIN_EXE_plexum"))
        .args(words.split_whitespace())
        .env("XDG_RUNTIME_DIR", &folder)
        .env("XDG_STATE_HOME", &folder)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    Run {
        exit: status.code().unwrap(),
        out: String::from_utf8(stdout).unwrap(),
        err: String::from_utf8(stderr).unwrap(),
    }
}

#[test]
fn every_command_of_the_help_has_a_help_of_its_own_with_an_example() {
    let help = plexum("--help");
    assert_eq!(help.exit, 0);
    let commands: Vec<&str> = help
        .out
        .lines()
        .skip_while(|line| *line != "Make and look:")
        .take_while(|line| *line != "Options:")
        .filter(|line| line.starts_with("  "))
        .map(|line| line.split_whitespace().next().unwrap())
        .collect();
    assert!(commands.len() > 15, "{commands:?}");
    for command in commands {
        let run = plexum(&format!("{command} --help"));
        assert_eq!(run.exit, 0, "{command}");
        assert!(
            run.out.contains(&format!("Example:\n  plexum {command}")),
            "{command}: {}",
            run.out
        );
    }
}

#[test]
fn wrong_words_end_with_exit_code_2_and_one_error_line() {
    for words in [
        "",
        "frobnicate",
        "create",
        "create nas --level 5 --strip 3x a b c",
        "create nas -l 5 -n 3 a b c",
        "serve",
        "status one two",
        "scrub --repair --stop",
        "set nas",
        "explain no_such_code",
        "--create /dev/md0",
        "import tank",
        "demo --level 0",
        "demo --level 6 --members 3",
        "bench nonsense",
        "sim --trace",
        "grow",
        "debug nonsense",
    ] {
        let run = plexum(words);
        assert_eq!(run.exit, 2, "{words}: {}{}", run.out, run.err);
        assert_eq!(run.out, "", "{words}");
        assert!(run.err.starts_with("error: "), "{words}: {}", run.err);
        assert_eq!(run.err.matches("error:").count(), 1, "{words}: {}", run.err);
    }
}

#[test]
fn a_wrong_command_is_answered_with_the_one_meant() {
    assert!(plexum("satus").err.contains("'status'"));
    assert!(
        plexum("create nas -n 4 --level 5 a b c d")
            .err
            .contains("a b c missing")
    );
    assert!(plexum("-D /dev/md0").err.contains("plexum status VOLUME"));
    assert!(
        plexum("label gm0 a b")
            .err
            .contains("plexum create NAME --level 1")
    );
}

#[test]
fn without_a_server_commands_on_volumes_end_with_exit_code_7() {
    for words in [
        "status nas",
        "stop",
        "stop nas",
        "fail nas 1",
        "add nas ./x.img",
        "remove nas 1",
        "re-add nas 1",
        "replace nas 1 ./x.img",
        "scrub",
        "set balance=load",
        "stats",
        "events",
        "explain nas --if 1",
        "debug requests",
    ] {
        let run = plexum(words);
        assert_eq!(run.exit, 7, "{words}: {}", run.err);
        assert!(
            run.err.contains("plexum serve MEMBER"),
            "{words}: {}",
            run.err
        );
    }
    let run = plexum("status");
    assert_eq!(run.err, "");
    assert!(run.out.starts_with("no volume is served"));
    // Servers of other tests may run, in folders of their own: that is told.
    let is_elsewhere = run.out.contains("to see it:");
    assert_eq!(run.exit, if is_elsewhere { 7 } else { 0 }, "{}", run.out);
}

#[test]
fn errors_in_json_are_one_object_on_standard_error() {
    for (words, code, exit) in [
        ("stop nas --json", "no_such_volume", 7),
        ("--json frobnicate", "usage", 2),
    ] {
        let run = plexum(words);
        assert_eq!(
            (run.exit, run.out.as_str()),
            (exit, ""),
            "{words}: {}",
            run.err
        );
        let value: serde_json::Value = serde_json::from_str(&run.err).unwrap();
        assert_eq!(value["error"]["code"], code, "{words}");
        assert_eq!(value["error"]["exit"], exit, "{words}");
        assert!(value["error"]["message"].is_string());
        assert!(value["error"].get("member").is_some() && value["error"].get("hint").is_some());
    }
}

#[test]
fn every_code_is_explained_in_words_and_in_json() {
    let list = plexum("explain --json");
    let slugs: Vec<String> = list
        .out
        .lines()
        .map(|line| {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(
                (&value["version"], &value["kind"]),
                (&1.into(), &"code".into())
            );
            value["code"].as_str().unwrap().to_owned()
        })
        .collect();
    assert!(slugs.len() > 25);
    for slug in slugs {
        let run = plexum(&format!("explain {slug}"));
        assert_eq!(run.exit, 0);
        assert!(
            run.out.starts_with(&format!("{slug} (exit code ")),
            "{}",
            run.out
        );
    }
    assert_eq!(plexum("explain stale-member").exit, 0);
    for finding in [
        "member_faulty",
        "bad_blocks",
        "slow_member",
        "mismatch",
        "space_short",
        "space_refused",
        "not_proven",
    ] {
        let run = plexum(&format!("explain {finding}"));
        assert_eq!(run.exit, 0, "{}", run.err);
    }
}

#[test]
fn completions_and_manual_pages_name_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let run = plexum(&format!("completions {shell}"));
        assert_eq!(run.exit, 0);
        assert!(run.out.contains("re-add"), "{shell}");
    }
    let page = plexum("man");
    assert!(page.out.contains(".TH plexum 1"), "{}", &page.out[..200]);
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("man");
    let run = plexum(&format!("man --out {}", folder.display()));
    assert_eq!(run.exit, 0);
    for name in [
        "plexum.1",
        "plexum-create.1",
        "plexum-re-add.1",
        "plexum-grow.1",
        "plexum-lab-work.1",
    ] {
        let page = std::fs::read_to_string(folder.join(name)).unwrap();
        let has = |title: &str| page.contains(title);
        assert!(has("EXIT STATUS") && has(".SH FILES"), "{name}");
    }
}

#[test]
fn the_version_is_printed() {
    let run = plexum("--version");
    assert_eq!(
        run.out.trim(),
        format!("plexum {}", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn a_bug_ends_with_exit_code_70_and_asks_for_a_report() {
    let run = plexum("debug bug");
    assert_eq!(run.exit, 70, "{}", run.err);
    assert!(
        run.err.contains("error: a bug in Plexum") && run.err.contains("report"),
        "{}",
        run.err
    );
    let run = plexum("debug bug --json");
    assert_eq!(run.exit, 70, "{}", run.err);
    let last = run.err.lines().last().unwrap();
    let value: serde_json::Value = serde_json::from_str(last).unwrap();
    assert_eq!(value["error"]["code"], "bug", "{value}");
}

#[test]
fn a_name_that_no_volume_can_have_is_refused_before_anything_is_opened() {
    for words in [
        "serve a --name x/y",
        "serve a --name .x",
        "create x:y --level 1 a b",
    ] {
        let run = plexum(words);
        assert_eq!(run.exit, 2, "{words}: {}", run.err);
        assert!(
            run.err.contains("is no name for a volume"),
            "{words}: {}",
            run.err
        );
    }
    let run = plexum("scan nowhere");
    assert_eq!(run.exit, 4, "{}", run.err);
    assert!(!run.err.contains("missing"), "{}", run.err);
}
