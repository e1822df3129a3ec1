use super::*;
use crate::md::stripes::gf_multiply;
use plexum_disks::rng::Rng;

fn spec(level: Level, layout: u32, member_count: usize) -> Spec {
    let strip_bytes = if level == Level::Raid1 { 0 } else { 4096 };
    Spec {
        level,
        layout,
        member_count,
        strip_bytes,
        component_bytes: 4096 * 24,
        region_bytes: None,
        log_bytes: None,
        has_ppl: false,
        is_write_back: false,
    }
}

/// Lays `content` out with all redundancy, by the same maps.
fn lay_out(reference: &Reference, content: &[u8]) -> Members {
    let spec = &reference.spec;
    let mut members = vec![vec![0; spec.component_bytes as usize]; spec.member_count];
    let mut at = 0;
    while at < reference.volume_bytes() {
        let length = reference.unit_at(at);
        let bytes = &content[at as usize..(at + length) as usize];
        for (member, offset) in reference.places(at) {
            members[member][offset as usize..(offset + length) as usize].copy_from_slice(bytes);
        }
        at += length;
    }
    let mut members: Members = members.into_iter().map(Some).collect();
    if spec.level.has_parity() {
        for stripe in 0..spec.component_bytes / spec.strip_bytes {
            let (strip, offset) = (spec.strip_bytes, stripe * spec.strip_bytes);
            let roles = stripe_roles(spec.level, spec.layout, spec.member_count, stripe);
            let data: Vec<_> = roles
                .data
                .iter()
                .map(|m| piece(&members, *m, offset, strip).unwrap())
                .collect();
            let mut put = |member: usize, bytes: Vec<u8>| {
                let target = members[member].as_mut().unwrap();
                target[offset as usize..(offset + strip) as usize].copy_from_slice(&bytes);
            };
            put(roles.p, xor_all(&data, strip));
            if let Some(q) = roles.q {
                put(q, q_of(&roles, &data, strip));
            }
        }
    }
    members
}

fn every_case() -> Vec<Spec> {
    let mut cases = vec![
        spec(Level::Raid1, 0, 2),
        spec(Level::Raid1, 0, 3),
        spec(Level::Raid4, 0, 4),
    ];
    cases.extend((0..6).flat_map(|layout| (3..6).map(move |n| spec(Level::Raid5, layout, n))));
    let raid6 = [0, 1, 2, 3, 4, 5, 8, 9, 10, 16, 17, 18, 19, 20];
    cases.extend(
        raid6
            .iter()
            .flat_map(|layout| (4..7).map(move |n| spec(Level::Raid6, *layout, n))),
    );
    let raid10 = [0x102, 0x103, 0x201, 0x301, 0x10201, 0x202];
    cases.extend(
        raid10
            .iter()
            .flat_map(|layout| (4..6).map(move |n| spec(Level::Raid10, *layout, n))),
    );
    cases
}

#[test]
fn multiplication_has_inverses_and_powers_do_not_repeat() {
    for a in 1..=255 {
        assert_eq!(gf_multiply(a, gf_inverse(a)), 1);
    }
    let mut powers: Vec<u8> = (0..255).map(gf_power).collect();
    powers.sort_unstable();
    powers.dedup();
    assert_eq!(powers.len(), 255);
}

#[test]
fn content_survives_every_subset_of_members_that_the_level_tolerates() {
    for spec in every_case() {
        let reference = Reference::new(&spec);
        let mut rng = Rng::new(spec.member_count as u64);
        let content: Vec<u8> = (0..reference.volume_bytes())
            .map(|_| rng.below(256) as u8)
            .collect();
        let members = lay_out(&reference, &content);
        assert!(reference.mismatches(&members).is_empty(), "{spec}");
        for missing in 0..1u32 << spec.member_count {
            if missing.count_ones() as usize > spec.tolerates() {
                continue;
            }
            let left = members.iter().enumerate();
            let left: Members = left
                .map(|(i, bytes)| {
                    if missing >> i & 1 == 1 {
                        None
                    } else {
                        bytes.clone()
                    }
                })
                .collect();
            assert!(
                reference.content(&left) == Some(content.clone()),
                "{spec} without {missing:b}"
            );
        }
    }
}

#[test]
fn one_changed_byte_is_a_mismatch_in_every_redundant_level() {
    for spec in every_case() {
        let reference = Reference::new(&spec);
        let content = vec![0x5a; reference.volume_bytes() as usize];
        let mut members = lay_out(&reference, &content);
        let (member, offset) = reference.places(4096)[0];
        members[member].as_mut().unwrap()[offset as usize + 5] ^= 1;
        assert!(!reference.mismatches(&members).is_empty(), "{spec}");
    }
}
