//! Every recorded configuration text makes the objects that gvinum made of it, or is refused with the line; what gvinum
//! got wrong is right here.

use plexum_format::vinum::{Config, Script};
use plexum_freebsd::gvinum::{Room, SHORTCUT_STRIP_BYTES, Shortcut, build, print_config};
use plexum_testkit::{freebsd_cases, freebsd_json};
use serde_json::{Value, json};

fn rooms(script: &Script, sizes: &[u64]) -> Vec<Room> {
    let drives = script.drives.iter();
    drives
        .map(|drive| {
            let number: usize = drive.device.trim_start_matches("/dev/da").parse().unwrap();
            Room {
                name: drive.name.clone(),
                size_bytes: sizes[number],
            }
        })
        .collect()
}

fn printed(script: &Script, config: &Config) -> Vec<String> {
    let drives = script.drives.iter().rev();
    let drives: Vec<(String, String)> = drives
        .map(|drive| (drive.name.clone(), drive.device.clone()))
        .collect();
    print_config(config, &drives)
        .lines()
        .map(str::to_owned)
        .collect()
}

fn sizes(list: &Value) -> Vec<u64> {
    list.as_array()
        .unwrap()
        .iter()
        .map(|size| size.as_u64().unwrap())
        .collect()
}

#[test]
fn every_recorded_text_makes_the_recorded_objects() {
    let cases = freebsd_json("gvinum-config-cases.json");
    let mut made = 0;
    for case in cases.as_array().unwrap() {
        let id = case["id"].as_str().unwrap();
        let text = case["config"].as_str().unwrap();
        let messages = case["upstream_messages"].as_array().unwrap();
        let script = match Script::parse(text.as_bytes()) {
            Ok(script) => script,
            Err(errors) => {
                let line = format!("line {}:", errors[0].line);
                let expected = messages
                    .iter()
                    .any(|text| text.as_str().unwrap().starts_with(&line));
                assert!(expected, "{id}: {errors:?}");
                assert_eq!(case["upstream_result"], json!([]), "{id}");
                continue;
            }
        };
        let built = build(
            &script,
            &rooms(&script, &sizes(&case["device_sizes"])),
            &Config::default(),
        );
        if id == "c06_no_space" {
            // gvinum leaves the objects made so far behind; here nothing is made.
            let error = built.unwrap_err();
            assert_eq!(
                error.to_string(),
                "line 4: not enough space on d0 for a.p0.s0"
            );
            continue;
        }
        let config = built.unwrap_or_else(|error| panic!("{id}: {error}"));
        let mut expected = case["upstream_result"].to_string();
        let mut states = case["upstream_states"].to_string();
        if id == "c11_setupstate" {
            // gvinum took the keyword for the name.
            (expected, states) = (
                expected.replace("setupstate", "s64"),
                states.replace("setupstate", "s64"),
            );
        }
        assert_eq!(
            json!(printed(&script, &config)).to_string(),
            expected,
            "{id}"
        );
        let states: Value = serde_json::from_str(&states).unwrap();
        for volume in &config.volumes {
            assert_eq!(states["volumes"][&volume.name], volume.state.name(), "{id}");
        }
        for plex in &config.plexes {
            assert_eq!(states["plexes"][&plex.name], plex.state.name(), "{id}");
        }
        for subdisk in &config.subdisks {
            assert_eq!(
                states["subdisks"][&subdisk.name],
                subdisk.state.name(),
                "{id}"
            );
        }
        made += 1;
    }
    assert_eq!(made, 9);
}

