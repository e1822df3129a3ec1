//! Every golden image of FreeBSD's classes is read through the engine: whole, with members or drives missing, in any
//! order. Nothing is ever written to a member.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::common::{Memory, Still, run};
use plexum_block::boxed::BoxedDevice;
use plexum_block::buf::{BufPool, Rope};
use plexum_block::clock::Clock;
use plexum_block::device::{Device, IoError};
use plexum_engine::volume::{Volume, VolumeOptions};
use plexum_freebsd::gmirror::{Key, MirrorRequest, open_mirror};
use plexum_freebsd::gvinum::{
    FoundDrive, OpenedSystem, System, SystemRequest, assemble, open_system, read_drive,
};
use plexum_freebsd::labels::ForeignError;
use plexum_freebsd::stripe_concat::{JoinedFormat, open_joined};
use plexum_testkit::{freebsd_cases, unpack_freebsd_case};
use serde_json::{Value, json};

/// Odd on purpose, so that pieces begin and end anywhere in strips.
const READ_BYTES: u64 = 512 * 371;

fn pool() -> BufPool {
    BufPool::new(1 << 22)
}

fn reading() -> VolumeOptions {
    VolumeOptions {
        is_read_only: true,
        ..VolumeOptions::default()
    }
}

/// The members or drives of a case, by file, named after their providers.
fn members(case: &Value, list: &str) -> Vec<(String, String, Memory)> {
    let unpacked = unpack_freebsd_case(case["id"].as_str().unwrap());
    let members = case[list].as_array().unwrap().iter();
    members
        .map(|member| {
            let file = member["file"].as_str().unwrap().to_owned();
            let provider = member["provider"].as_str().unwrap().to_owned();
            let device = Memory::new(unpacked.read(&file));
            (file, provider, device)
        })
        .collect()
}

