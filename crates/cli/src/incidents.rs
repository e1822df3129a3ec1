//! `plexum incident`, `plexum ack` and `plexum alert`: what the daemon's alarms say, and the way to whom they say it.

use plexum_daemon::problem::{Code, Problem};
use serde_json::{Value, json};

use crate::args::{Ack, Alert, AlertCommand, Common, Incident};
use crate::daemon_client::Daemon;
use crate::errors::Outcome;
use crate::output::{Screen, object, table};
use crate::units::show_moment;

/// `plexum incident`.
///
/// # Errors
/// `NoServer` without a daemon; `NoSuchIncident`.
pub fn show(args: &Incident, screen: &Screen) -> Outcome {
    let daemon = running()?;
    match &args.id {
        None => list(&daemon.incidents()?, screen),
        Some(id) => {
            let incident = daemon.incident(id)?;
            screen.object(&incident);
            for line in whole(&incident) {
                screen.line(line);
            }
        }
    }
    Ok(0)
}

/// `plexum ack`.
///
/// # Errors
/// `NoServer` without a daemon; `NoSuchIncident`; `Usage` without a reason; `IoError` when it cannot be kept.
pub fn acknowledge(args: &Ack, common: &Common, screen: &Screen) -> Outcome {
    let daemon = running()?;
    let id = &args.id;
    if common.dry_run {
        let incident = daemon.incident(id)?;
        check_is_open(&incident)?;
        screen.line(format!(
            "would acknowledge incident {id}: {}",
            head(&incident)
        ));
        screen.object(&object(
            "plan",
            None,
            json!({"command": "ack", "incident": id}),
        ));
        return Ok(0);
    }
    let incident = daemon.acknowledge(id, &who(), &args.why)?;
    screen.done(format!(
        "incident {id} is acknowledged until it gets worse or ends: {}",
        head(&incident)
    ));
    screen.object(&incident);
    Ok(0)
}

/// `plexum alert`: of several channels the first failure is the exit code.
///
/// # Errors
/// `NoServer` without a daemon; `Usage` for a channel that is not configured; `NotDelivered`.
pub fn alert(args: &Alert, common: &Common, screen: &Screen) -> Outcome {
    let AlertCommand::Test { channel } = &args.command;
    let daemon = running()?;
    let known = daemon.incidents()?;
    let all = known["channels"].as_array().into_iter().flatten();
    let all: Vec<&str> = all.filter_map(|one| one["name"].as_str()).collect();
    let wanted: Vec<&str> = match channel {
        None => all,
        Some(name) if all.contains(&name.as_str()) => vec![name],
        Some(name) => {
            let text = format!("no channel \"{name}\": configured are {}", all.join(", "));
            return Err(Problem::new(Code::Usage, text));
        }
    };
    if common.dry_run {
        let names = wanted.join(", ");
        screen.line(format!("would send a test to {names}"));
        let fields = json!({"command": "alert test", "channels": wanted});
        screen.object(&object("plan", None, fields));
        return Ok(0);
    }
    let mut failure = None;
    for name in wanted {
        match daemon.test_channel(name) {
            Ok(told) => {
                let answer = told["answer"].as_str().unwrap_or_default();
                screen.line(format!("{name}: {answer}"));
                screen.object(&told);
            }
            Err(problem) => {
                // The others are tried as well; the first is what the command ends with.
                if let Some(earlier) = failure.replace(problem) {
                    screen.note(earlier.to_string());
                }
            }
        }
    }
    failure.map_or(Ok(0), Err)
}

/// One line on what is open, for `plexum status`; none when nothing is.
#[must_use]
pub fn summary(daemon: &Daemon) -> Option<String> {
    let told = daemon.incidents().ok()?;
    let open: Vec<&Value> = of_state(&told, &["open", "acknowledged"]).collect();
    let worst = open.first()?;
    let id = text(worst, "id");
    let known = match text(worst, "state") {
        "acknowledged" => ", acknowledged",
        _ => "",
    };
    let worst = format!("{id} ({}{known}): {}", text(worst, "severity"), head(worst));
    Some(match open.len() {
        1 => format!("! incident {worst}; more:   plexum incident {id}"),
        count => format!("! {count} incidents, the worst is {worst}; all:   plexum incident"),
    })
}

fn running() -> Result<Daemon, Problem> {
    Daemon::find_or_machines().ok_or_else(|| {
        let problem = Problem::new(Code::NoServer, "no daemon runs, so nothing is watched");
        problem.hint("to start it:   plexum daemon")
    })
}