#[test]
fn the_texts_of_the_golden_images_make_their_objects() {
    let mut checked = 0;
    for case in freebsd_cases("gvinum") {
        let Some(text) = case["user_config"].as_str() else {
            continue;
        };
        let id = case["id"].as_str().unwrap();
        let script = Script::parse(text.as_bytes()).unwrap();
        let drives = case["drives"].as_array().unwrap();
        let sizes: Vec<u64> = drives
            .iter()
            .map(|drive| drive["size"].as_u64().unwrap())
            .collect();
        let config = build(&script, &rooms(&script, &sizes), &Config::default()).unwrap();
        let found: Vec<String> = config.to_string().lines().map(str::to_owned).collect();
        assert_eq!(json!(found), drives[0]["config_lines"], "{id}");
        checked += 1;
    }
    assert_eq!(checked, 7);
}

#[test]
fn shortcuts_make_what_the_commands_of_gvinum_made() {
    let case = freebsd_cases("gvinum")
        .into_iter()
        .find(|case| case["id"] == "gv06_raid10_shortcut")
        .unwrap();
    let drives = case["drives"].as_array().unwrap();
    let devices: Vec<String> = (0..drives.len())
        .map(|number| format!("/dev/da{number}"))
        .collect();
    let strip_bytes = SHORTCUT_STRIP_BYTES;
    let text = Shortcut::StripedMirror { strip_bytes }
        .script("data", &devices, 0)
        .unwrap();
    let script = Script::parse(text.as_bytes()).unwrap();
    let sizes: Vec<u64> = drives
        .iter()
        .map(|drive| drive["size"].as_u64().unwrap())
        .collect();
    let config = build(&script, &rooms(&script, &sizes), &Config::default()).unwrap();
    let mut found: Vec<String> = config.to_string().lines().map(str::to_owned).collect();
    let mut expected: Vec<String> =
        serde_json::from_value(drives[0]["config_lines"].clone()).unwrap();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    for (shortcut, count) in [
        (Shortcut::Stripe { strip_bytes }, 1),
        (Shortcut::Raid5 { strip_bytes }, 2),
        (Shortcut::Mirror, 3),
        (Shortcut::StripedMirror { strip_bytes }, 2),
        (Shortcut::Concat, 0),
    ] {
        assert!(
            shortcut.script("v", &devices[..count], 0).is_err(),
            "{shortcut:?}"
        );
    }
}

#[test]
fn dangling_names_doubles_and_holes_are_refused_and_nothing_is_made() {
    let room = |name: &str| Room {
        name: name.to_owned(),
        size_bytes: 1 << 20,
    };
    let rooms = [room("a"), room("b")];
    let build = |text: &str| {
        let script = Script::parse(text.as_bytes()).unwrap();
        build(&script, &rooms, &Config::default())
    };
    for (text, expected) in [
        (
            "volume v\nplex org concat\nsd length 1k drive c",
            "line 3: there is no drive c",
        ),
        (
            "volume v\nplex org concat volume w",
            "line 2: there is no volume w",
        ),
        (
            "volume v\nplex org concat\nsd length 1k drive a plex v.p9",
            "line 3: there is no plex v.p9",
        ),
        ("volume v\nvolume v", "line 2: a volume v exists"),
        (
            "volume v\nplex name p org concat\nplex name p org concat",
            "line 3: a plex p exists",
        ),
        (
            "volume v\nplex org concat\nsd name s length 1k drive a\nsd name s length 1k drive a",
            "line 4: a subdisk s exists",
        ),
        (
            "volume v\nplex org striped 256k\nsd length 100k drive a",
            "line 3: v.p0.s0 is smaller than a stripe",
        ),
        (
            "volume v\nplex org concat\nsd length 1k drive a plexoffset 4k",
            "line 2: v.p0: v.p0.s0 begins",
        ),
        (
            "volume v\nplex org concat\nsd length 1k drive a driveoffset 2m",
            "line 3: not enough space",
        ),
    ] {
        let error = build(text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
    // More objects than the text on a drive holds.
    let mut many = "volume v\n".to_owned();
    for number in 0..800 {
        many += &format!(
            "plex name plex-with-a-name-that-is-quite-long-{number} org concat\n sd length 1s drive a\n"
        );
    }
    assert!(build(&many).unwrap_err().message.contains("does not fit"));
}
