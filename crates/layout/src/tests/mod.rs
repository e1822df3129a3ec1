//! Tests of the layouts: all small geometries exhaustively against a literal, slow copy of the document's formulas,
//! and rows of its tables worked out by hand.

use super::*;

mod words;

const STRIP: u64 = 4096;

fn spec(organisation: Organisation, member_count: u16, component_bytes: u64) -> GeometrySpec {
    GeometrySpec {
        organisation,
        member_count,
        strip_bytes: STRIP,
        component_bytes,
        member_sizes_bytes: Vec::new(),
    }
}

fn geometry(organisation: Organisation, member_count: u16, strips: u64) -> Geometry {
    Geometry::new(&spec(organisation, member_count, strips * STRIP)).unwrap()
}

fn unequal(organisation: Organisation, strip_bytes: u64, sizes_bytes: &[u64]) -> Geometry {
    Geometry::new(&GeometrySpec {
        organisation,
        member_count: u16::try_from(sizes_bytes.len()).unwrap(),
        strip_bytes,
        component_bytes: 0,
        member_sizes_bytes: sizes_bytes.to_vec(),
    })
    .unwrap()
}

fn every_parity_organisation() -> Vec<Organisation> {
    let five = Raid5Layout::ALL
        .iter()
        .map(|(l, ..)| Organisation::Raid5(*l));
    let six = Raid6Layout::ALL
        .iter()
        .map(|(l, ..)| Organisation::Raid6(*l));
    std::iter::once(Organisation::Raid4)
        .chain(five)
        .chain(six)
        .collect()
}

fn every_raid10_layout(member_count: u16) -> Vec<Raid10Layout> {
    let mut layouts = Vec::new();
    let n = u8::try_from(member_count).unwrap();
    for near in 1..=n {
        for far in 1..=n / near {
            for offset in [false, true] {
                for far_set in 0..=2 {
                    layouts.push(Raid10Layout {
                        near,
                        far,
                        offset,
                        far_set,
                    });
                }
            }
        }
    }
    layouts.retain(|layout| layout.copies() >= 2);
    layouts
}

/// P, Q and the data slots of row `s`, as the table of linux-md.md section 7 has them.
fn table_row(organisation: Organisation, n: usize, s: usize) -> (usize, Option<usize>, Vec<usize>) {
    let level = organisation.level();
    let number = if level == Level::Raid4 {
        5
    } else {
        organisation.md_layout()
    };
    let (r, t, k) = (
        s % n,
        s % (n - 1),
        n - 1 - usize::from(level == Level::Raid6),
    );
    let pick = |d: &dyn Fn(usize) -> usize| (0..k).map(d).collect::<Vec<_>>();
    if level != Level::Raid6 {
        let p = [n - 1 - r, r, n - 1 - r, r, 0, n - 1][number as usize];
        let d = match number {
            0 | 1 => pick(&|i| if i >= p { i + 1 } else { i }),
            2 | 3 => pick(&|i| (p + 1 + i) % n),
            4 => pick(&|i| i + 1),
            _ => pick(&|i| i),
        };
        return (p, None, d);
    }
    let skip = |p: usize, q: usize| (0..n).filter(|m| *m != p && *m != q).collect::<Vec<_>>();
    let (p, q, d) = match number {
        0 => (n - 1 - r, (n - r) % n, skip(n - 1 - r, (n - r) % n)),
        1 | 8 => (r, (r + 1) % n, skip(r, (r + 1) % n)),
        2 => (n - 1 - r, (n - r) % n, pick(&|i| (n - 1 - r + 2 + i) % n)),
        3 => (r, (r + 1) % n, pick(&|i| (r + 2 + i) % n)),
        4 => (0, 1, pick(&|i| i + 2)),
        5 => (n - 2, n - 1, pick(&|i| i)),
        9 => {
            let p = n - 1 - (s + 1) % n;
            (p, (p + 1) % n, skip(p, (p + 1) % n))
        }
        10 => (
            n - 1 - r,
            (n - 2 + n - r) % n,
            pick(&|i| (n - 1 - r + 1 + i) % n),
        ),
        16 | 17 => {
            let p = if number == 16 { n - 2 - t } else { t };
            (p, n - 1, pick(&|i| if i >= p { i + 1 } else { i }))
        }
        18 | 19 => {
            let p = if number == 18 { n - 2 - t } else { t };
            (p, n - 1, pick(&|i| (p + 1 + i) % (n - 1)))
        }
        20 => (0, n - 1, pick(&|i| i + 1)),
        _ => unreachable!(),
    };
    (p, Some(q), d)
}

