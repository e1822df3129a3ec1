//! The golden images of Linux md; `fixtures/md/README.md` says how they were made.

use serde::Deserialize;

use crate::unpack::{Unpacked, fixtures, unpack};

#[derive(Deserialize)]
struct Manifest {
    cases: Vec<Case>,
}

/// One array: its geometry, content and members. Fields as in the manifest; sizes in bytes or sectors as named there.
#[derive(Debug, Clone, Deserialize)]
pub struct Case {
    /// Name of the case and of its archive.
    pub id: String,
    /// One line about it.
    pub what: String,
    /// -1 linear, 0, 1, 4, 5, 6, 10.
    pub level: i32,
    /// md's layout number.
    pub layout: u32,
    /// Strip size in bytes; 0: none.
    #[serde(rename = "chunk_bytes")]
    pub strip_bytes: u64,
    /// Superblock version: `0.90`, `1.0`, `1.1` or `1.2`.
    pub metadata: String,
    /// Number of slots.
    pub raid_disks: u32,
    /// 32 hex digits in display order.
    pub array_uuid: String,
    /// Name in the superblock.
    pub name: String,
    /// Used size of each member.
    pub component_sectors: u64,
    /// Events of the freshest member.
    pub events: u64,
    /// Bytes of the content that must be read.
    #[serde(rename = "array_size")]
    pub array_bytes: u64,
    /// SHA-256 of that content, hex.
    pub sha256: String,
    /// The pattern: every 8-byte little-endian word is its offset XOR this (`0x` hex); `None` for other content.
    pub seed: Option<String>,
    /// How many further members may be missing with the content still readable; 0: not tested.
    pub tolerates: u32,
    /// `clean`, `dirty` or `reshape`.
    pub state: String,
    /// Slots without a usable member.
    pub missing_roles: Vec<u32>,
    /// Files that are too old to be used.
    pub stale: Vec<String>,
    /// Rows or array sectors whose parity or copies differ on purpose.
    pub inconsistent: Vec<u64>,
    /// Members in file order.
    pub members: Vec<Member>,
    /// What was said about the content after a resync or a replay of the log.
    pub expect: Option<String>,
    /// The pattern that a stale member would give.
    pub stale_seed: Option<String>,
    /// An array stopped in the middle of a reshape.
    pub reshape: Option<ManifestReshape>,
    /// What a reshape in place was moving, as mdadm keeps it.
    pub backup: Option<ManifestBackup>,
    /// There are no missing-member runs for this case.
    #[serde(default)]
    pub no_missing_test: bool,
    /// What the kernel did with the images, as JSON.
    pub kernel_assembles: serde_json::Value,
}

impl Case {
    /// The seed of the content's pattern.
    ///
    /// # Panics
    /// When the manifest's text is no hex number: the fixture is damaged.
    #[must_use]
    pub fn seed_value(&self) -> Option<u64> {
        let text = self.seed.as_deref()?;
        let digits = text.trim_start_matches("0x");
        Some(u64::from_str_radix(digits, 16).unwrap_or_else(|_| panic!("seed {text} is hex")))
    }
}

/// mdadm's backup file of a reshape in place.
#[derive(Debug, Clone, Deserialize)]
pub struct ManifestBackup {
    /// Its name in the archive.
    pub file: String,
}

/// A reshape that was stopped in the middle.
#[derive(Debug, Clone, Deserialize)]
pub struct ManifestReshape {
    /// Array sector up to which it got.
    #[serde(rename = "position")]
    pub position_sectors: u64,
    /// New minus old number of members.
    pub delta_disks: i32,
    /// New level.
    pub new_level: i32,
    /// New layout.
    pub new_layout: u32,
    /// New strip size.
    #[serde(rename = "new_chunk_bytes")]
    pub new_strip_bytes: u64,
    /// New data offset minus the old one, in sectors, for each member.
    #[serde(rename = "new_offset")]
    pub new_offset_sectors: Vec<i32>,
    /// From the end to the start.
    #[serde(default)]
    pub backwards: bool,
}

