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
    if let Some(line) = plex_line(&now["plex"]) {
        screen.line(line);
    }
}

/// The counters of classic Vinum, once there are any: they are kept for its volumes only.
fn plex_line(plex: &Value) -> Option<String> {
    let value = |field: &str| plex[field].as_u64().unwrap_or(0);
    if value("reads") + value("writes") == 0 {
        return None;
    }
    Some(format!(
        "plex: {} reads, {} writes, {} multiblock, {} multistripe, {} recovered, {} degraded, {} parityless",
        value("reads"),
        value("writes"),
        value("multiblock"),
        value("multistripe"),
        value("recovered_reads"),
        value("degraded_writes"),
        value("parityless_writes"),
    ))
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