/// Exponents of the data strips by walking over the members as the document says.
fn walked_exponents(layout: u32, n: usize, p: usize, q: usize, d: &[usize]) -> Vec<u8> {
    if (8..=10).contains(&layout) {
        return d.iter().map(|slot| u8::try_from(*slot).unwrap()).collect();
    }
    let mut by_slot = vec![0; n];
    let mut next = 0;
    for step in 1..=n {
        let slot = (q + step) % n;
        if slot != p && slot != q {
            by_slot[slot] = next;
            next += 1;
        }
    }
    d.iter().map(|slot| by_slot[*slot]).collect()
}

#[test]
fn parity_rows_are_those_of_the_document_for_all_layouts_and_counts_to_nine() {
    for organisation in every_parity_organisation() {
        let (min, _) = member_limits(organisation.level());
        for n in min..=9 {
            let g = geometry(organisation, n, 2 * u64::from(n) * u64::from(n));
            for row in 0..g.row_count() {
                let map = g.row_map(row);
                let (p, q, d) = table_row(organisation, n.into(), usize::try_from(row).unwrap());
                let slots: Vec<usize> = (0..map.data_count()).map(|i| map.data_slot(i)).collect();
                assert_eq!(
                    (map.p, map.q, &slots),
                    (p, q, &d),
                    "{organisation} {n} row {row}"
                );
                if let Some(q) = q {
                    let exponents: Vec<u8> = (0..d.len()).map(|i| map.exponent(i)).collect();
                    assert_eq!(
                        exponents,
                        walked_exponents(organisation.md_layout(), n.into(), p, q, &d),
                        "{organisation} {n} row {row}"
                    );
                }
            }
        }
    }
}

#[test]
fn every_member_of_a_parity_row_has_exactly_one_role_and_exponents_differ() {
    for organisation in every_parity_organisation() {
        let (min, max) = member_limits(organisation.level());
        for n in (min..=8).chain([64, max - 1, max]) {
            let g = geometry(organisation, n, 2 * u64::from(n) + 3);
            for row in 0..g.row_count() {
                let map = g.row_map(row);
                let mut slots: Vec<usize> =
                    (0..map.data_count()).map(|i| map.data_slot(i)).collect();
                for (i, slot) in slots.iter().enumerate() {
                    assert_eq!(
                        map.role_of(*slot),
                        RowRole::Data(i),
                        "{organisation} {n} row {row}"
                    );
                }
                assert_eq!(map.role_of(map.p), RowRole::P);
                slots.push(map.p);
                if let Some(q) = map.q {
                    assert_eq!(map.role_of(q), RowRole::Q);
                    slots.push(q);
                }
                slots.sort_unstable();
                assert_eq!(
                    slots,
                    (0..usize::from(n)).collect::<Vec<_>>(),
                    "{organisation} {n} row {row}"
                );
                let mut exponents: Vec<u8> =
                    (0..map.data_count()).map(|i| map.exponent(i)).collect();
                exponents.sort_unstable();
                exponents.dedup();
                assert_eq!(
                    exponents.len(),
                    map.data_count(),
                    "{organisation} {n} row {row}"
                );
            }
        }
    }
}

