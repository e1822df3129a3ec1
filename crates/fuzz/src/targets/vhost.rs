//! What a virtual machine sends: messages of its front end, and rings in its memory.

use std::cell::RefCell;

use plexum_front::export::ExportInfo;
use plexum_front::memory::{Memory, MemoryError, Part, check_inside};
use plexum_vhost::ask::Ask;
use plexum_vhost::chain::{Chain, DESCRIPTORS_MAX};
use plexum_vhost::peer::Mapping;
use plexum_vhost::ring::{Ring, RingSetup};
use plexum_vhost::table::Table;
use plexum_vhost::wire::{HEADER_BYTES, Header, Message, PAYLOAD_BYTES_MAX, Region, RingPlace};

use super::{Target, as_it_is};
use crate::input::Input;
use crate::mutate::Hints;

/// The message of an input, when it is one.
fn message(input: &Input) -> Option<(Header, Message)> {
    let (head, payload) = input.bytes.split_first_chunk::<HEADER_BYTES>()?;
    let header = Header::decode(head).ok()?;
    let payload = payload.get(..header.payload_bytes)?;
    Some((header, Message::decode(&header, payload).ok()?))
}

/// A message of a front end.
pub const MESSAGE: Target = Target {
    name: "vhost-message",
    check: |input| {
        let Some((header, first)) = message(input) else {
            return Ok(false);
        };
        let payload = first.encode_payload();
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(format!("{} bytes are written", payload.len()));
        }
        let is_other = matches!(first, Message::Other(_));
        match Message::decode(&header, &payload) {
            Ok(again) if again == first && first.request() == header.request => Ok(true),
            Ok(_) if is_other => Ok(true), // its payload is not kept
            other => Err(format!("{first:?} is {other:?} when it is read again")),
        }
    },
    write_back: |_| None, // padding, and room for more regions, are not kept
    repair: |input| {
        // The size that the header says.
        let payload_bytes = input.bytes.len().saturating_sub(HEADER_BYTES) as u32;
        if let Some(size) = input.bytes.get_mut(8..12) {
            size.copy_from_slice(&payload_bytes.to_ne_bytes());
        }
    },
    hints: Hints {
        soft: &[12..20, 20..300],
        is_text: false,
        words: &[],
    },
    length_max_bytes: HEADER_BYTES + PAYLOAD_BYTES_MAX,
};

/// Memory of a machine.
struct Bytes(RefCell<Vec<u8>>);

impl Memory for Bytes {
    fn length_bytes(&self) -> usize {
        self.0.borrow().len()
    }

    fn load(&self, offset_bytes: usize, into: &mut [u8]) -> Result<(), MemoryError> {
        let count = into.len();
        let range = check_inside(
            self.length_bytes(),
            Part {
                offset_bytes,
                count,
            },
        )?;
        into.copy_from_slice(&self.0.borrow()[range]);
        Ok(())
    }

    fn store(&self, offset_bytes: usize, from: &[u8]) -> Result<(), MemoryError> {
        let count = from.len();
        let range = check_inside(
            self.length_bytes(),
            Part {
                offset_bytes,
                count,
            },
        )?;
        self.0.borrow_mut()[range].copy_from_slice(from);
        Ok(())
    }
}

impl Mapping for Bytes {
    fn load_u16(&self, offset_bytes: usize) -> Result<u16, MemoryError> {
        let mut bytes = [0; 2];
        self.load(offset_bytes, &mut bytes)?;
        Ok(u16::from_ne_bytes(bytes))
    }

    fn store_u16(&self, offset_bytes: usize, value: u16) -> Result<(), MemoryError> {
        self.store(offset_bytes, &value.to_ne_bytes())
    }
}

/// Where the memory of a ring's input begins, its descriptors, and its parts in it.
pub const BASE: u64 = 0x1000;
/// Descriptors of the ring.
pub const SIZE: u16 = 16;
/// Where the available ring is.
pub const AVAILABLE: u64 = 256;
/// Where the used ring is.
pub const USED: u64 = 320;
/// Size of the memory.
pub const MEMORY_BYTES: usize = 1536;
const DISK_BYTES: u64 = 1 << 30;

fn ranges_are_inside(ask: &Ask) -> bool {
    let (one, many);
    let ranges: &[_] = match ask {
        Ask::Read(range) | Ask::Write(range) => {
            one = [*range];
            &one
        }
        Ask::Discard(ranges) | Ask::Zero(ranges) => {
            many = ranges.clone();
            &many
        }
        Ask::Flush | Ask::Identity => return true,
    };
    ranges.iter().all(|range| {
        let end = range.offset_bytes.checked_add(range.length_bytes);
        end.is_some_and(|end| end <= DISK_BYTES)
    })
}

/// A ring with everything that it names. Number: whether events are told by index.
pub const RING: Target = Target {
    name: "vhost-ring",
    check: |input| {
        let mut bytes = input.bytes.clone();
        bytes.resize(MEMORY_BYTES, 0);
        let region = Region {
            guest_address: BASE,
            size_bytes: MEMORY_BYTES as u64,
            user_address: BASE,
            file_offset_bytes: 0,
        };
        let mut table = Table::default();
        let added = table.add(region, Bytes(RefCell::new(bytes)));
        added.map_err(|error| error.to_string())?;
        let setup = RingSetup {
            descriptors: SIZE,
            place: RingPlace {
                descriptors: BASE,
                available: BASE + AVAILABLE,
                used: BASE + USED,
                ..RingPlace::default()
            },
            has_event_index: input.numbers[0] % 2 == 1,
        };
        let mut ring = Ring::begin(setup, 0, &table).map_err(|error| error.to_string())?;
        let info = ExportInfo {
            name: "nas".to_owned(),
            description: String::new(),
            size_bytes: DISK_BYTES,
            block_bytes_min: 512,
            block_bytes_preferred: 4096,
            is_read_only: false,
            is_rotational: false,
        };
        let mut is_accepted = false;
        for _ in 0..u32::from(SIZE) {
            let Ok(Some(head)) = ring.take(&table) else {
                break;
            };
            let Ok(chain) = Chain::collect(&ring, &table, head) else {
                break;
            };
            if chain.readable.len() + chain.writable.len() > DESCRIPTORS_MAX {
                return Err("a chain is longer than any may be".to_owned());
            }
            if let Ok(ask) = Ask::parse(&chain, &table, &info) {
                is_accepted = true;
                if !ranges_are_inside(&ask) {
                    return Err(format!("{ask:?} is not in the disk"));
                }
            }
            let _ = ring.give_back(&table, head, 1);
            let _ = ring.wants_event(&table);
        }
        let _ = ring.want_kicks(&table);
        Ok(is_accepted)
    },
    write_back: |_| None,
    repair: as_it_is,
    hints: Hints {
        soft: &[0..256, 260..292, 600..MEMORY_BYTES],
        is_text: false,
        words: &[],
    },
    length_max_bytes: MEMORY_BYTES,
};
