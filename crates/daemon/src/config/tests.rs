use std::time::Duration;

use super::*;
use crate::service::DegradedStart;

/// What is read of these files, the first of which is `plexum.toml`; and what is wrong, a line each.
fn read(main: &str, others: &[(&str, &str)]) -> (Config, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plexum.toml");
    std::fs::write(&file, main).unwrap();
    std::fs::create_dir(folder.path().join("conf.d")).unwrap();
    for (name, text) in others {
        std::fs::write(folder.path().join("conf.d").join(name), text).unwrap();
    }
    let (config, problems) = Config::read(&ConfigFiles::named(file));
    let shown = folder.path().display().to_string() + "/";
    let lines = problems
        .iter()
        .map(|one| one.to_string().replace(&shown, ""));
    (config, lines.collect())
}

#[test]
fn without_a_file_everything_is_as_usual_unless_somebody_has_named_it() {
    let folder = tempfile::tempdir().unwrap();
    let from = Surroundings {
        xdg_config_home: Some(folder.path().into()),
        ..Surroundings::default()
    };
    let (config, problems) = Config::read(&ConfigFiles::locate(&from));
    assert_eq!((config, problems), (Config::default(), vec![]));
    let named = ConfigFiles::named(folder.path().join("nothere.toml"));
    let (_, problems) = Config::read(&named);
    let told = problems[0].to_string();
    assert!(
        told.ends_with("nothere.toml: no such file or directory"),
        "{told}"
    );
}

#[test]
fn all_files_count_and_of_two_that_say_the_same_the_later_one() {
    let main = "[start]\nwait = \"1m\"\ndegraded = \"never\"\n[volume.nas]\nexpect-missing = 1\n";
    let later = [
        ("20.toml", "[start]\nwait = \"5s\"\n"),
        (
            "10.toml",
            "[start]\nwait = \"9s\"\n[[alarm.channel]]\nname = \"own\"\nkind = \"program\"\ncommand = [\"/bin/true\"]\n",
        ),
        (".20.toml.swp", "no"),
        ("README", "no"),
    ];
    let (config, problems) = read(main, &later);
    assert_eq!(problems, [""; 0]);
    assert_eq!(config.start.wait, Some(Duration::from_secs(5)));
    assert_eq!(config.start.degraded, Some(DegradedStart::Never));
    assert_eq!(config.alarm.expected_missing_of("nas", "0a"), 1);
    let names: Vec<&str> = config
        .alarm
        .channels
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(names, ["journal", "own"]);
}

#[test]
fn what_is_wrong_is_one_line_with_file_and_place_and_keeps_no_other_table_from_counting() {
    let channel =
        "[[alarm.channel]]\nname = \"own\"\nkind = \"program\"\ncommand = [\"/bin/true\"]\n";
    for (text, told) in [
        (
            "[start]\nwaits = \"5s\"\n",
            "plexum.toml: line 2: waits: unknown field `waits`",
        ),
        (
            "[starts]\nwait = \"5s\"\n",
            "plexum.toml: line 1: [starts]: unknown field `starts`",
        ),
        (
            "[start]\nwait = \"5\"\n",
            "plexum.toml: line 2: wait: a time up to 1h",
        ),
        (
            "[start]\nwait = 5\n",
            "plexum.toml: line 2: wait: invalid type",
        ),
        (
            "[start]\ndegraded = \"maybe\"\n",
            "plexum.toml: line 2: degraded: maybe: it is never",
        ),
        (
            "[volume.nas]\nexpected = 1\n",
            "plexum.toml: line 2: expected: unknown field",
        ),
        (
            "[volume.nas]\nexpect-missing = -1\n",
            "plexum.toml: line 2: expect-missing: invalid value",
        ),
    ] {
        let (config, problems) = read(&format!("{text}{channel}"), &[]);
        assert_eq!(problems.len(), 1, "{text}: {problems:?}");
        assert!(problems[0].starts_with(told), "{}", problems[0]);
        assert_eq!(
            config.alarm.channels.len(),
            2,
            "{text}: who is told is still told"
        );
    }
    let (_, problems) = read("[start\n", &[("x.toml", channel), ("y.toml", channel)]);
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(
        problems[0].starts_with("plexum.toml: line 1: "),
        "{}",
        problems[0]
    );
    assert_eq!(
        problems[1],
        "conf.d/y.toml: two channels are called \"own\""
    );
}