#[test]
fn parity_rows_worked_out_by_hand() {
    use Raid5Layout as F;
    use Raid6Layout as S;
    let row = |organisation, n, row| {
        let map = geometry(organisation, n, 20).row_map(row);
        let slots: Vec<usize> = (0..map.data_count()).map(|i| map.data_slot(i)).collect();
        let exponents: Vec<u8> = (0..map.data_count()).map(|i| map.exponent(i)).collect();
        (map.p, map.q, slots, exponents)
    };
    // Four members, row 1. Left: P on 2; symmetric data start behind it.
    assert_eq!(
        row(Organisation::Raid5(F::LeftSymmetric), 4, 1),
        (2, None, vec![3, 0, 1], vec![0, 1, 2])
    );
    assert_eq!(
        row(Organisation::Raid5(F::LeftAsymmetric), 4, 1),
        (2, None, vec![0, 1, 3], vec![0, 1, 2])
    );
    assert_eq!(
        row(Organisation::Raid5(F::RightSymmetric), 4, 1),
        (1, None, vec![2, 3, 0], vec![0, 1, 2])
    );
    assert_eq!(
        row(Organisation::Raid4, 4, 3),
        (3, None, vec![0, 1, 2], vec![0, 1, 2])
    );
    // Five members, row 0. Left symmetric: P 4, Q 0, data 1 2 3.
    assert_eq!(
        row(Organisation::Raid6(S::LeftSymmetric), 5, 0),
        (4, Some(0), vec![1, 2, 3], vec![0, 1, 2])
    );
    // Row 1: P 3, Q 4, data 0 1 2. Row 2, asymmetric: P 2, Q 3, data 0 1 4; the walk from behind Q begins with 4.
    assert_eq!(
        row(Organisation::Raid6(S::LeftAsymmetric), 5, 2),
        (2, Some(3), vec![0, 1, 4], vec![1, 2, 0])
    );
    // Same places with DDF exponents: the slots themselves.
    assert_eq!(
        row(Organisation::Raid6(S::DdfZeroRestart), 5, 2),
        (2, Some(3), vec![0, 1, 4], vec![0, 1, 4])
    );
    // Row 2: P 2, Q 1, data from 3 on.
    assert_eq!(
        row(Organisation::Raid6(S::DdfNContinue), 5, 2),
        (2, Some(1), vec![3, 4, 0], vec![3, 4, 0])
    );
    // Row 0: P on N-1-1 = 3.
    assert_eq!(
        row(Organisation::Raid6(S::DdfNRestart), 5, 0),
        (3, Some(4), vec![0, 1, 2], vec![0, 1, 2])
    );
    // RAID-5 over four members, Q on the fifth: row 1 has P on 2, data 3 0 1; Q numbers by slot without P.
    assert_eq!(
        row(Organisation::Raid6(S::LeftSymmetric6), 5, 1),
        (2, Some(4), vec![3, 0, 1], vec![2, 0, 1])
    );
}

/// For each strip of the volume its copies: (slot, member strip).
type Table = Vec<Vec<(usize, usize)>>;

/// All copies of array strip `c` by the formulas of linux-md.md section 7, in strips. `None`: nonsense (two on one
/// place).
fn raid10_table(l: Raid10Layout, n: usize, member_strips: usize) -> Table {
    let (nc, fc) = (usize::from(l.near), usize::from(l.far));
    let fs = [n, n / fc, fc * nc][usize::from(l.far_set)];
    let (last, lsize) = ((n / fs - 1) * fs, fs + n % fs);
    let strips = (member_strips / fc) * n / nc;
    let used = (strips * nc * fc).div_ceil(n);
    let stride = if l.offset { 1 } else { used / fc };
    let mut table = Vec::new();
    for c in 0..strips {
        let (mut dev, mut sec) = ((c * nc) % n, (c * nc) / n);
        if l.offset {
            sec *= fc;
        }
        let mut copies = Vec::new();
        for _ in 0..nc {
            let (mut d, mut s) = (dev, sec);
            copies.push((d, s));
            for _ in 1..fc {
                let set = d / fs;
                d += nc;
                d = if !n.is_multiple_of(fs) && d > last {
                    last + (d - last) % lsize
                } else {
                    d % fs + fs * set
                };
                s += stride;
                copies.push((d, s));
            }
            dev += 1;
            if dev == n {
                (dev, sec) = (0, sec + 1);
            }
        }
        table.push(copies);
    }
    table
}

