//! Tests of the layouts: all small geometries exhaustively, and rows of the document's tables by hand.

use super::*;

const STRIP: u64 = 4096;

fn geometry(organisation: Organisation, member_count: u16, strips: u64) -> Geometry {
    Geometry::new(&GeometrySpec {
        organisation,
        member_count,
        strip_bytes: STRIP,
        component_bytes: strips * STRIP,
        member_sizes_bytes: Vec::new(),
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

#[test]
fn every_member_of_a_parity_row_has_exactly_one_role() {
    for organisation in every_parity_organisation() {
        let (min, _) = member_limits(organisation.level());
        for n in min..=8 {
            let g = geometry(organisation, n, 2 * u64::from(n) * u64::from(n));
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
            }
        }
    }
}
