//! What the log remembers of doubt, and how it names it.
#![allow(clippy::unwrap_used)] // tests

use super::*;
use plexum_block::buf::BufPool;
use plexum_layout::{Geometry, GeometrySpec, Organisation, Raid5Layout};

const STRIP_BYTES: u64 = 65_536;

fn empty() -> Ppl {
    Ppl {
        lanes: Vec::new(),
        generation: Cell::new(0),
        unit_bytes: 4096,
        signature: 0,
        geometry: PplGeometry {
            strip_sectors: 128,
            data_members: 2,
            array_sectors: 1024,
        },
        kept: RefCell::default(),
        is_unsure: Cell::new(false),
        overflows: Cell::new(false),
    }
}

fn kept(row: u64, part: Range<u64>) -> Kept {
    Kept { row, slot: 1, part }
}

/// What is named, by row and part.
fn named(ppl: &Ppl) -> Vec<(u64, Range<u64>)> {
    let kept = ppl.kept.borrow();
    kept.iter()
        .map(|kept| (kept.row, kept.part.clone()))
        .collect()
}

/// A row of a RAID-5 of four.
fn row(number: u64) -> Row {
    let spec = GeometrySpec {
        organisation: Organisation::Raid5(Raid5Layout::LeftSymmetric),
        member_count: 4,
        strip_bytes: STRIP_BYTES,
        component_bytes: 64 * STRIP_BYTES,
        member_sizes_bytes: Vec::new(),
    };
    let geometry = Geometry::new(&spec).expect("a plain RAID-5");
    Row {
        number,
        map: geometry.row_map(number),
        strip_bytes: STRIP_BYTES,
    }
}

#[test]
fn doubt_cut_into_pieces_never_takes_more_entries_than_a_unit_has() {
    let ppl = empty();
    assert!(ppl.keep(kept(3, 0..65_536)));
    for hole in 0..40 {
        ppl.settle(3, &(hole * 1024 + 512..hole * 1024 + 1024));
        assert!(ppl.parts_max(1) >= ENTRIES_MAX - KEPT_MAX, "hole {hole}");
    }
    assert_eq!(ppl.parts_max(1), ENTRIES_MAX - KEPT_MAX);
    let kept = ppl.kept.borrow();
    let is_named = |at: u64| kept.iter().any(|kept| kept.part.contains(&at));
    assert!(
        (0..65_536).step_by(1024).all(is_named),
        "what was not settled stays named"
    );
    assert!(
        !is_named(512),
        "what was settled while there was room is not"
    );
}

#[test]
fn what_is_right_again_leaves_the_doubt_on_both_sides_of_it() {
    let ppl = empty();
    assert!(ppl.keep(kept(3, 1000..3000)) && ppl.keep(kept(4, 1000..3000)));
    assert!(ppl.keep(kept(3, 1000..3000)), "it is named already");
    assert!(!ppl.settle(5, &(0..4096)), "another row: nothing to write");
    assert!(ppl.settle(3, &(1500..2000)));
    let rest = [(3, 1000..1500), (3, 2000..3000), (4, 1000..3000)];
    assert_eq!(named(&ppl), rest);
    assert!(ppl.settle(3, &(500..1500)), "trimmed, and gone");
    assert_eq!(named(&ppl), rest[1..]);
    assert!(ppl.settle(3, &(2000..3000)));
    assert_eq!(named(&ppl), rest[2..]);
    assert!(
        ppl.settle(4, &(2000..4000)),
        "shorter, and as many as before"
    );
    assert_eq!(named(&ppl), [(4, 1000..2000)]);
    assert!(ppl.settle(4, &(0..2000)), "the last one");
    assert_eq!(named(&ppl), []);
    assert!(!ppl.settle(4, &(0..2000)), "nothing was named any more");
}

#[test]
fn without_room_for_two_pieces_only_ends_are_cut_off() {
    let full = || {
        let ppl = empty();
        for row in 0..KEPT_MAX as u64 {
            assert!(ppl.keep(kept(row, 1000..3000)));
        }
        assert!(!ppl.keep(kept(99, 0..1)), "there is too much of it");
        assert!(
            ppl.keep(kept(0, 1000..3000)),
            "but what is named may be named again"
        );
        ppl
    };
    for (right, left) in [
        (1000..2000, 2000..3000),
        (2000..3000, 1000..2000),
        (1500..2000, 1000..3000),
    ] {
        let ppl = full();
        ppl.settle(0, &right);
        assert_eq!(named(&ppl)[0], (0, left), "{right:?}");
        assert_eq!(ppl.parts_max(1), ENTRIES_MAX - KEPT_MAX);
    }
    let ppl = full();
    ppl.settle(15, &(1000..3000));
    assert!(ppl.keep(kept(0, 1200..2800)), "they may overlap");
    ppl.settle(14, &(1000..3000));
    ppl.settle(0, &(1500..2000));
    // One entry was free: one of the two could be split, the other one stays whole.
    assert_eq!(named(&ppl).len(), KEPT_MAX);
}

#[test]
fn doubt_that_cannot_be_named_is_noted_as_such() {
    let ppl = empty();
    let parts = |count: u64| (0..count).map(|part| part * 1024..part * 1024 + 512);
    ppl.note_doubt(&row(2), parts(KEPT_MAX as u64));
    assert!(!ppl.overflows.get());
    let slot = row(2).slot(Block::P);
    assert_eq!(ppl.parts_max(slot), ENTRIES_MAX - KEPT_MAX);
    assert_eq!(
        ppl.parts_max((slot + 1) % 4),
        ENTRIES_MAX,
        "another member's"
    );
    ppl.note_doubt(&row(2), parts(KEPT_MAX as u64 + 1));
    assert!(ppl.overflows.get());
}

#[test]
fn neighbours_in_doubt_become_one_and_others_do_not() {
    let mut all = Vec::new();
    push_joined(&mut all, kept(3, 0..512));
    push_joined(&mut all, kept(3, 512..1024));
    push_joined(&mut all, kept(4, 1024..1536)); // behind it, but of another row
    push_joined(&mut all, kept(4, 2048..2560));
    push_joined(&mut all, kept(4, 512..1024));
    let expected = [
        kept(3, 0..1024),
        kept(4, 1024..1536),
        kept(4, 2048..2560),
        kept(4, 512..1024),
    ];
    assert_eq!(all, expected);
}

#[test]
fn an_entry_names_the_first_sector_of_the_data_and_all_their_bytes() {
    let parity = BufPool::new(0).copy_of(&[0x5a; 2048]);
    let checksum = crc32c(&parity);
    let part = PplPart {
        part: 4096..6144,
        first: 1,
        count: 2,
        partial_parity: Some(parity),
    };
    let entry = entry_of(&row(5), &part, 2);
    // Five rows of three strips, one strip, 4096 bytes.
    assert_eq!(entry.data_sector, (5 * 3 + 1) * 128 + 8);
    assert_eq!((entry.data_bytes, entry.partial_parity_bytes), (4096, 2048));
    assert_eq!((entry.parity_slot, entry.checksum), (Slot(2), checksum));
    let whole = PplPart {
        first: 0,
        count: 3,
        partial_parity: None,
        ..part
    };
    let entry = entry_of(&row(5), &whole, 2);
    assert_eq!(entry.data_sector, 5 * 3 * 128 + 8);
    assert_eq!((entry.data_bytes, entry.partial_parity_bytes), (6144, 0));
    assert_eq!(entry.checksum, 0);
}
