//! Halves of a gmirror that were written apart: their labels say that they are equal, their contents do not.
//!
//! Invariants: nothing is written; what is compared is bounded, whatever the size.

use plexum_block::buf::BufPool;
use plexum_block::device::read_range;
use plexum_format::gmirror::MirrorLabel;
use plexum_freebsd::labels::last_sector;

use crate::open::AnyDevice;
use crate::problem::{Code, Problem};

/// Size of a block that is compared.
const BLOCK_BYTES: u64 = 4096;
/// Blocks that are compared: all of a small mirror, otherwise some all over it.
const BLOCKS_MAX: u64 = 1024;
/// So many may differ because writes were under way when a mirror was left.
const UNDER_WAY_MAX: u64 = 16;

/// Two components that count as equal, and how many of the blocks that were looked at are not.
pub struct Halves {
    /// The one that comes first.
    pub first: String,
    /// The other one.
    pub second: String,
    /// Blocks that differ.
    pub differing: u64,
    /// Blocks that were looked at.
    pub compared: u64,
}

impl Halves {
    /// The sentence.
    pub fn text(&self) -> String {
        format!(
            "{} and {} count as equal by their labels, and differ in {} of {} blocks that were looked at",
            self.first, self.second, self.differing, self.compared
        )
    }

    /// What a start for writing is refused with.
    pub fn problem(&self) -> Problem {
        Problem::new(Code::SplitBrain, self.text())
            .why("they were written apart, or never filled: one would be taken for the other, or written over")
            .hint("look at each by itself, read-only, and choose; then:")
            .hint(format!("  plexum serve --write --run-degraded {}", self.first))
            .hint(format!("  plexum serve --write --run-degraded {}", self.second))
            .hint("to start with both as their labels say, add:   --force")
    }
}

/// Looks for components of one age that differ in more than what may have been under way.
pub async fn written_apart(devices: &[(String, AnyDevice)], pool: &BufPool) -> Option<Halves> {
    let mut equal: Vec<(&String, &AnyDevice, MirrorLabel)> = Vec::new();
    let mut newest = (0, 0);
    for (index, (name, device)) in devices.iter().enumerate() {
        // Who cannot be read is told of when the mirror is put together.
        let Ok((label, _)) = last_sector(device, pool, index, MirrorLabel::parse).await else {
            continue;
        };
        if label.is_inactive || label.is_rebuilding {
            continue;
        }
        let age = (label.generation_id, label.sync_id);
        if age > newest {
            equal.clear();
            newest = age;
        }
        if age == newest {
            equal.push((name, device, label));
        }
    }
    // Beside a clean one those that are marked dirty are filled, and not taken for it.
    if equal.iter().any(|(_, _, label)| !label.is_dirty) {
        equal.retain(|(_, _, label)| !label.is_dirty);
    }
    // In the order of the mirror: the one of the highest priority is taken first.
    equal.sort_by_key(|(_, _, label)| std::cmp::Reverse(label.priority));
    let ((first, one, label), others) = equal.split_first()?;
    let same_mirror = |other: &MirrorLabel| {
        (other.mirror_id, &other.name) == (label.mirror_id, &label.name)
            && other.component_id != label.component_id
    };
    for (second, other, _) in others.iter().filter(|(_, _, label)| same_mirror(label)) {
        let blocks = label.volume_bytes / BLOCK_BYTES;
        let compared = blocks.min(BLOCKS_MAX);
        let mut differing = 0;
        for number in 0..compared {
            let at = number * (blocks / compared.max(1)) * BLOCK_BYTES;
            let read = async |device: &AnyDevice| {
                read_range(device, pool, at..at + BLOCK_BYTES).await.ok()
            };
            let (left, right) = (read(one).await, read(other).await);
            differing += u64::from(left.is_some() && right.is_some() && left != right);
        }
        if differing > UNDER_WAY_MAX {
            let (first, second) = ((*first).clone(), (*second).clone());
            return Some(Halves {
                first,
                second,
                differing,
                compared,
            });
        }
    }
    None
}
