//! The part `[alarm]` of the configuration: what it gives, and what is said when it is wrong.

use plexum_incidents::channel::smtp::MailTls;
use plexum_incidents::channel::webhook::Service;
use plexum_incidents::config::{AlarmConfig, AlarmPart, HeartbeatBy, HeartbeatConfig, Transport};
use plexum_incidents::finding::Severity;

const WHOLE: &str = r#"
[volumes.home]
members = "for others to read"

[alarm]
heartbeat = { url = "https://example.com/ping/nas", every = "5m" }

[[alarm.channel]]
name = "root"
kind = "sendmail"
to = "root"

[[alarm.channel]]
name = "phone"
kind = "ntfy"
url = "https://example.com/nas"
token-file = "/etc/plexum/ntfy.token"
least = "critical"

[[alarm.channel]]
name = "room"
kind = "matrix"
url = "https://example.com"
room = "!a:example.com"
token-file = "/etc/plexum/matrix.token"

[[alarm.channel]]
name = "own"
kind = "program"
command = ["/usr/local/bin/alarm", "--all"]

[alarm.expect-missing]
system = 20
"#;

#[test]
fn a_whole_configuration_is_read() {
    let config = AlarmConfig::parse(WHOLE).unwrap();
    let names: Vec<&str> = config
        .channels
        .iter()
        .map(|channel| channel.name.as_str())
        .collect();
    assert_eq!(names, ["journal", "root", "phone", "room", "own"]);
    assert_eq!(config.channels[2].least, Severity::Critical);
    let Transport::Sendmail { to, from, command } = &config.channels[1].transport else {
        panic!("{:?}", config.channels[1]);
    };
    assert_eq!(
        (to.as_str(), from, command[0].as_str()),
        ("root", &None, "/usr/sbin/sendmail")
    );
    let Transport::Webhook { service, .. } = &config.channels[3].transport else {
        panic!("{:?}", config.channels[3]);
    };
    let room = "!a:example.com".to_owned();
    assert_eq!(*service, Service::Matrix { room });
    let heartbeat = HeartbeatConfig {
        every_s: 300,
        by: HeartbeatBy::Url("https://example.com/ping/nas".into()),
    };
    assert_eq!(config.heartbeat, Some(heartbeat));
    assert_eq!(config.expected_missing_of("system", "77"), 20);
    assert_eq!(config.expected_missing_of("77", "system"), 20);
    assert_eq!(config.expected_missing_of("home", "5a1b"), 0);
    assert_eq!(config.subscriptions().len(), 5);
}

#[test]
fn a_journal_that_is_configured_is_not_there_twice() {
    let text = "[[alarm.channel]]\nname = \"log\"\nkind = \"journal\"\nleast = \"emergency\"\n";
    let config = AlarmConfig::parse(text).unwrap();
    assert_eq!(config.channels.len(), 1);
    assert_eq!(config.channels[0].least, Severity::Emergency);
}