/// Whether a table puts two strips on one place or two copies on one member.
fn is_nonsense(table: &[Vec<(usize, usize)>]) -> bool {
    let mut seen = std::collections::BTreeSet::new();
    table.iter().any(|copies| {
        let slots: std::collections::BTreeSet<usize> = copies.iter().map(|c| c.0).collect();
        slots.len() < copies.len() || copies.iter().any(|c| !seen.insert(*c))
    })
}

#[test]
fn raid10_copies_are_those_of_the_document_and_useless_layouts_are_refused() {
    let mut refused = 0;
    for n in 2..=10u16 {
        for layout in every_raid10_layout(n) {
            let far = usize::from(layout.far);
            let tables: Vec<(usize, Table)> = (far..=4 * far + 1)
                .map(|strips| (strips, raid10_table(layout, n.into(), strips)))
                .collect();
            if tables.iter().any(|(_, table)| is_nonsense(table)) {
                let error =
                    Geometry::new(&spec(Organisation::Raid10(layout), n, 64 * STRIP)).unwrap_err();
                assert!(
                    matches!(error, GeometryError::Collides { .. }),
                    "{layout} on {n}: {error}"
                );
                refused += 1;
                continue;
            }
            for (strips, table) in tables {
                let g = geometry(Organisation::Raid10(layout), n, strips as u64);
                assert_eq!(
                    g.volume_bytes(),
                    table.len() as u64 * STRIP,
                    "{layout} on {n}, {strips} strips"
                );
                for (c, expected) in table.iter().enumerate() {
                    let map = g.copies_of(c as u64 * STRIP + 512);
                    assert_eq!(map.length_bytes, STRIP - 512);
                    let found: Vec<(usize, u64)> = map
                        .iter()
                        .map(|c| (c.slot, c.member_offset_bytes))
                        .collect();
                    let expected: Vec<(usize, u64)> = expected
                        .iter()
                        .map(|(d, s)| (*d, *s as u64 * STRIP + 512))
                        .collect();
                    assert_eq!(
                        found, expected,
                        "{layout} on {n}, {strips} strips, strip {c}"
                    );
                }
            }
        }
    }
    assert!(refused > 0, "some combinations of the formulas are useless");
}

#[test]
fn the_layouts_that_mdadm_makes_are_never_refused() {
    for n in 2..=64u8 {
        for copies in 2..=n {
            for layout in [
                Raid10Layout::near(copies),
                Raid10Layout::far(copies),
                Raid10Layout::offset(copies),
            ] {
                geometry(Organisation::Raid10(layout), n.into(), 2 * u64::from(n));
            }
        }
    }
}

/// One geometry of each kind and count, small.
fn small_geometries() -> Vec<Geometry> {
    let mut all = Vec::new();
    for n in 1..=8u16 {
        all.push(geometry(Organisation::Raid1, n, 3));
        all.push(geometry(Organisation::Linear, n, 3));
        all.push(geometry(Organisation::Raid0(Raid0Layout::Original), n, 3));
        for organisation in every_parity_organisation() {
            if n >= member_limits(organisation.level()).0 {
                all.push(geometry(organisation, n, 2 * u64::from(n) + 1));
            }
        }
        for layout in every_raid10_layout(n) {
            for strips in [u64::from(layout.far), 3 * u64::from(layout.far) + 1] {
                all.extend(Geometry::new(&spec(
                    Organisation::Raid10(layout),
                    n,
                    strips * STRIP,
                )));
            }
        }
    }
    // All sizes of up to four members from 0 to 3 strips, in both RAID-0 layouts and linear.
    for code in 1..256u64 {
        for n in 1..=4usize {
            let sizes: Vec<u64> = (0..n)
                .map(|m| (code >> (2 * m) & 3) * STRIP + 512 * m as u64)
                .collect();
            if sizes.iter().all(|s| *s < STRIP) {
                continue;
            }
            all.push(unequal(Organisation::Linear, STRIP, &sizes));
            all.push(unequal(
                Organisation::Raid0(Raid0Layout::Original),
                STRIP,
                &sizes,
            ));
            all.push(unequal(
                Organisation::Raid0(Raid0Layout::Alternate),
                STRIP,
                &sizes,
            ));
        }
    }
    all
}

