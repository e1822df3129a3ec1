//! Documents of smartctl, good and bad, each with the verdict that is expected.

use std::fs;

use plexum_inventory::Identity;
use plexum_inventory::health::{
    Baseline, CriticalWarning, DOCUMENT_BYTES_MAX, Ended, ExitStatus, Health, Protocol, Reading,
    Report, SelfTest, findings, judge, read,
};
use serde_json::Value;

use crate::common::{fixtures, unpack};

/// When the disk joined, what came between, and now: two weeks.
const TIMES_S: [u64; 3] = [1_000_000, 1_604_800, 2_209_600];

fn base(name: &str) -> Value {
    let text = fs::read_to_string(fixtures().join(format!("health/{name}.json"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn cases() -> Vec<Value> {
    let text = fs::read_to_string(fixtures().join("health/cases.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// A document with what `change` says of it.
fn changed(document: &Value, change: &Value) -> Value {
    let mut document = document.clone();
    if let Some(patch) = change.get("merge") {
        merge(&mut document, patch);
    }
    let table = document
        .pointer_mut("/ata_smart_attributes/table")
        .and_then(Value::as_array_mut);
    if let Some(table) = table {
        let is_dropped = |entry: &Value| {
            let dropped = change["drop"].as_array().into_iter().flatten();
            dropped
                .into_iter()
                .any(|id| id.as_str() == Some(&entry["id"].to_string()))
        };
        table.retain(|entry| !is_dropped(entry));
        for entry in table {
            let id = entry["id"].to_string();
            if let Some(value) = change["attributes"].get(&id) {
                entry["raw"] = serde_json::json!({"value": value, "string": value.to_string()});
            }
            if let Some(raw) = change["raw"].get(&id) {
                entry["raw"] = serde_json::json!({"value": raw[0], "string": raw[1]});
            }
            if let Some(state) = change["when_failed"].get(&id) {
                entry["when_failed"] = state.clone();
            }
        }
    }
    document
}

/// RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = serde_json::json!({});
    }
    for (key, value) in patch {
        match value {
            Value::Null => {
                target.as_object_mut().unwrap().remove(key);
            }
            value => merge(&mut target[key], value),
        }
    }
}

fn ended(case: &Value) -> Ended {
    if let Some(after_ms) = case["timed_out_ms"].as_u64() {
        Ended::TimedOut { after_ms }
    } else if let Some(signal) = case["signal"].as_i64() {
        Ended::Killed {
            signal: signal as i32,
        }
    } else if case["not_installed"] == true {
        Ended::NotInstalled
    } else {
        Ended::Exited(ExitStatus(case["exit"].as_u64().unwrap_or(0) as u8))
    }
}

fn reading(read_unix_s: u64, document: &[u8], ended: Ended) -> Reading {
    Reading {
        read_unix_s,
        report: read(document, ended),
    }
}

fn good(read_unix_s: u64, document: &Value) -> Reading {
    reading(
        read_unix_s,
        document.to_string().as_bytes(),
        Ended::Exited(ExitStatus(0)),
    )
}

/// The baseline of a case, and its reading of now.
fn play(case: &Value) -> (Baseline, Reading) {
    let base = base(case["base"].as_str().unwrap());
    let mut baseline = Baseline::start(&good(TIMES_S[0], &changed(&base, &case["before"])));
    if let Some(between) = case.get("between") {
        baseline.follow(&good(TIMES_S[1], &changed(&base, between)));
    }
    let text = match case["text"].as_str() {
        Some(text) => text.to_owned(),
        None => changed(&base, case).to_string(),
    };
    (baseline, reading(TIMES_S[2], text.as_bytes(), ended(case)))
}

fn awake(report: &Report) -> &Health {
    match report {
        Report::Awake(health) => health,
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_document_has_its_verdict() {
    let cases = cases();
    assert!(cases.len() >= 40);
    for case in &cases {
        let name = case["name"].as_str().unwrap();
        let (mut baseline, now) = play(case);
        assert_eq!(
            judge(&baseline, &now).to_string(),
            case["expect"].as_str().unwrap(),
            "{name}"
        );
        let also: Vec<String> = findings(&baseline, &now)
            .iter()
            .skip(1)
            .map(ToString::to_string)
            .collect();
        let expected = case["also"].as_array().cloned().unwrap_or_default();
        assert_eq!(
            also,
            expected
                .iter()
                .map(|text| text.as_str().unwrap())
                .collect::<Vec<_>>(),
            "{name}"
        );
        if let Some(expected) = case["self_test"].as_str() {
            let SelfTest::Running {
                remaining_percent: Some(percent),
            } = awake(&now.report).self_test
            else {
                panic!("{name}: no self-test runs");
            };
            assert_eq!(format!("running {percent}"), expected, "{name}");
        }
        // To judge once more what was taken in changes nothing, and all of it can be written down.
        let verdict = judge(&baseline, &now);
        baseline.follow(&now);
        assert_eq!(judge(&baseline, &now), verdict, "{name}");
        let written = serde_json::to_string(&(&baseline, &now, &verdict)).unwrap();
        let (again, _, _): (Baseline, Reading, plexum_inventory::health::Verdict) =
            serde_json::from_str(&written).unwrap();
        assert_eq!(again, baseline, "{name}");
    }
}

#[test]
fn the_first_reading_of_a_disk_is_never_growth() {
    for case in cases() {
        let (_, now) = play(&case);
        let baseline = Baseline::start(&now);
        let verdict = judge(&baseline, &now).to_string();
        assert!(
            !verdict.starts_with("growing") && !verdict.starts_with("cable"),
            "{}: {verdict}",
            case["name"]
        );
    }
}

#[test]
fn who_the_disk_is_and_how_warm_is_read() {
    let health = |name: &str| {
        read(
            base(name).to_string().as_bytes(),
            Ended::Exited(ExitStatus(0)),
        )
    };
    let ata = health("ata");
    let ata = awake(&ata);
    assert_eq!(ata.protocol, Protocol::Ata);
    assert_eq!(ata.serial.as_deref(), Some("WD-WCC4E17"));
    assert_eq!(ata.wwn.as_deref(), Some("naa.50014ee2b3000017"));
    assert_eq!(
        (ata.power_on_hours, ata.temperature_c),
        (Some(31204), Some(31))
    );
    assert_eq!(
        (ata.temperature_max_c, ata.temperature_limit_c),
        (Some(44), Some(60))
    );
    assert_eq!(ata.self_test, SelfTest::Idle);
    let scsi = health("scsi");
    let scsi = awake(&scsi);
    assert_eq!(scsi.model.as_deref(), Some("SEAGATE ST4000NM0043"));
    assert_eq!(scsi.wwn.as_deref(), Some("naa.5000c500a1b2c3d4"));
    assert_eq!(
        (scsi.power_on_hours, scsi.temperature_limit_c),
        (Some(43549), Some(68))
    );
    assert_eq!(scsi.counters.invalid_words, Some(12));
    let nvme = health("nvme");
    let nvme = awake(&nvme);
    assert_eq!(nvme.wwn.as_deref(), Some("eui.0025384b11b0a001"));
    assert_eq!(nvme.critical_warning, Some(CriticalWarning(0)));
    assert_eq!(
        (nvme.available_spare_percent, nvme.spare_threshold_percent),
        (Some(100), Some(10))
    );
    assert_eq!(nvme.counters.used_percent, Some(4));
}

#[test]
fn what_smartctl_hears_behind_a_bridge_becomes_the_identity() {
    let report = read(
        base("ata").to_string().as_bytes(),
        Ended::Exited(ExitStatus(0)),
    );
    let health = awake(&report);
    let tree = unpack("usb-dock");
    let mut identity = Identity::read(&tree.roots, "sdc").unwrap();
    identity.complete_from(health);
    assert_eq!(identity.serial.as_deref(), Some("WD-WCC4E17"));
    assert_eq!(identity.model.as_deref(), Some("WDC WD40EFRX-68N32N0"));
    assert_eq!(
        identity.other_serials[0].serial, "20170331000C3",
        "the bridge's is kept beside it"
    );
    assert!(identity.wwn.is_some());
    // A bridge that answers smartctl as it answered the kernel teaches nothing.
    let mut fooled = Identity::read(&tree.roots, "sdd").unwrap();
    let before = fooled.clone();
    let bridge = Health {
        serial: before.serial.clone(),
        wwn: None,
        ..health.clone()
    };
    fooled.complete_from(&bridge);
    assert_eq!(fooled, before);
}

#[test]
fn no_document_is_too_damaged() {
    for name in ["ata", "ssd", "scsi", "nvme"] {
        let text = base(name).to_string().into_bytes();
        for end in (0..text.len()).step_by(97) {
            let report = read(&text[..end], Ended::Exited(ExitStatus(0)));
            assert!(
                matches!(report, Report::Silent(_)),
                "a cut document is none"
            );
        }
        for at in (0..text.len()).step_by(7) {
            let mut damaged = text.clone();
            damaged[at] ^= 0x15;
            let now = reading(
                TIMES_S[2],
                &damaged,
                Ended::Exited(ExitStatus((at % 256) as u8)),
            );
            let _ = judge(&Baseline::start(&now), &now).to_string();
        }
    }
    let deep = "[".repeat(100_000);
    assert!(matches!(
        read(deep.as_bytes(), Ended::Exited(ExitStatus(0))),
        Report::Silent(_)
    ));
    let long = vec![b' '; DOCUMENT_BYTES_MAX + 1];
    let report = read(&long, Ended::Exited(ExitStatus(0)));
    let now = Reading {
        read_unix_s: 0,
        report,
    };
    let verdict = judge(&Baseline::default(), &now).to_string();
    assert_eq!(
        verdict,
        "cannot tell: smartctl printed more than 4194304 bytes"
    );
}
