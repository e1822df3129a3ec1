//! RAID-4, RAID-5 and RAID-6: which member of a row holds which data, P and Q, and the exponents of Q.
//!
//! With r = row mod N, t = row mod (N - 1), "ascending" = the members in order without P and Q:
//!
//! | layout | P | Q | data |
//! | --- | --- | --- | --- |
//! | left / right asymmetric | N-1-r / r | P+1 | ascending |
//! | left / right symmetric | N-1-r / r | P+1 | from behind P (and Q), wrapping |
//! | parity-first / -last | 0 / N-1 (RAID-6: N-2) | P+1 | ascending |
//! | ddf-zero-restart / -N-restart | r / N-1-((row+1) mod N) | P+1 | ascending |
//! | ddf-N-continue | N-1-r | P-1 | from behind P, wrapping |
//! | ...-6 | as RAID-5 over N-1 members, with t | N-1 | as RAID-5 over N-1 members |
//!
//! Source: linux-md.md section 7; checked against the golden images s06 to s15 with members missing.

use super::names::{Organisation, Raid5Layout, Raid6Layout};

/// What a member holds in one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowRole {
    /// Data strip number `i` of the row.
    Data(usize),
    /// First parity.
    P,
    /// Second parity.
    Q,
}

/// In which order the data strips of a row lie on the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DataOrder {
    /// The members in ascending order without P and Q.
    Ascending,
    /// `(first + i) mod modulus`.
    Turning { first: u16, modulus: u16 },
}

/// How the exponents of Q are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExponentOrder {
    /// From the member behind Q, wrapping, without P and Q.
    Md,
    /// By the member's slot; P and Q leave holes.
    Ddf,
}

/// The places of one row. Made by `Geometry::row_map`; a small value without references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowMap {
    /// Slot that holds P.
    pub p: usize,
    /// Slot that holds Q (RAID-6).
    pub q: Option<usize>,
    member_count: usize,
    order: DataOrder,
    exponents: ExponentOrder,
}

impl RowMap {
    /// Maps row `row` of `member_count` members; checked by `Geometry` to be at least 2 (RAID-6: 4).
    pub(super) fn new(organisation: &Organisation, member_count: usize, row: u64) -> RowMap {
        match organisation {
            Organisation::Raid4 => single(member_count, member_count - 1, DataOrder::Ascending),
            Organisation::Raid5(layout) => {
                let (p, order) = raid5_places(*layout, member_count, row);
                single(member_count, p, order)
            }
            Organisation::Raid6(layout) => double(*layout, member_count, row),
            _ => panic!("a row map is asked of a parity organisation only"),
        }
    }

    /// Number of data strips in the row.
    #[must_use]
    pub fn data_count(&self) -> usize {
        self.member_count - 1 - usize::from(self.q.is_some())
    }

    /// Slot of data strip `data` (below `data_count`).
    #[must_use]
    pub fn data_slot(&self, data: usize) -> usize {
        debug_assert!(data < self.data_count());
        match self.order {
            DataOrder::Turning { first, modulus } => {
                (usize::from(first) + data) % usize::from(modulus)
            }
            DataOrder::Ascending => {
                let (low, high) = self.parity_slots();
                let slot = data + usize::from(data >= low);
                slot + usize::from(slot >= high)
            }
        }
    }

    /// What `slot` (below the member count) holds.
    #[must_use]
    pub fn role_of(&self, slot: usize) -> RowRole {
        debug_assert!(slot < self.member_count);
        if slot == self.p {
            return RowRole::P;
        }
        if Some(slot) == self.q {
            return RowRole::Q;
        }
        RowRole::Data(match self.order {
            DataOrder::Turning { first, modulus } => {
                (slot + usize::from(modulus) - usize::from(first)) % usize::from(modulus)
            }
            DataOrder::Ascending => {
                let (low, high) = self.parity_slots();
                slot - usize::from(slot > low) - usize::from(slot > high)
            }
        })
    }

    /// Exponent j of data strip `data` in Q = sum of 2^j * D: from 0, different for each data strip of the row.
    /// Without Q simply `data` (of no use).
    #[must_use]
    pub fn exponent(&self, data: usize) -> u8 {
        let exponent = match (self.q, self.exponents) {
            (None, _) => data,
            (Some(_), ExponentOrder::Ddf) => self.data_slot(data),
            (Some(q), ExponentOrder::Md) => {
                let distance = |slot: usize| (slot + self.member_count - q - 1) % self.member_count;
                let from_q = distance(self.data_slot(data));
                from_q - usize::from(distance(self.p) < from_q)
            }
        };
        u8::try_from(exponent).expect("parity organisations have at most 255 members")
    }