#[test]
fn every_volume_byte_has_one_place_and_the_way_back_leads_to_it() {
    for g in small_geometries() {
        let mut owner = std::collections::BTreeMap::new();
        let mut offset = 0;
        while offset < g.volume_bytes() {
            let place = g.locate(offset);
            assert!(
                place.length_bytes > 0 && offset + place.length_bytes <= g.volume_bytes(),
                "{g:?}"
            );
            let copies: Vec<(usize, u64)> = if g.copy_count() > 1 {
                let map = g.copies_of(offset);
                assert_eq!(
                    (map.len(), map.length_bytes),
                    (g.copy_count(), place.length_bytes)
                );
                map.iter()
                    .map(|c| (c.slot, c.member_offset_bytes))
                    .collect()
            } else {
                vec![(place.slot, place.member_offset_bytes)]
            };
            assert_eq!(copies[0], (place.slot, place.member_offset_bytes));
            for (slot, member_offset) in copies {
                assert!(
                    slot < g.member_count()
                        && member_offset + place.length_bytes <= g.used_bytes(slot),
                    "{g:?} at {offset}"
                );
                assert_eq!(
                    g.volume_offset_of(slot, member_offset),
                    Some((offset, place.length_bytes)),
                    "{g:?} at {offset}"
                );
                let end = place.length_bytes - 512;
                assert_eq!(
                    g.volume_offset_of(slot, member_offset + end),
                    Some((offset + end, 512)),
                    "{g:?} at {offset}"
                );
                for sector in (0..place.length_bytes).step_by(512) {
                    assert!(
                        owner
                            .insert((slot, member_offset + sector), offset)
                            .is_none(),
                        "{g:?}: two bytes on one place"
                    );
                }
            }
            offset += place.length_bytes;
        }
        // Whatever else is on the members belongs to nothing (or is parity).
        for slot in 0..g.member_count() {
            for member_offset in (0..g.used_bytes(slot) + 2 * STRIP).step_by(512) {
                let found = g.volume_offset_of(slot, member_offset).is_some();
                assert_eq!(
                    found,
                    owner.contains_key(&(slot, member_offset)),
                    "{g:?} slot {slot} offset {member_offset}"
                );
            }
        }
    }
}

#[test]
fn losses_are_tolerated_exactly_while_every_byte_has_a_source() {
    for g in small_geometries()
        .into_iter()
        .filter(|g| g.volume_bytes() / STRIP >= 4 || g.copy_count() == 1)
    {
        let n = g.member_count();
        // Small RAID-10 arrays do not use every group of members; judge those that use all.
        if matches!(g.organisation(), Organisation::Raid10(_))
            && g.volume_bytes() < n as u64 * STRIP
        {
            continue;
        }
        for bits in 0..1u32 << n {
            let missing: Vec<bool> = (0..n).map(|slot| bits >> slot & 1 == 1).collect();
            let lost = usize::try_from(bits.count_ones()).unwrap();
            let expected = match g.organisation().level() {
                Level::Linear | Level::Raid0 => lost == 0,
                Level::Raid4 | Level::Raid5 => lost <= 1,
                Level::Raid6 => lost <= 2,
                Level::Raid1 | Level::Raid10 => {
                    let step = usize::try_from(g.copies_of(0).length_bytes).unwrap();
                    (0..g.volume_bytes())
                        .step_by(step)
                        .all(|at| g.copies_of(at).iter().any(|c| !missing[c.slot]))
                }
            };
            assert_eq!(g.tolerates(&missing), expected, "{g:?} without {missing:?}");
        }
    }
}

#[test]
fn losses_left_is_the_largest_number_that_any_choice_of_members_survives() {
    for g in small_geometries()
        .into_iter()
        .filter(|g| g.member_count() <= 6)
    {
        let n = g.member_count();
        let missing_of = |bits: u32| {
            (0..n)
                .map(|slot| bits >> slot & 1 == 1)
                .collect::<Vec<bool>>()
        };
        for bits in 0..1u32 << n {
            let mut left = 0;
            while (0..1u32 << n)
                .filter(|more| more & bits == 0 && more.count_ones() == left + 1)
                .all(|more| g.tolerates(&missing_of(bits | more)))
                && bits.count_ones() + left < u32::try_from(n).unwrap()
            {
                left += 1;
            }
            let expected = if g.tolerates(&missing_of(bits)) {
                left
            } else {
                0
            };
            assert_eq!(
                g.losses_left(&missing_of(bits)),
                expected as usize,
                "{g:?} without {bits:b}"
            );
        }
    }
}

