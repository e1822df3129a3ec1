//! Everything that is refused for safety, held against the list in `fixtures/refusals.txt`.

use std::path::Path;
use std::process::Stdio;

use plexum_testkit::fixtures;

use crate::common::Place;

/// Runs one step in the folder, with this build's `plexum` first on the path. The answer is its exit code and standard
/// error.
fn step(place: &Place, line: &str) -> (i32, String) {
    let program = Path::new(env!("CARGO_BIN_EXE_plexum"));
    let found = std::env::var("PATH").unwrap_or_default();
    let path = format!(
        "{}:{found}:/usr/sbin:/sbin",
        program.parent().unwrap().display()
    );
    // A server in the background keeps what it was given: files, so that nobody waits for the end of a pipe.
    let said = place.file(".said");
    let mut command = place.command("sh");
    command
        .args(["-c", line])
        .env("PATH", path)
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&said).unwrap());
    let status = command.status().unwrap();
    (
        status.code().unwrap_or(-1),
        std::fs::read_to_string(&said).unwrap(),
    )
}

/// The words of the error that do not depend on the run.
fn first_line(place: &Place, said: &str) -> String {
    let line = said.lines().find(|line| line.starts_with("error:"));
    let mut line = line.unwrap_or("(nothing on standard error)").to_string();
    line = line.replace(&place.folder.display().to_string(), "DIR");
    let word = |word: &str| {
        let bare = word.trim_end_matches([')', ',']);
        let rest = &word[bare.len()..];
        let is_uuid = bare.len() >= 35
            && bare
                .bytes()
                .all(|b| b.is_ascii_hexdigit() || b == b':' || b == b'-');
        let is_sum = bare.len() == 8 && bare.bytes().all(|b| b.is_ascii_hexdigit());
        let known = match bare {
            _ if is_uuid => "UUID",
            _ if is_sum => "SUM",
            _ if bare.len() > 1
                && bare.bytes().all(|b| b.is_ascii_digit())
                && line.contains("(process ") =>
            {
                "PID"
            }
            _ => bare,
        };
        format!("{known}{rest}")
    };
    line.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Ends the servers that a section leaves behind.
fn stop_all(place: &Place) {
    for volume in place.plexum("status --json").objects() {
        if let Some(name) = volume["volume"].as_str() {
            place.plexum(&format!("stop {name}"));
        }
    }
}

#[test]
fn what_is_refused_for_safety_is_refused_with_the_same_words() {
    let list = std::fs::read_to_string(fixtures().join("refusals.txt")).unwrap();
    let mut place = None;
    let mut seen = String::new();
    let mut sections = 0;
    for line in list.lines().filter(|line| !line.starts_with("  ")) {
        seen.push_str(line);
        seen.push('\n');
        if line.starts_with("## ") {
            place.iter().for_each(stop_all);
            sections += 1;
            place = Some(Place::new(&format!("refusals-{sections}")));
        } else if let Some(words) = line.strip_prefix("$ ") {
            let (exit, said) = step(place.as_ref().unwrap(), words);
            assert_eq!(exit, 0, "{words}: {said}");
        } else if let Some(words) = line.strip_prefix("! ") {
            let place = place.as_ref().unwrap();
            let (exit, said) = step(place, words);
            seen.push_str(&format!("  exit {exit}\n  {}\n", first_line(place, &said)));
        }
    }
    place.iter().for_each(stop_all);
    let differs = list
        .lines()
        .zip(seen.lines())
        .find(|(before, now)| before != now);
    assert!(
        list == seen,
        "the list of refusals differs, first (recorded, seen): {differs:#?}\n{seen}"
    );
}
