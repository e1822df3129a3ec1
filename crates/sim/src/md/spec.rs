//! What is to be built: an array of slots, in the words of md.

use std::fmt;

use plexum_disks::rng::Rng;

/// Kind of array, in the words of the reference model (which has its own geometry code).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Members one after another.
    Linear,
    /// Strips in turn, no redundancy.
    Raid0,
    /// Copies.
    Raid1,
    /// Parity on the last member.
    Raid4,
    /// Rotating parity.
    Raid5,
    /// Two parities.
    Raid6,
    /// Striped copies.
    Raid10,
}

impl Level {
    /// All levels.
    pub const ALL: [Level; 7] = [
        Level::Linear,
        Level::Raid0,
        Level::Raid1,
        Level::Raid4,
        Level::Raid5,
        Level::Raid6,
        Level::Raid10,
    ];

    /// Whether a row has parity: the organisations with a write hole.
    #[must_use]
    pub fn has_parity(self) -> bool {
        matches!(self, Level::Raid4 | Level::Raid5 | Level::Raid6)
    }

    /// md's number of the level.
    #[must_use]
    pub fn number(self) -> i32 {
        match self {
            Level::Linear => -1,
            Level::Raid0 => 0,
            Level::Raid1 => 1,
            Level::Raid4 => 4,
            Level::Raid5 => 5,
            Level::Raid6 => 6,
            Level::Raid10 => 10,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Level::Linear => f.pad("linear"),
            other => f.pad(&format!("raid{}", other.number())),
        }
    }
}

/// What is to be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Kind of array.
    pub level: Level,
    /// md's number of the layout within the level.
    pub layout: u32,
    /// Slots.
    pub member_count: usize,
    /// Strip size in bytes; 0 for RAID-1 and linear.
    pub strip_bytes: u64,
    /// Bytes of each member that hold data.
    pub component_bytes: u64,
    /// Bytes of the volume for each bit of the bitmap; `None`: no bitmap.
    pub region_bytes: Option<u64>,
    /// Largest ring of the stripe log on each member in bytes; `None`: no log.
    pub log_bytes: Option<u64>,
    /// Writes are answered when they are durable in the stripe log.
    pub is_write_back: bool,
    /// md's partial parity log, RAID-5 only; without bitmap and stripe log.
    pub has_ppl: bool,
}

pub(super) const RAID6_LAYOUTS: [u32; 14] = [0, 1, 2, 3, 4, 5, 8, 9, 10, 16, 17, 18, 19, 20];
pub(super) const RAID10_LAYOUTS: [u32; 7] = [0x102, 0x103, 0x201, 0x301, 0x10201, 0x10301, 0x202];

impl Spec {
    /// One of this level.
    pub(super) fn draw(rng: &mut Rng, level: Level) -> Self {
        let (least, most) = match level {
            Level::Linear | Level::Raid0 | Level::Raid1 => (2, 4),
            Level::Raid4 | Level::Raid5 => (3, 6),
            Level::Raid6 => (4, 7),
            Level::Raid10 => (4, 6),
        };
        let member_count = rng.between(least, most) as usize;
        let layout = match level {
            Level::Linear | Level::Raid1 | Level::Raid4 => 0,
            Level::Raid0 => rng.between(1, 2) as u32,
            Level::Raid5 => rng.below(6) as u32,
            Level::Raid6 => *rng.pick(&RAID6_LAYOUTS),
            Level::Raid10 => *rng.pick(&RAID10_LAYOUTS),
        };
        let has_strips = !matches!(level, Level::Raid1 | Level::Linear);
        let strip_bytes = if has_strips {
            *rng.pick(&[4096, 4096, 8192, 16384, 65536])
        } else {
            0
        };
        let component_bytes = 65536 * rng.between(4, 16);
        let region_bytes = match level {
            Level::Linear | Level::Raid0 => None,
            _ if rng.chance(1, 4) => None,
            _ => Some(*rng.pick(&[4096, 16384, 65536, 262_144])),
        };
        Spec {
            level,
            layout,
            member_count,
            strip_bytes,
            component_bytes,
            region_bytes,
            log_bytes: None,
            has_ppl: false,
            is_write_back: false,
        }
    }

    /// How many members, whichever they are, may be lost without losing data.
    #[must_use]
    pub fn tolerates(&self) -> usize {
        match self.level {
            Level::Linear | Level::Raid0 => 0,
            Level::Raid1 => self.member_count - 1,
            Level::Raid4 | Level::Raid5 => 1,
            Level::Raid6 => 2,
            Level::Raid10 => {
                let (near, far) = (self.layout & 0xff, (self.layout >> 8) & 0xff);
                (near * far) as usize - 1
            }
        }
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let region = self.region_bytes.map_or("no bitmap".to_owned(), |bytes| {
            format!("regions of {bytes}")
        });
        write!(
            f,
            "{} layout {} members {} strip {} component {} {region}",
            self.level, self.layout, self.member_count, self.strip_bytes, self.component_bytes
        )?;
        match self.log_bytes {
            Some(bytes) if self.is_write_back => write!(f, " write-back log of {bytes}"),
            Some(bytes) => write!(f, " log of {bytes}"),
            None if self.has_ppl => f.write_str(" ppl"),
            None => Ok(()),
        }
    }
}
