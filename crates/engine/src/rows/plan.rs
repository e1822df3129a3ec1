//! How a part of a row is written: a pure decision.
//!
//! Invariants:
//! - read-modify-write only on proven parity (W5); everywhere else the row is made right or left in doubt, openly;
//! - a plan never loses a touched block: it is written to its member or kept by parity.

/// A data block as the plan sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataView {
    /// The request writes it.
    pub is_touched: bool,
    /// Its old content can be read.
    pub is_readable: bool,
    /// A member takes it.
    pub is_writable: bool,
    /// Its old content is in memory: it need not be read.
    pub is_in_memory: bool,
}

/// A parity block as the plan sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParityView {
    /// Its old content can be read.
    pub is_readable: bool,
    /// A member takes it.
    pub is_writable: bool,
    /// Its old content is in memory: it need not be read.
    pub is_in_memory: bool,
}

/// What to read before a part of a row can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritePlan {
    /// All data blocks are new: read nothing, compute parity.
    Full,
    /// Read the old content of the touched blocks and of the writable parities; add the difference.
    Modify,
    /// Read the untouched blocks; compute parity.
    Reconstruct,
    /// Recover the untouched blocks that cannot be read, then as `Reconstruct`.
    Decode,
    /// No parity can be written: only the data are.
    DataOnly,
    /// The row is in doubt and incomplete: the data go to their members, the row stays in doubt.
    Blind,
}

/// The write cannot be done: too much of the row is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowLost;