#[test]
fn each_mistake_is_one_line_with_line_and_key() {
    let channel = |keys: &str| format!("[alarm]\n[[alarm.channel]]\nname = \"a\"\n{keys}\n");
    for (text, expected) in [
        (
            channel("kind = \"pager\""),
            "line 4: kind: \"pager\" is no kind of channel",
        ),
        (
            channel("kind = \"ntfy\""),
            "line 2: url: missing: \"ntfy\" needs it",
        ),
        (
            channel("kind = \"ntfy\"\nurl = \"example.com\""),
            "line 5: url: an address is needed",
        ),
        (
            channel("kind = \"ntfy\"\nurll = \"x\""),
            "line 5: urll: unknown field",
        ),
        (
            channel("kind = \"ntfy\"\nurl = 5"),
            "line 5: url: invalid type",
        ),
        (
            channel("kind = \"program\"\ncommand = \"x\""),
            "line 5: command: invalid type",
        ),
        (
            channel("kind = \"program\"\ncommand = [\"alarm\"]"),
            "line 5: command: a list is needed",
        ),
        (
            channel("kind = \"program\"\ncommand = []"),
            "line 5: command: a list is needed",
        ),
        (channel("kind = \"sendmail\""), "line 2: to: missing"),
        (
            channel("kind = \"sendmail\"\nto = \"a\\nb\""),
            "line 5: to: an address of one line",
        ),
        (
            channel("kind = \"journal\"\nto = \"root\""),
            "line 5: to: a channel of kind \"journal\" has no such key",
        ),
        (
            channel("kind = \"gotify\"\nurl = \"https://example.com\""),
            "line 2: token-file: missing",
        ),
        (
            channel("kind = \"journal\"\nleast = \"bad\""),
            "line 5: least: unknown variant",
        ),
        (
            "[alarm]\nheartbeat = { every = \"5m\" }".to_owned(),
            "line 2: heartbeat: either url or command",
        ),
        (
            "[alarm]\nheartbeat = { every = \"5\", url = \"https://example.com\" }".to_owned(),
            "line 2: every: a time of 10s",
        ),
        (
            "[alarm.heartbeat]\nurl = \"https://example.com\"\nevery = \"1s\"".to_owned(),
            "line 3: every: a time of 10s",
        ),
        (
            "[alarm.heartbeat]\nurl = \"https://example.com\"\nevery = \"9999999999999999999d\""
                .to_owned(),
            "line 3: every:",
        ),
        (
            "[alarm.heartbeat]\nurl = \"https://example.com\"\nevery = \"é\"".to_owned(),
            "line 3: every:",
        ),
        (
            "[alarm.expect-missing]\nhome = -1".to_owned(),
            "line 2: home: invalid value",
        ),
        (
            "[alarm]\nchanel = 1".to_owned(),
            "line 2: chanel: unknown field",
        ),
        ("[alarm\n".to_owned(), "line 1: "),
        ("x = \n".to_owned(), "line 1: x: "),
    ] {
        let error = AlarmConfig::parse(&text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error:?} for {text:?}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn two_channels_of_one_name_are_refused() {
    let one = "[[alarm.channel]]\nname = \"a\"\nkind = \"journal\"\n";
    let error = AlarmConfig::parse(&one.repeat(2)).unwrap_err().to_string();
    assert_eq!(error, "line 5: name: two channels are called \"a\"");
}

#[test]
fn how_long_something_has_to_hold_is_configured_up_to_four_hours() {
    let usual = AlarmConfig::parse("").unwrap().delays;
    assert_eq!((usual.hold_s, usual.quiet_s), (10, 60));
    let config = AlarmConfig::parse("[alarm]\nhold = \"0s\"\nquiet = \"5m\"\n").unwrap();
    assert_eq!((config.delays.hold_s, config.delays.quiet_s), (0, 300));
    for (text, told) in [
        (
            "[alarm]\nhold = \"5h\"\n",
            "line 2: hold: a time up to 4h is needed",
        ),
        (
            "[alarm]\nquiet = \"soon\"\n",
            "line 2: quiet: a time up to 4h is needed",
        ),
    ] {
        let error = AlarmConfig::parse(text).unwrap_err().to_string();
        assert!(error.starts_with(told), "{error}");
    }
}

#[test]
fn of_several_files_the_channels_add_up_and_the_later_word_counts() {
    let part = |text: &str| AlarmPart::parse(text).unwrap();
    let own = "[[alarm.channel]]\nname = \"own\"\nkind = \"program\"\ncommand = [\"/bin/true\"]\n";
    let log = "[[alarm.channel]]\nname = \"log\"\nkind = \"journal\"\nleast = \"critical\"\n";
    let mut all = part(&format!(
        "[alarm]\nhold = \"5s\"\nexpect-missing = {{ nas = 1 }}\n{own}"
    ));
    all.add(part(&format!("[alarm]\nhold = \"7s\"\n{log}")))
        .unwrap();
    assert_eq!(
        all.add(part(own)).unwrap_err(),
        "two channels are called \"own\""
    );
    all.expect_missing("vault", 2);
    let config = AlarmConfig::of(all);
    let names: Vec<&str> = config
        .channels
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(names, ["own", "log"], "one journal is enough");
    assert_eq!(config.delays.hold_s, 7);
    assert_eq!(config.expected_missing_of("nas", "0a"), 1);
    assert_eq!(config.expected_missing_of("vault", "0b"), 2);
}

#[test]
fn a_mail_server_is_read_and_never_gets_a_password_in_the_clear() {
    let channel = |more: &str| {
        let first = "[[alarm.channel]]\nname = \"post\"\nkind = \"smtp\"\n";
        AlarmConfig::parse(&format!("{first}{more}"))
    };
    let usual = "url = \"smtp://mail.example.com:587/\"\nto = \"a@b.c, d@e.f\"\nfrom = \"n@b.c\"\n";
    let Transport::Smtp(server) = &channel(usual).unwrap().channels[1].transport else {
        panic!("another kind");
    };
    assert_eq!(server.url, "smtp://mail.example.com:587");
    assert_eq!(server.to, ["a@b.c", "d@e.f"]);
    assert_eq!(server.tls, MailTls::Required);
    let login = "login-file = \"/etc/plexum/mail\"\n";
    assert!(channel(&format!("{usual}{login}")).is_ok());
    for (text, told) in [
        (
            format!("{usual}{login}tls = \"none\"\n"),
            "line 7: login-file: a password",
        ),
        (format!("{usual}tls = \"maybe\"\n"), "line 7: tls: it is"),
        (
            usual.replace("n@b.c", "Nas <n@b.c>"),
            "line 6: from: a bare address",
        ),
        (
            usual.replace("a@b.c", "-a@b.c"),
            "line 5: to: a bare address",
        ),
        (usual.replace("a@b.c, ", ","), "line 5: to: a bare address"),
        (
            usual.replace("smtp:", "http:"),
            "line 4: url: an address is needed",
        ),
        (
            usual.replace(":587/", "/x y"),
            "line 4: url: an address is needed",
        ),
        (usual.replace("from = ", "room = "), "line 1: from: missing"),
    ] {
        let error = channel(&text).unwrap_err().to_string();
        assert!(error.starts_with(told), "{error}");
    }
}