#[test]
fn raid0_zones_follow_the_formula_of_the_document() {
    for layout in [Raid0Layout::Original, Raid0Layout::Alternate] {
        // Strips need not be powers of two; 12 KiB.
        let s = 12288;
        let sizes = [3 * s + 512, 5 * s, s, 5 * s + 4096];
        let g = unequal(Organisation::Raid0(layout), s, &sizes);
        // Zones: 1 strip on 0..3; 2 strips on 0, 1, 3; 2 strips on 1, 3.
        let zones: [(u64, u64, &[usize]); 3] =
            [(0, 0, &[0, 1, 2, 3]), (4, 1, &[0, 1, 3]), (10, 3, &[1, 3])];
        assert_eq!(g.volume_bytes(), 14 * s);
        for a in 0..14u64 {
            let (start, dev_start, m) = zones.iter().rev().find(|z| z.0 <= a).unwrap();
            let k = m.len() as u64;
            let turn = if layout == Raid0Layout::Original {
                a % k
            } else {
                (a - start) % k
            };
            let place = g.locate(a * s + 1024);
            let expected = (
                m[usize::try_from(turn).unwrap()],
                (dev_start + (a - start) / k) * s + 1024,
                s - 1024,
            );
            assert_eq!(
                (place.slot, place.member_offset_bytes, place.length_bytes),
                expected,
                "{layout:?} strip {a}"
            );
        }
        assert!(g.raid0_layout_matters());
    }
    let one_later_member = unequal(
        Organisation::Raid0(Raid0Layout::Original),
        4096,
        &[4096, 8192],
    );
    assert!(!one_later_member.raid0_layout_matters());
}

#[test]
fn linear_members_follow_each_other_rounded_to_strips() {
    let g = unequal(Organisation::Linear, 0, &[1024, 512, 4096]);
    assert_eq!(g.volume_bytes(), 5632);
    assert_eq!(
        g.locate(1024),
        Place {
            slot: 1,
            member_offset_bytes: 0,
            length_bytes: 512
        }
    );
    assert_eq!(
        g.locate(1536),
        Place {
            slot: 2,
            member_offset_bytes: 0,
            length_bytes: 4096
        }
    );
    let rounded = unequal(Organisation::Linear, 4096, &[8192 + 512, 4096]);
    assert_eq!(
        rounded.locate(8192),
        Place {
            slot: 1,
            member_offset_bytes: 0,
            length_bytes: 4096
        }
    );
    assert_eq!(rounded.volume_offset_of(0, 8192), None);
}

#[test]
fn sizes_are_rounded_down_to_strips_as_md_does() {
    let g = Geometry::new(&spec(
        Organisation::Raid5(Raid5Layout::LeftSymmetric),
        3,
        10 * STRIP + 3584,
    ))
    .unwrap();
    assert_eq!(
        (g.component_bytes(), g.row_count(), g.volume_bytes()),
        (10 * STRIP, 10, 20 * STRIP)
    );
    assert_eq!(g.row_of(5 * STRIP + 100), (2, STRIP + 100));
    let mirror = Geometry::new(&spec(Organisation::Raid1, 2, 10 * STRIP + 3584)).unwrap();
    assert_eq!(
        (mirror.strip_bytes(), mirror.volume_bytes()),
        (0, 10 * STRIP + 3584)
    );
    // Five members, near 2, 3 strips each: 7 strips, of 15 places one is left over.
    let odd = geometry(Organisation::Raid10(Raid10Layout::near(2)), 5, 3);
    assert_eq!(
        (
            odd.volume_bytes(),
            odd.used_bytes(4),
            odd.volume_offset_of(4, 2 * STRIP)
        ),
        (7 * STRIP, 3 * STRIP, None)
    );
}