#[test]
fn the_files_follow_the_environment_then_root_then_the_home() {
    let at = |xdg: Option<&str>, user_id, home: Option<&str>| {
        let files = ConfigFiles::locate(&Surroundings {
            xdg_config_home: xdg.map(Into::into),
            home: home.map(Into::into),
            user_id,
        });
        files.main().map(|path| path.display().to_string())
    };
    assert_eq!(
        at(Some("/x"), 0, None).as_deref(),
        Some("/x/plexum/plexum.toml")
    );
    assert_eq!(
        at(None, 0, Some("/root")).as_deref(),
        Some("/etc/plexum/plexum.toml")
    );
    let home = at(None, 1000, Some("/u"));
    assert_eq!(home.as_deref(), Some("/u/.config/plexum/plexum.toml"));
    assert_eq!(at(None, 1000, None), None);
}

#[test]
fn a_schedule_of_scrubs_is_read_and_what_is_wrong_with_it_leaves_the_rest() {
    let main = "[start]\nwait = \"5s\"\n[scrub]\nevery = \"30d\"\nwithin = \"01:00-06:00\"\n";
    let (config, problems) = read(main, &[("9.toml", "[scrub]\nrate = \"50M\"\n")]);
    assert_eq!(problems, [""; 0]);
    let scrub = config.scrub.unwrap();
    assert_eq!(scrub.every.seconds(), 30 * 86_400);
    assert!(scrub.rate.is_some() && !scrub.within.is_always());
    let wrong = "[start]\nwait = \"5s\"\n[scrub]\nevery = \"often\"\n";
    let (config, problems) = read(wrong, &[]);
    assert!(config.scrub.is_none() && config.start.wait.is_some());
    assert!(
        problems[0].starts_with("plexum.toml: line 4: every: "),
        "{problems:?}"
    );
    let (_, problems) = read("[scrub]\nrate = \"50M\"\n", &[]);
    assert!(problems[0].contains("says not how often"), "{problems:?}");
}

/// Lines that show what could stand there begin with "#" and no blank behind it.
#[test]
fn what_the_packages_file_shows_could_stand_there() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/etc/plexum.toml"
    );
    let shown = std::fs::read_to_string(path).unwrap();
    assert_eq!(read(&shown, &[]), (Config::default(), Vec::new()));
    let lines = shown.lines().map(|line| match line.strip_prefix('#') {
        Some(key) if !key.starts_with(' ') => key,
        _ => line,
    });
    let meant = lines.collect::<Vec<_>>().join("\n");
    let (config, problems) = read(&meant, &[]);
    assert_eq!(problems, [""; 0]);
    assert!(config.scrub.is_some() && config.start.wait.is_some());
    assert!(config.alarm.channels.len() > 2 && config.alarm.heartbeat.is_some());
}

#[test]
fn an_address_for_nvme_that_others_reach_has_to_be_wished_for_and_hosts_are_those_of_the_list() {
    use plexum_nvme::server::Allowed;
    let address = "[nvme]\nlisten = \"192.0.2.1:4420\"\n";
    let (config, problems) = read(address, &[]);
    assert_eq!(config.nvme.listen(), None);
    assert!(
        problems[0].contains("insecure-listen = true"),
        "{problems:?}"
    );
    let wished = format!("{address}insecure-listen = true\n");
    for (hosts, expected) in [
        ("", Allowed::All),
        ("allow-hosts = []\n", Allowed::Only(vec![])),
        (
            "allow-hosts = [\"nqn.a\"]\n",
            Allowed::Only(vec!["nqn.a".to_owned()]),
        ),
    ] {
        let (config, problems) = read(&format!("{wished}{hosts}"), &[]);
        assert_eq!(problems, Vec::<String>::new());
        let listen = config.nvme.listen().unwrap();
        assert_eq!(listen.address.to_string(), "192.0.2.1:4420");
        assert_eq!(listen.allowed, expected);
    }
}
