//! Linux md: superblocks 0.90 and 1.x, write-intent bitmap, bad block log, partial parity log, write journal.
//!
//! Here the words are md's own (chunk, recovery, raid disk); everywhere else the glossary's hold. What leaves this
//! module uses the glossary (strip, rebuild, member, slot).
//!
//! Source of every layout: linux-md.md sections 1 to 6.

pub mod backup;
pub mod badblocks;
pub mod bitmap;
pub mod describe;
pub mod journal;
pub mod placement;
pub mod ppl;
pub mod superblock;
mod superblock1;
mod superblock90;

pub use badblocks::BadBlocks;
pub use bitmap::{Bitmap, BitmapHeader, BitmapKind, NewBitmap, default_region_bytes};
pub use describe::{
    Field, Value, describe_bad_blocks, describe_bitmap, describe_journal, describe_ppl,
    describe_superblock, layout_name, level_name,
};
pub use journal::JournalMeta;
pub use placement::{Placement, PlacementRequest, component_sectors, place_member};
pub use ppl::{PplEntry, PplGeometry, PplHeader, ReplayRow};
pub use superblock::{
    BadBlockArea, MdTime, MdVersion, NewMember, PplArea, Raid0Layout, Reshape, Role, Superblock,
    feature, super_offset_sectors,
};