/// The user who has typed the command.
fn who() -> String {
    let names = ["SUDO_USER", "USER", "LOGNAME"].map(|name| std::env::var(name).ok());
    let named = names.into_iter().flatten().find(|name| !name.is_empty());
    named.unwrap_or_else(|| "somebody".to_owned())
}

fn check_is_open(incident: &Value) -> Result<(), Problem> {
    match text(incident, "state") {
        "open" | "acknowledged" => Ok(()),
        _ => {
            let text = format!("incident {} is over", text(incident, "id"));
            Err(Problem::new(Code::NoSuchIncident, text))
        }
    }
}

fn text<'a>(of: &'a Value, key: &str) -> &'a str {
    of[key].as_str().unwrap_or("-")
}

fn moment(of: &Value, key: &str) -> String {
    of[key].as_u64().map_or_else(|| "-".to_owned(), show_moment)
}

/// What it is about, in a line.
fn head(incident: &Value) -> String {
    let headline = text(incident, "headline");
    match text(incident, "state") {
        // The last message has the name in it.
        "closed" | "ending" => headline.to_owned(),
        _ => format!("{}: {headline}", text(incident, "name")),
    }
}

fn of_state<'a>(told: &'a Value, states: &'a [&str]) -> impl Iterator<Item = &'a Value> {
    let all = told["incidents"].as_array().into_iter().flatten();
    all.filter(|one| states.contains(&text(one, "state")))
}

fn list(told: &Value, screen: &Screen) {
    let mut rows = vec![
        ["ID", "STATE", "SEVERITY", "SINCE", "WHAT"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for one in told["incidents"].as_array().into_iter().flatten() {
        screen.object(&object("incident", None, one.clone()));
        rows.push(vec![
            text(one, "id").to_owned(),
            text(one, "state").to_owned(),
            text(one, "severity").to_owned(),
            moment(one, "opened_s"),
            head(one),
        ]);
    }
    match rows.len() {
        1 => screen.line("nothing is wrong, and nothing was today"),
        _ => table(&rows).into_iter().for_each(|line| screen.line(line)),
    }
    for channel in told["channels"].as_array().into_iter().flatten() {
        screen.object(&object("channel", None, channel.clone()));
        if channel["failing_since_s"].is_null() {
            continue;
        }
        screen.line(format!(
            "! channel {} fails since {}, {} attempts: {}",
            text(channel, "name"),
            moment(channel, "failing_since_s"),
            channel["failed_attempts"],
            text(channel, "answer")
        ));
    }
    for (key, what) in [
        ("not_kept", "incidents cannot be kept"),
        ("configuration", "the configuration does not count"),
    ] {
        if let Some(reason) = told[key].as_str() {
            screen.line(format!("! {what}: {reason}"));
        }
    }
}

/// Everything that is known of one.
fn whole(incident: &Value) -> Vec<String> {
    let mut lines = vec![format!(
        "incident {}, {}, {}, since {}",
        text(incident, "id"),
        text(incident, "state"),
        text(incident, "severity"),
        moment(incident, "opened_s")
    )];
    lines.push(head(incident));
    let known = &incident["acknowledged"];
    if known.is_object() {
        lines.push(format!(
            "acknowledged by {} {}: {}",
            text(known, "who"),
            moment(known, "at"),
            text(known, "why")
        ));
    }
    for (part, name) in [
        ("what", ""),
        ("data", "Data"),
        ("advice", "You"),
        ("before", "Before"),
    ] {
        let all = incident["lines"][part].as_array().into_iter().flatten();
        for (at, line) in all.enumerate() {
            let name = if at == 0 { name } else { "" };
            lines.push(format!("{name:<6} {}", line.as_str().unwrap_or_default()));
        }
    }
    for message in incident["messages"].as_array().into_iter().flatten() {
        lines.push(format!(
            "message {} ({}):",
            moment(message, "decided_s"),
            text(message, "kind")
        ));
        for delivery in message["deliveries"].as_array().into_iter().flatten() {
            let became = match delivery["has_arrived"].as_bool() {
                Some(true) => "arrived",
                _ => "did not arrive",
            };
            lines.push(format!(
                "  {}: {became} {}, attempt {}: {}",
                text(delivery, "channel"),
                moment(delivery, "at_s"),
                delivery["attempts"],
                text(delivery, "answer")
            ));
        }
    }
    lines
}