/// Chooses the plan for one part of one row. `is_proven`: parity is known to agree with the data there.
///
/// # Errors
/// `RowLost` when a touched block has neither a member nor a parity to keep it.
pub fn plan_write(
    data: &[DataView],
    parity: &[ParityView],
    is_proven: bool,
) -> Result<WritePlan, RowLost> {
    let touched = || data.iter().filter(|view| view.is_touched);
    let untouched = || data.iter().filter(|view| !view.is_touched);
    let all_written_direct = touched().all(|view| view.is_writable);
    let writable_parities = parity.iter().filter(|view| view.is_writable).count();
    let readable_parities = parity.iter().filter(|view| view.is_readable).count();
    // Blocks without a member must be kept by parity: one parity for each.
    if data
        .iter()
        .filter(|view| view.is_touched && !view.is_writable)
        .count()
        > writable_parities
    {
        return Err(RowLost);
    }
    if writable_parities == 0 {
        return Ok(WritePlan::DataOnly);
    }
    if untouched().next().is_none() {
        return Ok(WritePlan::Full);
    }
    let can_modify = is_proven
        && touched().all(|view| view.is_readable)
        && parity
            .iter()
            .all(|view| view.is_readable || !view.is_writable);
    let can_reconstruct = untouched().all(|view| view.is_readable);
    let of_parity = |view: &&ParityView| view.is_writable && !view.is_in_memory;
    let modify_reads = touched().filter(|view| !view.is_in_memory).count()
        + parity.iter().filter(of_parity).count();
    let reconstruct_reads = untouched().filter(|view| !view.is_in_memory).count();
    if can_reconstruct && !(can_modify && modify_reads < reconstruct_reads) {
        return Ok(WritePlan::Reconstruct);
    }
    if can_modify {
        return Ok(WritePlan::Modify);
    }
    let unreadable = data.iter().filter(|view| !view.is_readable).count();
    if is_proven && unreadable <= readable_parities {
        return Ok(WritePlan::Decode);
    }
    if all_written_direct {
        Ok(WritePlan::Blind)
    } else {
        Err(RowLost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn views(
        data_count: u32,
        parity_count: u32,
        mut code: u32,
    ) -> (Vec<DataView>, Vec<ParityView>) {
        let mut bit = || {
            let is_set = code & 1 == 1;
            code >>= 1;
            is_set
        };
        let data = (0..data_count)
            .map(|_| {
                let (is_touched, is_readable, is_writable) = (bit(), bit(), bit());
                DataView {
                    is_touched,
                    is_readable: is_readable && is_writable,
                    is_writable,
                    is_in_memory: false,
                }
            })
            .collect();
        let parity = (0..parity_count)
            .map(|_| {
                let (is_readable, is_writable) = (bit(), bit());
                ParityView {
                    is_readable: is_readable && is_writable,
                    is_writable,
                    is_in_memory: false,
                }
            })
            .collect();
        (data, parity)
    }

    /// Every plan over every row of up to 4 data blocks and 2 parities keeps what it promises.
    #[test]
    fn every_plan_of_every_small_row_can_be_carried_out_and_loses_nothing() {
        let mut seen = std::collections::BTreeSet::new();
        for data_count in 1..=4u32 {
            for parity_count in 1..=2u32 {
                for code in 0..1u32 << (3 * data_count + 2 * parity_count) {
                    let (data, parity) = views(data_count, parity_count, code);
                    if !data.iter().any(|view| view.is_touched) {
                        continue;
                    }
                    for is_proven in [false, true] {
                        let plan = plan_write(&data, &parity, is_proven);
                        seen.insert(format!("{plan:?}"));
                        check(&data, &parity, is_proven, plan);
                    }
                }
            }
        }
        assert_eq!(seen.len(), 7, "all plans and the refusal occur: {seen:?}");
    }

    fn check(
        data: &[DataView],
        parity: &[ParityView],
        is_proven: bool,
        plan: Result<WritePlan, RowLost>,
    ) {
        let homeless = data
            .iter()
            .filter(|view| view.is_touched && !view.is_writable)
            .count();
        let writable = parity.iter().filter(|view| view.is_writable).count();
        let untouched_ok = data
            .iter()
            .filter(|view| !view.is_touched)
            .all(|view| view.is_readable);
        match plan {
            Ok(WritePlan::Full) => assert!(data.iter().all(|view| view.is_touched)),
            Ok(WritePlan::Modify) => {
                assert!(is_proven, "W5");
                assert!(data.iter().all(|view| !view.is_touched || view.is_readable));
                assert!(
                    parity
                        .iter()
                        .all(|view| !view.is_writable || view.is_readable)
                );
            }
            Ok(WritePlan::Reconstruct) => assert!(untouched_ok),
            Ok(WritePlan::Decode) => assert!(is_proven && !untouched_ok),
            Ok(WritePlan::DataOnly | WritePlan::Blind) => assert_eq!(homeless, 0),
            Err(RowLost) => assert!(homeless > 0),
        }
        if plan.is_ok() {
            assert!(
                homeless <= writable,
                "a block without a member is kept by a parity of its own"
            );
        }
    }

    #[test]
    fn the_cheaper_plan_wins_and_a_tie_makes_the_row_right() {
        let healthy = |touched: usize, count: usize| -> Vec<DataView> {
            (0..count)
                .map(|i| DataView {
                    is_touched: i < touched,
                    is_readable: true,
                    is_writable: true,
                    is_in_memory: false,
                })
                .collect()
        };
        let mut parity = [ParityView {
            is_readable: true,
            is_writable: true,
            is_in_memory: false,
        }];
        assert_eq!(
            plan_write(&healthy(1, 4), &parity, true),
            Ok(WritePlan::Modify)
        );
        assert_eq!(
            plan_write(&healthy(1, 3), &parity, true),
            Ok(WritePlan::Reconstruct)
        );
        assert_eq!(
            plan_write(&healthy(1, 4), &parity, false),
            Ok(WritePlan::Reconstruct)
        );
        assert_eq!(
            plan_write(&healthy(4, 4), &parity, false),
            Ok(WritePlan::Full)
        );
        // What is in memory need not be read.
        parity[0].is_in_memory = true;
        assert_eq!(
            plan_write(&healthy(1, 3), &parity, true),
            Ok(WritePlan::Modify)
        );
        let mut data = healthy(1, 3);
        data[2].is_in_memory = true;
        assert_eq!(plan_write(&data, &parity, true), Ok(WritePlan::Reconstruct));
        data[0].is_in_memory = true;
        assert_eq!(plan_write(&data, &parity, true), Ok(WritePlan::Modify));
        assert_eq!(
            plan_write(&data, &parity, false),
            Ok(WritePlan::Reconstruct)
        );
    }
}