    /// P and Q in ascending order; without Q the second is beyond all members.
    fn parity_slots(&self) -> (usize, usize) {
        let q = self.q.unwrap_or(self.member_count);
        (self.p.min(q), self.p.max(q))
    }
}

fn single(member_count: usize, p: usize, order: DataOrder) -> RowMap {
    RowMap {
        p,
        q: None,
        member_count,
        order,
        exponents: ExponentOrder::Md,
    }
}

/// `row mod modulus` as a slot.
fn turn(row: u64, modulus: usize) -> usize {
    usize::try_from(row % modulus as u64).expect("a remainder is below its divisor")
}

fn turning(first: usize, modulus: usize) -> DataOrder {
    let small = |n: usize| u16::try_from(n).expect("parity organisations have at most 255 members");
    DataOrder::Turning {
        first: small(first % modulus),
        modulus: small(modulus),
    }
}

/// P and the order of the data for RAID-5 over `n` members.
fn raid5_places(layout: Raid5Layout, n: usize, row: u64) -> (usize, DataOrder) {
    let right = turn(row, n);
    let left = n - 1 - right;
    match layout {
        Raid5Layout::LeftAsymmetric => (left, DataOrder::Ascending),
        Raid5Layout::RightAsymmetric => (right, DataOrder::Ascending),
        Raid5Layout::LeftSymmetric => (left, turning(left + 1, n)),
        Raid5Layout::RightSymmetric => (right, turning(right + 1, n)),
        Raid5Layout::ParityFirst => (0, DataOrder::Ascending),
        Raid5Layout::ParityLast => (n - 1, DataOrder::Ascending),
    }
}

fn double(layout: Raid6Layout, n: usize, row: u64) -> RowMap {
    use Raid6Layout as L;
    let right = turn(row, n);
    let left = n - 1 - right;
    // (wrapping: `row` is below 2^64 / strip, so `row + 1` does not overflow)
    let left_next = n - 1 - turn(row + 1, n);
    let behind = |p: usize| (p + 1) % n;
    let (p, q, order) = match layout {
        L::LeftAsymmetric => (left, behind(left), DataOrder::Ascending),
        L::RightAsymmetric | L::DdfZeroRestart => (right, behind(right), DataOrder::Ascending),
        L::LeftSymmetric => (left, behind(left), turning(left + 2, n)),
        L::RightSymmetric => (right, behind(right), turning(right + 2, n)),
        L::ParityFirst => (0, 1, DataOrder::Ascending),
        L::ParityLast => (n - 2, n - 1, DataOrder::Ascending),
        L::DdfNRestart => (left_next, behind(left_next), DataOrder::Ascending),
        L::DdfNContinue => (left, (left + n - 1) % n, turning(left + 1, n)),
        L::LeftAsymmetric6 => raid5_and_q(Raid5Layout::LeftAsymmetric, n, row),
        L::RightAsymmetric6 => raid5_and_q(Raid5Layout::RightAsymmetric, n, row),
        L::LeftSymmetric6 => raid5_and_q(Raid5Layout::LeftSymmetric, n, row),
        L::RightSymmetric6 => raid5_and_q(Raid5Layout::RightSymmetric, n, row),
        L::ParityFirst6 => raid5_and_q(Raid5Layout::ParityFirst, n, row),
    };
    let exponents = match layout {
        L::DdfZeroRestart | L::DdfNRestart | L::DdfNContinue => ExponentOrder::Ddf,
        _ => ExponentOrder::Md,
    };
    assert_ne!(p, q, "P and Q are on different members");
    RowMap {
        p,
        q: Some(q),
        member_count: n,
        order,
        exponents,
    }
}

/// The `-6` layouts: RAID-5 over all members but the last, which holds Q.
fn raid5_and_q(layout: Raid5Layout, n: usize, row: u64) -> (usize, usize, DataOrder) {
    let (p, order) = raid5_places(layout, n - 1, row);
    (p, n - 1, order)
}
