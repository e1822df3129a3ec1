//! The independent model against the golden images, whole and with every subset of members missing that they allow.

use plexum_sim::md::reference::{Members, Reference};
use plexum_sim::md::{Level, Spec};
use plexum_testkit::{Case, OwnRole, md_cases, unpack_case};

fn level(number: i32) -> Level {
    Level::ALL
        .into_iter()
        .find(|level| level.number() == number)
        .unwrap()
}

/// The data areas by slot of the members that hold their slot completely.
fn members(case: &Case) -> (Members, Vec<u64>) {
    let unpacked = unpack_case(&case.id);
    let mut members: Members = vec![None; case.raid_disks as usize];
    let mut sizes = vec![0; case.raid_disks as usize];
    for member in &case.members {
        let is_partial = member
            .features
            .iter()
            .any(|feature| feature == "recovery_offset");
        let Some(OwnRole::Slot(slot)) = member.own_role else {
            continue;
        };
        if !member.superblock_ok || is_partial || case.stale.contains(&member.file) {
            continue;
        }
        let image = unpacked.read(&member.file);
        let start = (member.data_offset_sectors * 512) as usize;
        let end = (start + (member.data_size_sectors * 512) as usize).min(image.len());
        let slot = usize::from(slot);
        members[slot] = Some(image[start..end].to_vec());
        sizes[slot] = member.data_size_sectors * 512;
    }
    (members, sizes)
}

fn reference(case: &Case, sizes: &[u64]) -> Reference {
    let spec = Spec {
        level: level(case.level),
        layout: case.layout,
        member_count: case.raid_disks as usize,
        strip_bytes: case.strip_bytes,
        component_bytes: case.component_sectors * 512,
        region_bytes: None,
        log_bytes: None,
        has_ppl: false,
        is_write_back: false,
    };
    match spec.level {
        Level::Linear | Level::Raid0 => Reference::with_sizes(&spec, sizes),
        _ => Reference::new(&spec),
    }
}

fn is_pattern(content: &[u8], seed: u64) -> bool {
    let words = content.as_chunks::<8>().0.iter().enumerate();
    words
        .into_iter()
        .all(|(index, word)| u64::from_le_bytes(*word) == (index as u64 * 8) ^ seed)
}

#[test]
fn content_is_the_pattern_with_every_subset_of_members_missing_that_is_tolerated() {
    let (mut cases_seen, mut subsets_seen) = (0, 0);
    for case in md_cases().iter().filter(|case| case.state != "reshape") {
        let Some(seed) = case.seed_value() else {
            continue;
        };
        cases_seen += 1;
        let (members, sizes) = members(case);
        let reference = reference(case, &sizes);
        let content = reference
            .content(&members)
            .unwrap_or_else(|| panic!("{}: content is there", case.id));
        assert_eq!(content.len() as u64, case.array_bytes, "{}", case.id);
        assert!(is_pattern(&content, seed), "{}", case.id);
        let there: Vec<usize> = (0..members.len())
            .filter(|slot| members[*slot].is_some())
            .collect();
        for missing in 1..1u32 << there.len() {
            if missing.count_ones() > case.tolerates {
                continue;
            }
            let mut left = members.clone();
            for (bit, slot) in there.iter().enumerate() {
                if missing >> bit & 1 == 1 {
                    left[*slot] = None;
                }
            }
            subsets_seen += 1;
            let content = reference
                .content(&left)
                .unwrap_or_else(|| panic!("{} without {missing:b}", case.id));
            assert!(
                is_pattern(&content, seed),
                "{} without {missing:b}",
                case.id
            );
        }
    }
    assert!(
        cases_seen >= 30 && subsets_seen >= 90,
        "{cases_seen} cases, {subsets_seen} subsets"
    );
}

#[test]
fn redundancy_disagrees_exactly_where_the_manifest_says() {
    for case in md_cases().iter().filter(|case| case.state != "reshape") {
        let (members, sizes) = members(case);
        let found = reference(case, &sizes).mismatches(&members);
        if case.inconsistent.is_empty() {
            assert!(found.is_empty(), "{}: {found:?}", case.id);
        } else if case.strip_bytes > 0 {
            let mut stripes: Vec<u64> = found
                .iter()
                .map(|at| at.offset_bytes / case.strip_bytes)
                .collect();
            stripes.dedup();
            assert_eq!(stripes, case.inconsistent, "{}", case.id);
        } else {
            assert!(!found.is_empty(), "{}", case.id);
        }
    }
}