/// What a member's own superblock says, as an independent reader decoded it.
#[derive(Debug, Clone, Deserialize)]
pub struct Member {
    /// Name of the image.
    pub file: String,
    /// Its size.
    pub bytes: u64,
    /// SHA-256 of the whole image, hex.
    pub sha256: String,
    /// Whether the superblock is valid; the rest is meaningless when it is not.
    pub superblock_ok: bool,
    /// Why the superblock was refused.
    pub error: Option<String>,
    /// Superblock version.
    #[serde(default)]
    pub metadata: String,
    /// Sector of the superblock.
    #[serde(rename = "super_offset", default)]
    pub super_offset_sectors: u64,
    /// First data sector.
    #[serde(rename = "data_offset", default)]
    pub data_offset_sectors: u64,
    /// Sectors for data.
    #[serde(rename = "data_size", default)]
    pub data_size_sectors: u64,
    /// Event count.
    #[serde(default)]
    pub events: u64,
    /// Index in the role table.
    #[serde(default)]
    pub dev_number: u32,
    /// What it calls itself.
    pub own_role: Option<OwnRole>,
    /// 32 hex digits; empty in 0.90.
    #[serde(default)]
    pub device_uuid: String,
    /// Names of the features.
    #[serde(default)]
    pub features: Vec<String>,
    /// First eight entries of the role table.
    #[serde(default)]
    pub dev_roles: Vec<OwnRole>,
    /// `clean` or a sector.
    #[serde(rename = "resync_offset")]
    pub resync_offset_sectors: Option<serde_json::Value>,
    /// The member's copy of the bitmap.
    pub bitmap: Option<ManifestBitmap>,
    /// Not read unless nothing else is left.
    #[serde(default)]
    pub write_mostly: bool,
    /// Rebuilt up to here.
    #[serde(rename = "recovery_offset")]
    pub rebuild_offset_sectors: Option<u64>,
    /// Place of the partial parity log: offset and size in sectors.
    pub ppl: Option<serde_json::Value>,
    /// Bad ranges: absolute start sector and length.
    pub bad_blocks: Option<Vec<(u64, u64)>>,
}

/// Entry of the role table: a slot, or a word (`spare`, `faulty`, `journal`).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum OwnRole {
    /// Has this slot.
    Slot(u16),
    /// Something else.
    Word(String),
}

/// A member's copy of the bitmap.
#[derive(Debug, Clone, Deserialize)]
pub struct ManifestBitmap {
    /// Version of the format.
    pub version: u32,
    /// Event count.
    pub events: u64,
    /// Event count when the array was last whole.
    pub events_cleared: u64,
    /// Sectors covered.
    #[serde(rename = "sync_size")]
    pub sync_size_sectors: u64,
    /// Bytes of a region.
    #[serde(rename = "chunksize")]
    pub region_bytes: u32,
    /// Seconds between two clearings.
    #[serde(rename = "daemon_sleep")]
    pub daemon_sleep_s: u32,
    /// Most writes behind.
    pub write_behind: u32,
    /// Number of regions.
    pub bits: u64,
    /// Regions whose bit is set.
    pub dirty: Vec<u64>,
    /// Sectors from the superblock.
    #[serde(rename = "offset")]
    pub offset_sectors: i32,
}

/// All cases of `fixtures/md/manifest.json`, in its order.
///
/// # Panics
/// When the manifest is missing or does not have the known shape: the test that asked fails.
#[must_use]
pub fn md_cases() -> Vec<Case> {
    let path = fixtures().join("md/manifest.json");
    let shown = path.display();
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{shown}: {error}"));
    let manifest: Manifest =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{shown}: {error}"));
    manifest.cases
}

/// Unpacks the images of a case by its id, such as `s07_raid5_ls`.
///
/// # Panics
/// When there is no such archive or it cannot be unpacked: the test that asked fails.
#[must_use]
pub fn unpack_case(id: &str) -> Unpacked {
    unpack(&fixtures().join("md/images").join(format!("{id}.tar.zst")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_archive_holds_the_members_of_its_case_in_their_sizes() {
        let cases = md_cases();
        assert_eq!(cases.len(), 52);
        for case in cases {
            let unpacked = unpack_case(&case.id);
            for member in &case.members {
                let size = std::fs::metadata(unpacked.path(&member.file))
                    .unwrap()
                    .len();
                assert_eq!(size, member.bytes, "{} {}", case.id, member.file);
            }
        }
    }
}
