//! `plexum lab` as people call it.

use crate::common::Place;

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

const JOBS: &str =
    "[global]\nrw=randread\nbs=4k\nsize=4m\n[reader]\nnumjobs=2\n[later]\nstonewall\nrw=write\n";

const OF_FIO: &str = "name = \"jobs\"\nrepetitions = 1\nsensitivity = false\n[setup]\nlevel = \"single\"\nmembers = 1\n\
    [work]\nkind = \"fio\"\nfile = \"jobs.fio\"\n";

#[test]
fn what_fio_wrote_by_itself_stands_in_a_report_beside_an_experiment_or_alone() {
    let place = Place::in_memory("lab-fio-json");
    std::fs::write(place.file("jobs.fio"), JOBS).unwrap();
    std::fs::write(place.file("e.toml"), OF_FIO).unwrap();
    let made = place.plexum("lab run e.toml --out report");
    assert_eq!(made.exit, 0, "{}", made.err);
    std::fs::create_dir(place.file("mnt")).unwrap();
    let run = "--directory=mnt --ioengine=psync --output-format=json";
    for (file, how) in [("one.json", ""), ("other.json", " --group_reporting=1")] {
        let fio = place.tool("fio", &format!("{run}{how} --output={file} jobs.fio"));
        assert_eq!(fio.exit, 0, "{}", fio.err);
    }
    let files = "--fio one.json --fio other.json";
    let run = place.plexum(&format!("lab report report {files} --json"));
    assert_eq!(run.exit, 0, "{}", run.err);
    let answers = run.objects();
    // Rates of both groups; requests are told by fio alone.
    assert_eq!(answers.len(), 4, "{}", run.out);
    let mut compared = 0;
    for answer in &answers {
        let rows = answer["rows"].as_array().unwrap();
        for row in rows {
            assert!(row["mean"].as_f64() > Some(0.0), "{row}");
        }
        let has = |name: &str| rows.iter().any(|row| row["arrangement"] == name);
        assert!(has("fio: one.json") && has("fio: other.json"), "{answer}");
        compared += usize::from(has("single disk (sata-7200-750)"));
    }
    assert_eq!(compared, 2, "the disk and two files: {}", run.out);
    let page = std::fs::read_to_string(place.file("report/report.html")).unwrap();
    assert!(page.contains("fio: one.json"));
    let again = place.plexum("lab report report --json").objects();
    assert_eq!(
        again[0]["rows"].as_array().unwrap().len(),
        1,
        "the experiment keeps its own results"
    );
    // Without an experiment the figures of fio are compared with each other.
    std::fs::create_dir(place.file("alone")).unwrap();
    let alone = place.plexum(&format!("lab report alone {files}"));
    assert_eq!(alone.exit, 0, "{}", alone.err);
    assert!(
        alone.out.contains("fio reader, later: reader read"),
        "{}",
        alone.out
    );
    let page = std::fs::read_to_string(place.file("alone/report.html")).unwrap();
    assert!(!page.contains("To run it again"));
    let wrong = place.plexum("lab report report --fio e.toml");
    assert_eq!(wrong.exit, 5, "{}", wrong.err);
    assert!(
        wrong.err.contains("e.toml") && wrong.err.contains("fio"),
        "{}",
        wrong.err
    );
    assert_eq!(
        place.plexum("lab report alone").exit,
        2,
        "neither one nor the other"
    );
}
