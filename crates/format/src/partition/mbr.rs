//! The table in the first sector: four primary partitions, and the chain of logical ones in an extended one.

use std::ops::Range;

use super::{PARTITIONS_MAX, Partition, Seen, Table, Wanted, le32, place_of};

/// Kinds of an extended partition.
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];
/// The kind that says: this disk has a GPT.
const PROTECTIVE: u8 = 0xee;

/// An entry of a table, as it stands there.
#[derive(Clone, Copy)]
struct Entry {
    kind: u8,
    start_sector: u64,
    sectors: u64,
}

/// A primary partition, and whether logical ones are in it.
pub(super) struct Primary {
    partition: Partition,
    is_extended: bool,
}

/// The used entries with their numbers; none without the mark of a table, or where this is the first sector of a file
/// system that has the same mark.
fn entries(sector: &[u8]) -> Vec<(usize, Entry)> {
    if sector.get(510..512) != Some([0x55, 0xaa].as_slice()) {
        return Vec::new();
    }
    let parts = || sector[446..510].chunks_exact(16);
    // In a table the first byte of an entry is 0 or 0x80; boot code of a file system is anything.
    if parts().any(|entry| entry[0] & 0x7f != 0) {
        return Vec::new();
    }
    let all = (1..).zip(parts()).filter_map(|(number, entry)| {
        let entry = Entry {
            kind: entry[4],
            start_sector: u64::from(le32(entry, 8)?),
            sectors: u64::from(le32(entry, 12)?),
        };
        (entry.kind != 0).then_some((number, entry))
    });
    all.collect()
}

/// Whether the table only says that there is a GPT.
pub(super) fn is_protective(head: &[u8]) -> bool {
    let sector = head.get(..512).unwrap_or_default();
    entries(sector)
        .iter()
        .any(|(_, entry)| entry.kind == PROTECTIVE)
}

/// The primary partitions that lie on the disk.
pub(super) fn primaries(head: &[u8], disk_bytes: u64) -> Vec<Primary> {
    let sector = head.get(..512).unwrap_or_default();
    let used = entries(sector).into_iter();
    used.filter(|(_, entry)| entry.kind != PROTECTIVE && entry.start_sector > 0)
        .filter_map(|(number, entry)| {
            let place = place_of(entry.start_sector, entry.sectors, 512, disk_bytes)?;
            Some(Primary {
                partition: named(number, place),
                is_extended: EXTENDED.contains(&entry.kind),
            })
        })
        .collect()
}

fn named(number: usize, place: Range<u64>) -> Partition {
    Partition {
        name: format!("p{number}"),
        table: Table::Mbr,
        place,
    }
}

/// The primary ones without the extended, and the logical ones in it, which count from 5 on.
pub(super) fn partitions(
    primaries: Vec<Primary>,
    disk_bytes: u64,
    seen: &Seen,
) -> Result<Vec<Partition>, Wanted> {
    let mut found = Vec::new();
    let mut logical = Vec::new();
    for Primary {
        partition,
        is_extended,
    } in primaries
    {
        match is_extended {
            true => chain(&partition.place, disk_bytes, seen, &mut logical)?,
            false => found.push(partition),
        }
    }
    found.extend(
        (5..)
            .zip(logical)
            .map(|(number, place)| named(number, place)),
    );
    Ok(found)
}

/// Follows the chain of tables in an extended partition: each names a partition, counted from itself, and the next
/// table, counted from the extended partition's start.
fn chain(
    extended: &Range<u64>,
    disk_bytes: u64,
    seen: &Seen,
    found: &mut Vec<Range<u64>>,
) -> Result<(), Wanted> {
    let (mut at, mut visited) = (extended.start, Vec::new());
    while found.len() < PARTITIONS_MAX && !visited.contains(&at) {
        visited.push(at);
        let table = entries(&seen.sector(at, disk_bytes)?);
        let mut next = None;
        for (_, entry) in table {
            if EXTENDED.contains(&entry.kind) {
                let start = entry.start_sector * 512;
                next = next.or(extended.start.checked_add(start));
            } else if let Some(place) = place_of(
                at / 512 + entry.start_sector,
                entry.sectors,
                512,
                disk_bytes,
            ) && entry.start_sector > 0
            {
                found.push(place);
            }
        }
        match next {
            Some(next) if extended.contains(&next) => at = next,
            _ => break,
        }
    }
    Ok(())
}