fn number(text: &Value) -> u64 {
    u64::from_str_radix(text.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

fn read_all<D: Device, C: Clock>(volume: &Volume<D, C>, place: &str) -> Vec<u8> {
    let mut content = Vec::new();
    while (content.len() as u64) < volume.size_bytes() {
        let at = content.len() as u64;
        let length = READ_BYTES.min(volume.size_bytes() - at) / u64::from(volume.sector_bytes())
            * u64::from(volume.sector_bytes());
        let rope: Result<Rope, IoError> = run(volume.read(at, usize::try_from(length).unwrap()));
        content.extend_from_slice(
            &rope
                .unwrap_or_else(|error| panic!("{place}: {error}"))
                .to_vec(),
        );
    }
    content
}

fn expect_seed(content: &[u8], seed_of: impl Fn(u64) -> u64, place: &str) {
    for (at, bytes) in (0_u64..).step_by(8).zip(content.chunks_exact(8)) {
        let value = u64::from_le_bytes(bytes.try_into().unwrap());
        assert_eq!(value, at ^ seed_of(at), "{place}, byte {at}");
    }
}

#[test]
fn every_golden_mirror_is_read_with_any_members_missing() {
    let mut reads = 0;
    for case in freebsd_cases("gmirror") {
        let id = case["id"].as_str().unwrap();
        let all = members(&case, "members");
        let recorded = &case["upstream_behaviour"];
        let seed = number(&case["seed"]);
        for mask in 1_u32..1 << all.len() {
            let given: Vec<usize> = (0..all.len())
                .filter(|index| mask >> index & 1 == 1)
                .collect();
            let place = format!("{id} with {given:?}");
            let devices = given
                .iter()
                .map(|index| (all[*index].1.clone(), all[*index].2.clone()));
            let request = MirrorRequest {
                run_degraded: false,
                ignores_names: false,
                volume: reading(),
                balance: None,
                name: None,
            };
            let opened = run(open_mirror(
                devices.collect(),
                Still::default(),
                pool(),
                request,
            ));
            let is_current = |index: &&usize| {
                let after = &recorded["after_start_timeout"]["components"];
                after[index.to_string()]["state"] == "ACTIVE"
            };
            let has_current = given.iter().any(|index| is_current(&index));
            let (volume, assembled) = match opened {
                Ok(opened) => opened,
                Err(error) => {
                    assert!(!has_current, "{place}: {error}");
                    continue;
                }
            };
            assert_eq!(
                json!(volume.size_bytes()),
                recorded["volume_size"],
                "{place}"
            );
            let content = read_all(&volume, &place);
            reads += 1;
            // Who is alone, or together with others that are no newer, shows what it has.
            if has_current {
                expect_seed(&content, |_| seed, &place);
            } else if id.starts_with("gm05") {
                let new = |at| (65_536..131_072).contains(&at);
                let others = number(&json!("0x5eedAAAA"));
                expect_seed(&content, |at| if new(at) { others } else { seed }, &place);
            }
            for (Key(index), _) in &assembled.refused {
                let index = given[*index];
                assert!(!is_current(&&index), "{place}: {index} is not used");
            }
        }
        for (file, _, device) in &all {
            assert_eq!(device.writes.get(), 0, "{id} {file} was written to");
        }
    }
    assert!(reads > 40, "only {reads} mirrors were read");
}

fn open(drives: &[(String, Memory)]) -> Result<OpenedSystem<BoxedDevice, Still>, ForeignError> {
    let devices = drives
        .iter()
        .map(|(name, device)| (name.clone(), BoxedDevice::new(Rc::new(device.clone()))));
    let request = SystemRequest {
        volume: reading(),
        ..SystemRequest::default()
    };
    run(open_system(
        devices.collect(),
        Still::default(),
        pool(),
        request,
    ))
}

/// The states of a system as the manifest tells them.
fn shown(system: &System) -> Value {
    let drives: BTreeMap<&str, Value> = system
        .drives
        .iter()
        .map(|drive| {
            let state = if drive.is_up() { "up" } else { "down" };
            (drive.name.as_str(), json!(state))
        })
        .collect();
    let config = &system.config;
    let volumes = config
        .volumes
        .iter()
        .map(|one| (one.name.as_str(), one.state.name()));
    let plexes = config
        .plexes
        .iter()
        .map(|one| (one.name.as_str(), one.state.name()));
    let subdisks = config
        .subdisks
        .iter()
        .map(|one| (one.name.as_str(), one.state.name()));
    json!({
        "drives": drives,
        "volumes": volumes.collect::<BTreeMap<_, _>>(),
        "plexes": plexes.collect::<BTreeMap<_, _>>(),
        "subdisks": subdisks.collect::<BTreeMap<_, _>>(),
    })
}

fn states_of(recorded: &Value) -> Value {
    let kind = |kind: &str| -> BTreeMap<String, Value> {
        let objects = recorded[kind].as_object().unwrap().iter();
        objects
            .map(|(name, object)| (name.clone(), object["state"].clone()))
            .collect()
    };
    json!({"drives": kind("drives"), "volumes": kind("volumes"), "plexes": kind("plexes"),
        "subdisks": kind("subdisks")})
}

fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for order in orders(count - 1) {
        for at in 0..=order.len() {
            let mut longer = order.clone();
            longer.insert(at, count - 1);
            all.push(longer);
        }
    }
    all
}

fn check_system(case: &Value, drives: &[(String, Memory)], recorded: &Value, place: &str) -> usize {
    let opened = open(drives).unwrap_or_else(|error| panic!("{place}: {error}"));
    assert_eq!(shown(&opened.system), states_of(recorded), "{place}");
    let mut reads = 0;
    for (name, read) in recorded["reads"].as_object().unwrap() {
        let volume = opened
            .volumes
            .iter()
            .find(|opened| opened.volume.name() == name);
        if read["errno"] != 0 {
            assert!(volume.is_none(), "{place}: {name} is served");
            assert!(
                opened.refused.iter().any(|(refused, _)| refused == name),
                "{place}"
            );
            continue;
        }
        let Some(opened) = volume else {
            panic!("{place}: {name} is not served: {:?}", opened.refused);
        };
        let volume = &opened.volume;
        assert_eq!(json!(volume.size_bytes()), read["size"], "{place}: {name}");
        // The only case whose newest drive is away shows what the other one has.
        let is_old = place.starts_with("gv08") && place.ends_with("without d0.img");
        for _ in 0..2 {
            let content = read_all(volume, place);
            reads += 1;
            let seed = number(&case["seeds"][name]);
            let first = u64::from_le_bytes(content[..8].try_into().unwrap());
            assert_eq!(first == seed, !is_old, "{place}: {name}");
            expect_seed(&content, |_| first, place);
        }
    }
    reads
}

#[test]
fn every_golden_system_is_read_whole_and_with_each_drive_missing() {
    let mut reads = 0;
    let cases = freebsd_cases("gvinum");
    assert_eq!(cases.len(), 13);
    for case in cases {
        let id = case["id"].as_str().unwrap();
        let all = members(&case, "drives");
        let drives: Vec<(String, Memory)> = all
            .iter()
            .map(|(_, provider, device)| (provider.clone(), device.clone()))
            .collect();
        reads += check_system(&case, &drives, &case["upstream_all_drives"], id);
        for (file, recorded) in case["upstream_one_drive_missing"]
            .as_object()
            .into_iter()
            .flatten()
        {
            let at = all.iter().position(|(known, _, _)| known == file).unwrap();
            let mut fewer = drives.clone();
            fewer.remove(at);
            reads += check_system(&case, &fewer, recorded, &format!("{id} without {file}"));
        }
        for (file, _, device) in &all {
            assert_eq!(device.writes.get(), 0, "{id} {file} was written to");
        }
    }
    assert!(reads > 80, "only {reads} reads");
}

#[test]
fn the_order_of_discovery_does_not_matter() {
    for case in freebsd_cases("gvinum") {
        let id = case["id"].as_str().unwrap();
        let all = members(&case, "drives");
        let found: Vec<FoundDrive> = all
            .iter()
            .enumerate()
            .map(|(index, (_, name, device))| {
                run(read_drive(device, &pool(), index, name)).unwrap()
            })
            .collect();
        let expected = states_of(&case["upstream_all_drives"]);
        let count = found.len().min(4);
        for order in orders(count) {
            let mut arranged: Vec<FoundDrive> =
                order.iter().map(|index| found[*index].clone()).collect();
            arranged.extend(found[count..].iter().cloned());
            let system = assemble(&arranged).unwrap();
            assert_eq!(shown(&system), expected, "{id} in order {order:?}");
        }
    }
}

#[test]
fn stripes_and_concatenations_need_all_members_in_any_order() {
    for (kind, format) in [
        ("gstripe", JoinedFormat::Stripe),
        ("gconcat", JoinedFormat::Concat),
    ] {
        for case in freebsd_cases(kind) {
            let id = case["id"].as_str().unwrap();
            let all = members(&case, "members");
            let present = case["present"].as_array().unwrap();
            let given: Vec<(String, Memory)> = all
                .iter()
                .filter(|(file, _, _)| present.contains(&json!(file)))
                .map(|(_, provider, device)| (provider.clone(), device.clone()))
                .collect();
            let open = |devices: Vec<(String, Memory)>| {
                run(open_joined(
                    devices,
                    format,
                    Still::default(),
                    pool(),
                    reading(),
                    None,
                ))
            };
            if present.len() < all.len() {
                let refused = open(given.clone()).err();
                assert!(matches!(refused, Some(ForeignError::Missing(_))), "{id}");
                let whole = all
                    .iter()
                    .map(|(_, provider, device)| (provider.clone(), device.clone()));
                assert!(open(whole.collect()).is_ok(), "{id} whole");
                continue;
            }
            for order in orders(given.len()) {
                let devices = order.iter().map(|index| given[*index].clone()).collect();
                let (volume, _) = open(devices).unwrap_or_else(|error| panic!("{id}: {error}"));
                let size = &case["upstream_behaviour"]["volume_size"];
                assert_eq!(json!(volume.size_bytes()), *size, "{id}");
                let seed = number(&case["seed"]);
                expect_seed(&read_all(&volume, id), |_| seed, id);
            }
            for missing in 0..given.len() {
                let mut fewer = given.clone();
                fewer.remove(missing);
                let refused = open(fewer).err();
                assert!(
                    matches!(refused, Some(ForeignError::Missing(_))),
                    "{id} without {missing}"
                );
            }
            let mut twice = given.clone();
            twice.push(given[0].clone());
            assert!(
                matches!(open(twice).err(), Some(ForeignError::Unfit(Some(_), _))),
                "{id}"
            );
        }
    }
}

/// What no whole plex has, several may have together (classic Vinum).
#[test]
fn parts_that_one_plex_lacks_are_read_from_another() {
    let cases = freebsd_cases("gvinum");
    let case = cases
        .iter()
        .find(|case| case["id"] == "gv06_raid10_shortcut")
        .unwrap();
    let all = members(case, "drives");
    let drives: Vec<(String, Memory)> = all
        .iter()
        .map(|(_, provider, device)| (provider.clone(), device.clone()))
        .collect();
    // Two striped plexes: 0 and 2 are one, 1 and 3 the other. Without 0 and 3 both are half.
    for (lost, is_served) in [
        ([0, 3], true),
        ([1, 2], true),
        ([0, 1], false),
        ([2, 3], false),
    ] {
        let given: Vec<(String, Memory)> = (0..4)
            .filter(|index| !lost.contains(index))
            .map(|index| drives[index].clone())
            .collect();
        let opened = open(&given).unwrap();
        assert_eq!(
            opened.volumes.len(),
            usize::from(is_served),
            "without {lost:?}"
        );
        if let Some(opened) = opened.volumes.first() {
            assert!(opened.read_only_reason.is_some());
            let content = read_all(&opened.volume, "gv06");
            let seed = number(&case["seeds"]["data"]);
            expect_seed(&content, |_| seed, &format!("gv06 without {lost:?}"));
        }
    }
}
