//! Plexum's own stripe log.

use plexum_format::md::ppl::crc32c;
use plexum_format::stripe_log::{Batch, LogArea, LogGeometry, LogHeader, PAGE_BYTES};

use super::{Target, agree};
use crate::input::Input;
use crate::mutate::Hints;

/// Number: offset in the member.
pub const HEADER: Target = Target {
    name: "log-header",
    check: |input| {
        let Ok(first) = LogHeader::parse(&input.bytes, input.numbers[0]) else {
            return Ok(false);
        };
        let again = LogHeader::parse(&first.encode(), input.numbers[0]);
        let again = again.map_err(|error| error.to_string())?;
        agree(
            &first,
            &again,
            |h| h.encode().to_vec(),
            |h| format!("{h:?}"),
        )
    },
    write_back: |input| {
        let header = LogHeader::parse(&input.bytes, input.numbers[0]).ok()?;
        Some(header.encode().to_vec())
    },
    repair: |input| repair(&mut input.bytes, 512, 20),
    hints: Hints {
        soft: &[24..88, 96..144, 160..192],
        is_text: false,
        words: &[],
    },
    length_max_bytes: 8192,
};

/// Numbers: number of the batch, its position, life of the log.
pub const BATCH: Target = Target {
    name: "log-batch",
    check: |input| {
        let Some(first) = batch(input, &input.bytes) else {
            return Ok(false);
        };
        if first.block_positions().count() != first.records.len() {
            return Err("a record without a block".to_owned());
        }
        let again = batch(input, &first.encode_page()).ok_or("what was written is refused")?;
        agree(
            &first,
            &again,
            |b| b.encode_page().to_vec(),
            |b| format!("{b:?}"),
        )
    },
    write_back: |input| batch(input, &input.bytes).map(|b| b.encode_page().to_vec()),
    repair: |input| repair(&mut input.bytes, PAGE_BYTES, 8),
    hints: Hints {
        soft: &[64..80, 88..92, 128..144, 152..156, 192..208],
        is_text: false,
        words: &[],
    },
    length_max_bytes: 8192,
};

fn batch(input: &Input, bytes: &[u8]) -> Option<Batch> {
    let [number, position, log_id, _] = input.numbers;
    // Positions of a checked header are far from the end of their numbers.
    let position = position % (1 << 62) / PAGE_BYTES as u64 * PAGE_BYTES as u64;
    Batch::parse(bytes, &header(log_id), number, position).ok()
}

/// The header of a log of a RAID-5 of four members.
pub fn header(log_id: u64) -> LogHeader {
    LogHeader {
        array_uuid: [1; 16],
        device_uuid: [2; 16],
        log_id,
        epoch: 3,
        tail_sequence: 4,
        joined_sequence: 0,
        start_position: PAGE_BYTES as u64,
        start_batch: 1,
        superblock: [5; 16],
        next_superblock: [6; 16],
        doubt_from_bytes: None,
        is_write_back: false,
        area: LogArea {
            ring_sector: 1024,
            ring_bytes: 256 << 10,
        },
        geometry: LogGeometry {
            data_sector: 2048,
            component_sectors: 1 << 20,
            strip_sectors: 128,
            level: 5,
            layout: 2,
            member_count: 4,
        },
    }
}

/// CRC-32C of the first `length_bytes`, the sum itself taken as 0.
fn repair(bytes: &mut [u8], length_bytes: usize, at: usize) {
    if let Some(area) = bytes.get_mut(..length_bytes) {
        area[at..at + 4].fill(0);
        let sum = crc32c(area);
        area[at..at + 4].copy_from_slice(&sum.to_le_bytes());
    }
}
