//! Drives that gvinum and the original Vinum's format left behind are decoded as the manifest says.

use plexum_format::vinum::{CONFIG_BYTES, CONFIG_OFFSETS_BYTES, Config, DriveHeader, HeaderFormat};
use plexum_format::{Found, detect};
use plexum_testkit::{freebsd_cases, unpack_freebsd_case};
use proptest::prelude::*;
use serde_json::Value;

fn copies(bytes: &[u8]) -> [&[u8]; 2] {
    CONFIG_OFFSETS_BYTES.map(|offset| &bytes[offset as usize..(offset + CONFIG_BYTES) as usize])
}

fn for_each_drive(mut check: impl FnMut(&str, &Value, &Value, &[u8])) {
    for case in freebsd_cases("gvinum") {
        let id = case["id"].as_str().unwrap();
        let unpacked = unpack_freebsd_case(id);
        let drives = case["drives"].as_array().unwrap();
        for drive in drives {
            let file = drive["file"].as_str().unwrap();
            let lines = match &drive["config_lines"] {
                Value::Array(_) => &drive["config_lines"],
                _ => &drives[0]["config_lines"],
            };
            check(&format!("{id}/{file}"), drive, lines, &unpacked.read(file));
        }
    }
}

#[test]
fn every_header_says_what_the_manifest_says_and_is_written_back() {
    let mut count = 0;
    for_each_drive(|name, drive, _, bytes| {
        count += 1;
        let area = &bytes[4096..4608];
        let header = DriveHeader::parse(area, 4096).unwrap();
        let expected = &drive["header"];
        if expected["format"] == "legacy" {
            let is_64bit = name.contains("amd64");
            let format = HeaderFormat::Legacy {
                is_64bit,
                is_big_endian: false,
            };
            assert_eq!(header.format, format, "{name}");
            assert!(header.name.starts_with("drv"), "{name}: {}", header.name);
            return;
        }
        assert_eq!(header.format, HeaderFormat::Current, "{name}");
        assert_eq!(expected["name"], header.name.as_str(), "{name}");
        assert_eq!(expected["sysname"], header.host.as_str(), "{name}");
        let time = |(seconds, micros): (u64, u64)| serde_json::json!([seconds, micros]);
        assert_eq!(expected["date_of_birth"], time(header.created), "{name}");
        assert_eq!(expected["last_update"], time(header.updated), "{name}");
        assert!(header.encode() == area, "{name}: written otherwise");
        let mut reader = |offset: u64, buffer: &mut [u8]| -> Result<(), ()> {
            buffer.copy_from_slice(&bytes[offset as usize..offset as usize + buffer.len()]);
            Ok(())
        };
        let detection = detect(bytes.len() as u64 / 512, &mut reader).unwrap();
        assert_eq!(
            detection.best(),
            Some(&Found::Vinum(Box::new(header))),
            "{name}"
        );
    });
    assert!(count >= 30, "{count}");
}

#[test]
fn every_configuration_is_understood_and_written_back_byte_for_byte() {
    for_each_drive(|name, drive, lines, bytes| {
        for copy in copies(bytes) {
            let config = Config::parse(copy, 4608).unwrap();
            let text = config.to_string();
            let expected: Vec<&str> = lines
                .as_array()
                .unwrap()
                .iter()
                .map(|l| l.as_str().unwrap())
                .collect();
            assert_eq!(text.lines().collect::<Vec<_>>(), expected, "{name}");
            assert!(
                config.encode().unwrap() == copy,
                "{name}: written otherwise"
            );
            let header = DriveHeader::parse(&bytes[4096..4608], 4096).unwrap();
            config
                .check_drive(&header.name, bytes.len() as u64)
                .unwrap();
            let on_it = config
                .subdisks
                .iter()
                .filter(|subdisk| subdisk.drive == header.name);
            assert!(
                on_it.count() > 0 || drive["header"]["format"] == "current",
                "{name}"
            );
        }
    });
}

#[test]
fn a_stale_drive_does_not_decide() {
    let unpacked = unpack_freebsd_case("gv08_stale_drive");
    let drives: Vec<Vec<u8>> = ["d0.img", "d1.img"].map(|file| unpacked.read(file)).into();
    let headers: Vec<DriveHeader> = drives
        .iter()
        .map(|bytes| DriveHeader::parse(&bytes[4096..], 4096).unwrap())
        .collect();
    for order in [[0, 1], [1, 0]] {
        let given = order.map(|index: usize| (&headers[index], copies(&drives[index])));
        let (index, config) = Config::newest(&given).unwrap();
        assert_eq!(order[index], 0, "drv0 was updated last");
        let state = |name: &str| {
            config
                .subdisks
                .iter()
                .find(|s| s.name == name)
                .unwrap()
                .state
                .name()
        };
        assert_eq!((state("mir.p0.s0"), state("mir.p1.s0")), ("up", "down"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_refused_or_read_back(
        lines in prop::collection::vec(
            "(volume|plex|sd|drive)( (name|org|vol|drive|len|driveoffset|plex|plexoffset|state|raid5|concat|up|stale|a|b|[0-9]{1,4}s|[0-9]{1,25}[kmgb]?|[ -~]{0,6})){0,12}",
            0..6,
        ),
    ) {
        if let Ok(config) = Config::parse(lines.join("\n").as_bytes(), 0) {
            let again = Config::parse(config.to_string().as_bytes(), 0);
            prop_assert_eq!(again, Ok(config));
        }
    }

    #[test]
    fn subdisks_that_make_sense_are_read_back(
        pieces in prop::collection::vec((1_u64..1000, 0_u64..50), 1..8),
        strip in 1_u64..100,
    ) {
        let mut text = format!("volume v state up\nplex name v.p0 org striped {strip}s vol v state up\n");
        let mut offset = 265;
        for (index, (length, gap)) in pieces.into_iter().enumerate() {
            offset += gap;
            text += &format!(
                "sd name v.p0.s{index} drive d len {length}s driveoffset {offset}s plex v.p0 plexoffset {}s state up\n",
                index as u64 * strip
            );
            offset += length;
        }
        prop_assert_eq!(Config::parse(text.as_bytes(), 0).unwrap().to_string(), text);
    }

    #[test]
    fn any_header_is_refused_or_read_back(
        magic in prop::sample::select(vec![*b"VINUM-1\0", *b"IN VINO\0", *b"\0ONIV NI", *b"NO VINO\0"]),
        bytes in prop::collection::vec(prop_oneof![3 => Just(0_u8), 1 => any::<u8>()], 504),
        length_at in prop::sample::select(&[10_usize, 13, 9][..]),
    ) {
        let mut area = magic.to_vec();
        area.extend_from_slice(&bytes);
        area[8..16].fill(0);
        area[length_at] = 1;
        if let Ok(header) = DriveHeader::parse(&area, 4096) {
            let again = DriveHeader::parse(&header.encode(), 4096).unwrap();
            prop_assert_eq!((&again.name, again.updated), (&header.name, header.updated));
            if header.format == HeaderFormat::Current {
                prop_assert_eq!(&header.encode()[..], &area[..]);
            }
        }
    }
}
