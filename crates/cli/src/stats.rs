//! `plexum stats`: counters, rates and latency of a running volume, and requests in flight.

pub mod interval;

use std::time::Duration;

use serde_json::Value;

use crate::args::{Common, Debug, Stats, StatsColumns};
use crate::client::Client;
use crate::errors::Outcome;
use crate::output::{Screen, is_lost, table};
use crate::units::show_bytes;

/// Runs `plexum stats`; with `--interval` until the server ends.
///
/// # Errors
/// `NoSuchVolume`, `AmbiguousVolume`, `NoServer`.
pub fn run(args: &Stats, common: &Common, screen: &Screen) -> Outcome {
    let client = Client::find(args.volume.as_deref())?;
    let mut before = match args.reset && !common.dry_run {
        true => client.take_stats()?,
        false => client.stats()?,
    };
    let Some(seconds) = args.interval_s else {
        match args.columns {
            None => show(&before, screen),
            Some(columns) => show_rates(&before, None, columns, screen),
        }
        return Ok(0);
    };
    while !is_lost() {
        std::thread::sleep(Duration::from_secs(seconds));
        let now = client.stats()?;
        let columns = args.columns.unwrap_or(StatsColumns::Plexum);
        show_rates(&now, Some(&before), columns, screen);
        before = now;
    }
    Ok(0)
}

/// Runs `plexum debug requests`.
///
/// # Errors
/// As `run`.
pub fn debug(args: &Debug, screen: &Screen) -> Outcome {
    assert!(args.what != "bug", "a bug, as asked for");
    let client = Client::find(args.volume.as_deref())?;
    let answer = client.requests()?;
    screen.object(&answer);
    let requests = answer["requests"].as_array().cloned().unwrap_or_default();
    if requests.is_empty() {
        screen.line("no requests in flight");
        return Ok(0);
    }
    let head = ["NUMBER", "REQUEST", "STAGE", "OFFSET", "LENGTH", "AGE"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for request in &requests {
        let word = |field: &str| request[field].as_str().unwrap_or("-").to_owned();
        let number = |field: &str| request[field].as_u64().unwrap_or(0);
        rows.push(vec![
            number("number").to_string(),
            word("request"),
            word("stage"),
            number("offset_bytes").to_string(),
            show_bytes(number("length_bytes")),
            format!("{:.3} s", number("age_us") as f64 / 1e6),
        ]);
    }
    for line in table(&rows) {
        screen.line(line);
    }
    Ok(0)
}

/// What was done between two answers, or since counting began.
fn show_rates(now: &Value, before: Option<&Value>, columns: StatsColumns, screen: &Screen) {
    let (lines, span_ns) = interval::lines(now, before);
    let mut object = now.clone();
    object["interval"] = interval::object(&lines, span_ns);
    screen.object(&object);
    for line in interval::columns(&lines, columns) {
        screen.line(line);
    }
    screen.line("");
    for line in interval::reasons(&lines) {
        screen.line(line);
    }
    for line in vinum_lines(&now["vinum"]) {
        screen.line(line);
    }
    if before.is_some() {
        screen.line("");
    }
}

/// Counters, a row for the volume and one for each member.
fn show(now: &Value, screen: &Screen) {
    screen.object(now);
    let head = ["", "READS", "READ", "WRITES", "WRITTEN", "FLUSHES"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let volume = now["volume"].as_str().unwrap_or("volume");
    rows.push(row(volume, &now["total"]));
    for member in now["members"].as_array().into_iter().flatten() {
        rows.push(row(member["member"].as_str().unwrap_or("-"), member));
    }
    for line in table(&rows) {
        screen.line(line);
    }
    for line in vinum_lines(&now["vinum"]) {
        screen.line(line);
    }
}

/// The counters of classic Vinum, object by object: transfers, not requests. Nothing for other volumes.
#[must_use]
pub fn vinum_lines(vinum: &Value) -> Vec<String> {
    if vinum.is_null() {
        return Vec::new();
    }
    let head = [
        "",
        "Reads",
        "Average",
        "Recovered",
        "Writes",
        "Average",
        "Mblock",
        "Mstripe",
        "Degraded",
        "Parityless",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.push(object_row("V", "volume", &vinum["volume"]));
    for (letter, list) in [("P", "plexes"), ("S", "subdisks"), ("D", "drives")] {
        for object in vinum[list].as_array().into_iter().flatten() {
            let name = object["name"].as_str().unwrap_or("-");
            rows.push(object_row(letter, name, object));
        }
    }
    table(&rows)
}

fn object_row(letter: &str, name: &str, object: &Value) -> Vec<String> {
    let value = |field: &str| object[field].as_u64();
    let shown = |field: &str| value(field).map_or_else(|| "-".to_owned(), |n| n.to_string());
    let average = |count: &str, bytes: &str| match (value(count), value(bytes)) {
        (Some(count), Some(bytes)) if count > 0 => show_bytes(bytes / count),
        _ => "-".to_owned(),
    };
    vec![
        format!("{letter} {name}"),
        shown("reads"),
        average("reads", "read_bytes"),
        shown("recovered_reads"),
        shown("writes"),
        average("writes", "written_bytes"),
        shown("multiblock"),
        shown("multistripe"),
        shown("degraded_writes"),
        shown("parityless_writes"),
    ]
}

fn row(name: &str, now: &Value) -> Vec<String> {
    let value = |field: &str| now[field].as_u64().unwrap_or(0);
    vec![
        name.to_owned(),
        value("reads").to_string(),
        show_bytes(value("read_bytes")),
        value("writes").to_string(),
        show_bytes(value("written_bytes")),
        value("flushes").to_string(),
    ]
}
