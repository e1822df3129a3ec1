//! What FreeBSD's kernel wrote at the end of providers is decoded as the manifest says and written back byte for byte.

use plexum_format::gconcat::ConcatLabel;
use plexum_format::gmirror::{Balance, MirrorLabel, NewMirrorLabel};
use plexum_format::gstripe::StripeLabel;
use plexum_format::{Found, Problem, Slot, detect};
use plexum_testkit::{freebsd_cases, unpack_freebsd_case};
use proptest::prelude::*;
use serde_json::Value;

struct Member {
    name: String,
    bytes: Vec<u8>,
    /// Size of the provider, and where its last sector begins.
    size: u64,
    offset: u64,
    metadata: Value,
}

impl Member {
    fn sector(&self) -> &[u8] {
        &self.bytes[self.offset as usize..]
    }

    fn found(&self) -> Option<Found> {
        let mut reader = |offset: u64, buffer: &mut [u8]| -> Result<(), ()> {
            buffer.copy_from_slice(&self.bytes[offset as usize..offset as usize + buffer.len()]);
            Ok(())
        };
        detect(self.size / 512, &mut reader)
            .unwrap()
            .best()
            .cloned()
    }
}

fn members(kind: &str) -> Vec<Member> {
    let mut members = Vec::new();
    for case in freebsd_cases(kind) {
        let id = case["id"].as_str().unwrap();
        let unpacked = unpack_freebsd_case(id);
        for member in case["members"].as_array().unwrap() {
            let file = member["file"].as_str().unwrap();
            let size = member["size"].as_u64().unwrap();
            members.push(Member {
                name: format!("{id}/{file}"),
                bytes: unpacked.read(file),
                size,
                offset: size - member["sector_size"].as_u64().unwrap(),
                metadata: member["metadata"].clone(),
            });
        }
    }
    assert!(!members.is_empty());
    members
}

fn flags(value: &Value) -> Vec<&str> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|flag| flag.as_str().unwrap())
        .collect()
}

#[test]
fn every_mirror_label_says_what_the_manifest_says() {
    let mut count = 0;
    for member in members("gmirror") {
        let (name, expected) = (&member.name, &member.metadata);
        count += 1;
        let label = MirrorLabel::parse(member.sector(), member.offset, member.size).unwrap();
        for (found, key) in [
            (u64::from(label.version), "version"),
            (u64::from(label.mirror_id), "mid"),
            (u64::from(label.component_id), "did"),
            (u64::from(label.component_count), "all"),
            (u64::from(label.generation_id), "genid"),
            (u64::from(label.sync_id), "syncid"),
            (u64::from(label.priority), "priority"),
            (u64::from(label.slice_bytes), "slice"),
            (label.volume_bytes, "mediasize"),
            (u64::from(label.sector_bytes), "sectorsize"),
            (label.sync_offset_bytes, "sync_offset"),
            (label.provider_bytes, "provsize"),
        ] {
            assert_eq!(Some(found), expected[key].as_u64(), "{name} {key}");
        }
        assert_eq!(expected["name"], label.name.as_str(), "{name}");
        assert_eq!(expected["provider"], label.provider.as_str(), "{name}");
        assert_eq!(expected["balance"], label.balance.name(), "{name}");
        let named = |flags: &[(bool, &'static str)]| -> Vec<&str> {
            flags
                .iter()
                .filter(|(is_set, _)| *is_set)
                .map(|(_, name)| *name)
                .collect()
        };
        let mirror = named(&[
            (label.has_no_autosync, "NOAUTOSYNC"),
            (label.has_no_failsync, "NOFAILSYNC"),
        ]);
        assert_eq!(mirror, flags(&expected["mflags"]), "{name}");
        let component = named(&[
            (label.is_dirty, "DIRTY"),
            (label.is_rebuilding, "SYNCHRONIZING"),
            (label.is_rebuild_forced, "FORCE_SYNC"),
            (label.is_inactive, "INACTIVE"),
            (label.can_trim, "CANDELETE"),
        ]);
        assert_eq!(component, flags(&expected["dflags"]), "{name}");
        assert!(
            label.encode() == member.sector()[..512],
            "{name}: written otherwise"
        );
        assert_eq!(
            member.found(),
            Some(Found::Gmirror(Box::new(label))),
            "{name}"
        );
    }
    assert!(count >= 30, "{count}");
}

#[test]
fn every_stripe_and_concat_label_says_what_the_manifest_says() {
    for member in members("gstripe") {
        let (name, expected) = (&member.name, &member.metadata);
        let label = StripeLabel::parse(member.sector(), member.offset, member.size).unwrap();
        assert_eq!(expected["version"], label.version, "{name}");
        assert_eq!(expected["name"], label.name.as_str(), "{name}");
        assert_eq!(expected["id"], label.volume_id, "{name}");
        assert_eq!(expected["no"], label.slot.0, "{name}");
        assert_eq!(expected["all"], label.member_count, "{name}");
        assert_eq!(expected["stripesize"], label.strip_bytes, "{name}");
        assert_eq!(expected["provider"], label.provider.as_str(), "{name}");
        assert_eq!(
            expected["provsize"].as_u64(),
            label.provider_bytes,
            "{name}"
        );
        assert!(
            label.encode() == member.sector()[..512],
            "{name}: written otherwise"
        );
        assert_eq!(
            member.found(),
            Some(Found::Gstripe(Box::new(label))),
            "{name}"
        );
    }
    for member in members("gconcat") {
        let (name, expected) = (&member.name, &member.metadata);
        let label = ConcatLabel::parse(member.sector(), member.offset, member.size).unwrap();
        assert_eq!(expected["version"], label.version, "{name}");
        assert_eq!(expected["name"], label.name.as_str(), "{name}");
        assert_eq!(expected["id"], label.volume_id, "{name}");
        assert_eq!(expected["no"], label.slot.0, "{name}");
        assert_eq!(expected["all"], label.member_count, "{name}");
        assert_eq!(
            expected["provsize"].as_u64(),
            label.provider_bytes,
            "{name}"
        );
        assert!(
            label.encode() == member.sector()[..512],
            "{name}: written otherwise"
        );
        assert_eq!(
            member.found(),
            Some(Found::Gconcat(Box::new(label))),
            "{name}"
        );
    }
}

#[test]
fn every_flipped_bit_of_a_mirror_label_is_refused() {
    let member = &members("gmirror")[0];
    for bit in 0..135 * 8 {
        let mut sector = member.sector().to_vec();
        sector[bit / 8] ^= 1 << (bit % 8);
        let result = MirrorLabel::parse(&sector, member.offset, member.size);
        assert!(result.is_err(), "bit {} of byte {}", bit % 8, bit / 8);
    }
}

#[test]
fn a_label_of_another_provider_size_is_foreign() {
    let member = &members("gmirror")[0];
    let longer = MirrorLabel::parse(member.sector(), member.offset + 512, member.size + 512);
    assert_eq!(longer.unwrap_err().problem, Problem::Foreign);
    let member = &members("gstripe")[0];
    let longer = StripeLabel::parse(member.sector(), member.offset, member.size + 512);
    assert_eq!(longer.unwrap_err().problem, Problem::Foreign);
}

fn new_label(name: &str) -> NewMirrorLabel<'_> {
    NewMirrorLabel {
        name,
        mirror_id: 1,
        component_id: 2,
        component_count: 2,
        priority: 0,
        slice_bytes: 4096,
        balance: Balance::Load,
        volume_bytes: 1 << 20,
        sector_bytes: 512,
        provider_bytes: (1 << 20) + 512,
    }
}

