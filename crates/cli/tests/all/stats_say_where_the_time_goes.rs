//! `plexum stats` of a served volume: the columns of three iostats, and what the counters behind them count.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::common::Place;
use crate::common::served::{Server, done, stats, uri};
use serde_json::Value;

fn qemu_io(place: &Place, commands: &[&str]) {
    let mut command = place.command("qemu-io");
    command.args(["-f", "raw", &uri(place)]);
    for line in commands {
        command.args(["-c", line]);
    }
    let output = command.output().expect("qemu-io must be installed");
    assert!(output.status.success(), "{output:?}");
}

/// What the words of a line of figures are under a head.
fn under<'a>(lines: &'a [&str], head: &str, name: &str) -> Vec<(&'a str, &'a str)> {
    let at = lines
        .iter()
        .position(|line| line.trim_start().starts_with(head));
    let at = at.unwrap_or_else(|| panic!("no {head:?} in {lines:#?}"));
    let row = lines[at..]
        .iter()
        .find(|line| line.split(' ').next() == Some(name));
    let row = row.unwrap_or_else(|| panic!("no {name} in {lines:#?}"));
    let heads = lines[at].split_whitespace();
    let heads = heads.skip(usize::from(!lines[at].starts_with(' ')));
    heads.zip(row.split_whitespace().skip(1)).collect()
}

fn figure<'a>(row: &[(&'a str, &'a str)], head: &str) -> &'a str {
    let found = row.iter().find(|(name, _)| *name == head);
    found.unwrap_or_else(|| panic!("no {head} in {row:?}")).1
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn each_iostat_shows_its_columns_of_what_was_read_and_written() {
    let place = Place::new("stats-columns");
    done(
        &place,
        "create nas --level 0 --strip 64K --member-size 24M a b",
    );
    let server = Server::start(&place, "a b");
    qemu_io(&place, &["read 128k 4k"]); // of a, elsewhere
    let before = stats(&place);
    done(&place, "stats nas --reset");
    // All in the first strip, which is a's; the write goes on where the read before it ended.
    let asked = [
        "read 0 4k",
        "read 4k 4k",
        "read 8k 4k",
        "read 32k 4k",
        "write 36k 8k",
    ];
    qemu_io(&place, &asked);

    let counted = stats(&place);
    assert!(number(&counted["counting_since_ns"]) >= number(&before["moment_ns"]));
    assert!(number(&counted["moment_ns"]) > number(&counted["counting_since_ns"]));
    for of in [&counted["total"], &counted["members"][0]] {
        let count = |field: &str| number(&of[field]);
        assert_eq!((count("reads"), count("sequential_reads")), (4, 2), "{of}");
        assert_eq!(
            (count("writes"), count("sequential_writes")),
            (1, 1),
            "{of}"
        );
        // One at a time: busy as long as they took, all together.
        assert!(count("busy_ns") > 0, "{of}");
        assert_eq!(
            count("busy_ns"),
            count("read_ns") + count("write_ns"),
            "{of}"
        );
        assert_eq!(count("outstanding"), 0, "{of}");
    }
    let idle = &counted["members"][1];
    assert_eq!((&idle["reads"], &idle["busy_ns"]), (&0.into(), &0.into()));

    let answer = place
        .plexum("stats nas --columns linux --json")
        .objects()
        .remove(0);
    let rows = answer["interval"]["rows"].as_array().unwrap();
    let names: Vec<&str> = rows
        .iter()
        .map(|row| row["device"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["nas", "a", "b"]);
    assert_eq!(
        (
            &rows[1]["sequential_read_percent"],
            &rows[1]["sequential_write_percent"]
        ),
        (&50.0.into(), &100.0.into())
    );
    assert_eq!(
        (&rows[2]["served_ms"], &rows[2]["waiting_ms"]),
        (&Value::Null, &Value::Null)
    );

    let run = place.plexum("stats nas --columns freebsd");
    let lines: Vec<&str> = run.out.lines().collect();
    let freebsd = under(&lines, "device", "a");
    let names: Vec<&str> = freebsd.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["r/s", "w/s", "kr/s", "kw/s", "wait", "svc_t", "%b"]);
    let service = format!("{:.1}", rows[1]["service_ms"].as_f64().unwrap());
    assert_eq!(
        (figure(&freebsd, "wait"), figure(&freebsd, "svc_t")),
        ("0", &*service)
    );
    let reason = lines
        .iter()
        .rposition(|line| line.starts_with("a "))
        .unwrap();
    assert!(
        lines[reason].contains("50%") && lines[reason].contains("100%"),
        "{}",
        run.out
    );
    let other: Vec<&str> = lines[reason + 1].split_whitespace().collect();
    assert_eq!(other, ["b", "0.0%", "0.00", "-", "-", "-", "-"]);

    let run = place.plexum("stats nas --columns linux");
    let lines: Vec<&str> = run.out.lines().collect();
    let linux = under(&lines, "Device", "a");
    let wait = format!("{:.2}", rows[1]["read_await_ms"].as_f64().unwrap());
    assert_eq!(figure(&linux, "r_await"), wait);
    assert_eq!(
        (figure(&linux, "rareq-sz"), figure(&linux, "wareq-sz")),
        ("4.00", "8.00")
    );
    assert!(linux.iter().any(|(name, _)| *name == "%util"));

    let run = place.plexum("stats nas --columns plexum");
    let lines: Vec<&str> = run.out.lines().collect();
    let own = under(&lines, "r/s", "nas");
    let service = format!("{:.3}", rows[0]["service_ms"].as_f64().unwrap());
    assert_eq!(figure(&own, "svc_t"), service);
    server.stop(&place);
}

#[test]
fn an_interval_is_a_block_of_its_own() {
    let place = Place::new("stats-interval");
    done(&place, "create nas --level 0 --member-size 24M a b");
    let server = Server::start(&place, "a b");
    qemu_io(&place, &["read 0 4k"; 100]);
    let mut command = place.command(env!("CARGO_BIN_EXE_plexum"));
    command.args(["stats", "nas", "--interval", "1"]);
    let mut shown = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(shown.stdout.take().unwrap()).lines();
    let block: Vec<String> = lines.take(10).map(Result::unwrap).collect();
    shown.kill().unwrap();
    shown.wait().unwrap();
    let block: Vec<&str> = block.iter().map(String::as_str).collect();
    let own = under(&block, "r/s", "a");
    assert_eq!(
        figure(&own, "r/s"),
        "0",
        "what was before is not in it: {block:#?}"
    );
    assert_eq!((block[4], block[9]), ("", ""), "{block:#?}");
    server.stop(&place);
}
