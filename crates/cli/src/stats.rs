//! `plexum stats`: counters, rates and latency of a running volume, and requests in flight.

use std::time::Duration;

use serde_json::Value;

use crate::args::{Debug, Stats};
use crate::client::Client;
use crate::errors::Outcome;
use crate::output::{Screen, table};
use crate::units::show_bytes;

/// Runs `plexum stats`; with `--interval` until the server ends.
///
/// # Errors
/// `NoSuchVolume`, `AmbiguousVolume`, `NoServer`.
pub fn run(args: &Stats, screen: &Screen) -> Outcome {
    let client = Client::find(args.volume.as_deref())?;
    let mut before = client.stats(args.reset)?;
    let Some(seconds) = args.interval else {
        show(&before, None, 0, screen);
        return Ok(0);
    };
    loop {
        std::thread::sleep(Duration::from_secs(seconds));
        let now = client.stats(false)?;
        show(&now, Some(&before), seconds, screen);
        before = now;
    }
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

/// iostat's columns, a row for the volume and one for each member.
fn show(now: &Value, before: Option<&Value>, seconds: u64, screen: &Screen) {
    screen.object(now);
    let head = match before {
        None => ["", "READS", "READ", "WRITES", "WRITTEN", "FLUSHES"],
        Some(_) => ["", "r/s", "read/s", "w/s", "written/s", "flushes/s"],
    };
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let empty = Value::Null;
    let volume = now["volume"].as_str().unwrap_or("volume");
    let old = before.map_or(&empty, |before| &before["total"]);
    rows.push(row(volume, &now["total"], old, seconds));
    for (at, member) in now["members"].as_array().into_iter().flatten().enumerate() {
        let old = before.map_or(&empty, |before| &before["members"][at]);
        rows.push(row(
            member["member"].as_str().unwrap_or("-"),
            member,
            old,
            seconds,
        ));
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

fn row(name: &str, now: &Value, before: &Value, seconds: u64) -> Vec<String> {
    let value = |field: &str| {
        let of = |value: &Value| value[field].as_u64().unwrap_or(0);
        match before {
            Value::Null => of(now),
            before => of(now).saturating_sub(of(before)) / seconds.max(1),
        }
    };
    vec![
        name.to_owned(),
        value("reads").to_string(),
        show_bytes(value("read_bytes")),
        value("writes").to_string(),
        show_bytes(value("written_bytes")),
        value("flushes").to_string(),
    ]
}