#[test]
fn a_new_label_is_version_4_in_sync_and_clean() {
    let label = MirrorLabel::create(&new_label("gm0")).unwrap();
    assert_eq!(
        (label.version, label.sync_id, label.generation_id),
        (4, 1, 0)
    );
    assert!(!label.is_dirty && !label.is_rebuilding);
    assert_eq!(
        MirrorLabel::create(&new_label("a name too long"))
            .unwrap()
            .name
            .len(),
        15
    );
    for name in ["", "sixteen letters!", "a/b", "a\n"] {
        assert_eq!(
            MirrorLabel::create(&new_label(name)).unwrap_err().field,
            "name"
        );
    }
    let mut large = new_label("gm0");
    large.volume_bytes += 512;
    assert_eq!(MirrorLabel::create(&large).unwrap_err().field, "media size");
    assert!(StripeLabel::create("v", 7, (Slot(2), 2), 65536, 1 << 20).is_err());
    assert!(StripeLabel::create("v", 7, (Slot(1), 2), 65536, 1 << 20).is_ok());
    assert!(ConcatLabel::create("v", 7, (Slot(0), 1), 1 << 20).is_ok());
}

#[test]
fn an_older_label_becomes_version_4_with_all_its_values() {
    let member = members("gmirror")
        .into_iter()
        .find(|m| m.name.starts_with("gm14"))
        .unwrap();
    let mut label = MirrorLabel::parse(member.sector(), member.offset, member.size).unwrap();
    assert_eq!(label.version, 3);
    label.version = 4;
    let new = MirrorLabel::parse(&label.encode(), member.offset, member.size).unwrap();
    assert_eq!(
        (new.version, &new.name, new.sync_id),
        (4, &label.name, label.sync_id)
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn labels_of_all_versions_are_read_back(
        version in 0_u32..=4,
        edits in prop::collection::vec((16_usize..135, any::<u8>()), 0..6),
        sync_id in any::<u32>(),
        is_dirty in any::<bool>(),
    ) {
        let mut label = MirrorLabel::create(&new_label("gm0")).unwrap();
        label.version = version;
        label.sync_id = sync_id;
        label.is_dirty = is_dirty;
        let mut sector = label.encode();
        let size = (1 << 20) + 512;
        let read = MirrorLabel::parse(&sector, 1 << 20, size).unwrap();
        prop_assert_eq!((read.version, read.sync_id, read.is_dirty), (version, sync_id, is_dirty));
        prop_assert_eq!(read.encode(), sector);
        for (offset, byte) in edits {
            sector[offset] = byte;
        }
        prop_assert!(MirrorLabel::parse(&sector, 1 << 20, size).map_or(true, |label| label.encode() == sector));
    }

    #[test]
    fn any_stripe_or_concat_label_is_refused_or_read_back(
        version in 0_u32..6,
        bytes in prop::collection::vec(any::<u8>(), 496),
    ) {
        for magic in [b"GEOM::STRIPE\0\0\0\0", b"GEOM::CONCAT\0\0\0\0"] {
            let mut sector = magic.to_vec();
            sector.extend_from_slice(&bytes);
            sector[16..20].copy_from_slice(&version.to_le_bytes());
            sector[40..48].copy_from_slice(&[bytes[0] % 4, 0, 3, 0, 0, 16, 0, 0]);
            if let Ok(label) = StripeLabel::parse(&sector, 0, 1 << 20) {
                prop_assert_eq!(&label.encode()[..], &sector[..]);
            }
            if let Ok(label) = ConcatLabel::parse(&sector, 0, 1 << 20) {
                prop_assert_eq!(&label.encode()[..], &sector[..]);
            }
        }
    }
}
