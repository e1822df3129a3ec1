//! The parsers under test.

mod control;
mod geom;
pub mod log;
mod md;
mod nbd;
mod vinum;
mod zfs;
pub mod zfs_tree;

use crate::input::Input;
use crate::mutate::Hints;

/// A parser with what the driver has to know of its format.
pub struct Target {
    /// Its name, also of its corpus.
    pub name: &'static str,
    /// Parses, writes, parses again; says whether the input was accepted.
    pub check: fn(&Input) -> Result<bool, String>,
    /// What writing the parsed input gives; `None` when there is no such thing, or it is refused.
    pub write_back: fn(&Input) -> Option<Vec<u8>>,
    /// Makes the checksum right.
    pub repair: fn(&mut Input),
    /// How to damage it.
    pub hints: Hints,
    /// Longer inputs are cut.
    pub length_max_bytes: usize,
}

/// All of them.
pub const ALL: [&Target; 30] = [
    &md::SUPERBLOCK,
    &md::BITMAP,
    &md::BAD_BLOCKS,
    &md::PPL,
    &md::JOURNAL,
    &log::HEADER,
    &log::BATCH,
    &geom::MIRROR,
    &geom::STRIPE,
    &geom::CONCAT,
    &vinum::HEADER,
    &vinum::CONFIG,
    &nbd::OPTIONS,
    &nbd::REQUEST,
    &nbd::REPLY,
    &control::ACTION,
    &zfs::LABEL,
    &zfs::LIST,
    &zfs::UBERBLOCK,
    &zfs::POINTER,
    &zfs::DNODE,
    &zfs::ZAP,
    &zfs::LOG,
    &zfs::PARTITIONS,
    &zfs::LZJB,
    &zfs::ZLE,
    &zfs::GZIP,
    &zfs::LZ4,
    &zfs::ZSTD,
    &zfs_tree::TREE,
];

/// The number that stands for a version of md's superblock.
#[must_use]
pub fn version_number(version: plexum_format::md::superblock::MdVersion) -> u64 {
    let known = md::VERSIONS.iter().position(|known| *known == version);
    known.map_or(0, |number| number as u64)
}

/// Nothing to repair.
fn as_it_is(_: &mut Input) {}

/// `again` is what was read after writing `first`: both must say the same, and be written the same.
fn agree<T>(
    first: &T,
    again: &T,
    write: impl Fn(&T) -> Vec<u8>,
    show: impl Fn(&T) -> String,
) -> Result<bool, String> {
    let (one, other) = (show(first), show(again));
    if one != other {
        return Err(format!(
            "read, written and read it differs:\n{one}\n{other}"
        ));
    }
    if write(first) != write(again) {
        return Err("read, written and read it is written otherwise".to_owned());
    }
    Ok(true)
}
