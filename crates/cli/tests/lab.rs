//! `plexum lab` as people call it.
#![allow(clippy::unwrap_used)]

mod common;

use common::Place;

#[test]
fn a_disk_is_measured_predicted_and_never_written_to() {
    let place = Place::new("lab-real");
    let bytes: Vec<u8> = (0..96_u32 << 20).map(|n| (n >> 9) as u8).collect();
    std::fs::write(place.file("disk"), &bytes).unwrap();
    let measured = place.plexum("lab calibrate disk --out disk.toml");
    assert_eq!(measured.exit, 0, "{}", measured.err);
    assert!(
        measured.out.contains("reads anywhere, 16 at once"),
        "{}",
        measured.out
    );
    let preset = std::fs::read_to_string(place.file("disk.toml")).unwrap();
    assert!(
        preset.contains(&format!("capacity_bytes = {}", 96 << 20)),
        "{preset}"
    );
    let chart = std::fs::read_to_string(place.file("disk.svg")).unwrap();
    assert!(
        chart.starts_with("<svg") && chart.contains("measured"),
        "{chart}"
    );

    let again = place.plexum("lab calibrate disk --out disk.toml");
    assert_eq!(again.exit, 3, "{}", again.err);
    assert!(
        again.err.contains("disk.toml exists already"),
        "{}",
        again.err
    );
    assert_eq!(
        std::fs::read_to_string(place.file("disk.toml")).unwrap(),
        preset
    );

    let used = place.plexum("lab work random-read --level single --members 1 --disk disk.toml");
    assert_eq!(used.exit, 0, "{}", used.err);

    let seen = place.plexum("lab predict disk --disk disk.toml --rounds 1 --json");
    assert_eq!(seen.exit, 0, "{}", seen.err);
    let (bands, cells): (Vec<_>, Vec<_>) = seen
        .objects()
        .into_iter()
        .partition(|one| one["kind"] == "lab_band");
    assert_eq!((cells.len(), bands.len()), (12, 1));
    for cell in &cells {
        assert!(cell["real_mb_per_s"].as_f64().unwrap() > 0.0, "{cell}");
        assert!(cell["predicted_mb_per_s"].as_f64().unwrap() > 0.0, "{cell}");
    }
    let within = cells
        .iter()
        .filter(|cell| cell["within_30_percent"] == "yes");
    assert_eq!(bands[0]["within"], within.count());
    assert!(
        std::fs::read(place.file("disk")).unwrap() == bytes,
        "the disk was written to"
    );
}

#[test]
fn what_the_laboratory_cannot_do_is_said_in_one_line() {
    let place = Place::new("lab-words");
    place.sparse("small", 1 << 20);
    for (words, text) in [
        ("lab calibrate nowhere", "nowhere: "),
        ("lab calibrate small", "bytes are too few to measure"),
        (
            "lab predict small --disk no-such",
            "\"no-such\" is no preset",
        ),
        ("lab predict nowhere --disk ssd-sata", "nowhere: "),
        ("lab work knitting", "\"knitting\" is no workload"),
        ("lab work random-read --level 6 --members 2", "members"),
        (
            "lab work random-read --format poem",
            "\"poem\" is no format",
        ),
        (
            "lab work random-read --disk no-such",
            "\"no-such\" is no preset",
        ),
        ("lab run nowhere.toml", "nowhere.toml"),
        ("lab report nowhere", "nowhere"),
        ("lab work random-read --on nowhere", "nowhere: "),
        (
            "lab work random-read --on nbd+unix:///v?socket=nowhere",
            "no server answers",
        ),
        (
            "lab work rebuild --on small --destroy small",
            "simulated disks only",
        ),
        ("lab work random-read --on small --range 2M", "small has"),
        (
            "lab work random-write --on small --destroy other",
            "--destroy names \"other\"",
        ),
        (
            "lab work random-read --on small --level 5",
            "cannot be used with",
        ),
        ("lab reproduce atlantis", "atlantis"),
    ] {
        let run = place.plexum(words);
        assert_eq!(run.exit, 2, "{words}: {}", run.err);
        let errors = run.err.lines().filter(|line| line.starts_with("error"));
        assert_eq!(errors.count(), 1, "{words}: {}", run.err);
        assert!(run.err.contains(text), "{words}: {}", run.err);
    }
}
