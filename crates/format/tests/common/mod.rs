//! Helpers of the golden tests: a member's image with what was found on it.
#![allow(dead_code, clippy::unwrap_used)] // each test binary uses its own part

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use plexum_format::md::superblock::SUPERBLOCK_BYTES;
use plexum_format::md::{BadBlocks, Bitmap, Superblock};
use plexum_format::{Detection, SECTOR_BYTES, detect};
use plexum_testkit::{Case, Member, md_cases, unpack_case};

/// A member of a golden case with its bytes.
#[derive(Clone)]
pub struct Image {
    pub case: Case,
    pub member: Member,
    pub bytes: Vec<u8>,
}

impl Image {
    /// `s07_raid5_ls/m0.img`, for messages.
    pub fn name(&self) -> String {
        format!("{}/{}", self.case.id, self.member.file)
    }

    pub fn device_sectors(&self) -> u64 {
        self.bytes.len() as u64 / SECTOR_BYTES
    }

    pub fn detect(&self) -> Detection {
        let mut reader = |offset: u64, buffer: &mut [u8]| -> Result<(), ()> {
            let start = offset as usize;
            buffer.copy_from_slice(self.bytes.get(start..start + buffer.len()).ok_or(())?);
            Ok(())
        };
        detect(self.device_sectors(), &mut reader).unwrap()
    }

    /// The valid superblock.
    pub fn superblock(&self) -> Superblock {
        match self.detect().md() {
            Some(Ok(superblock)) => superblock.clone(),
            other => panic!("{}: {other:?}", self.name()),
        }
    }

    pub fn sectors(&self, start: u64, count: u64) -> &[u8] {
        &self.bytes[(start * SECTOR_BYTES) as usize..((start + count) * SECTOR_BYTES) as usize]
    }

    pub fn superblock_area(&self) -> [u8; SUPERBLOCK_BYTES] {
        let sector = self.superblock().super_offset_sectors;
        self.sectors(sector, 8).try_into().unwrap()
    }

    pub fn bitmap(&self) -> Option<Bitmap> {
        let superblock = self.superblock();
        let sector = superblock.bitmap_sector()?;
        let room = superblock
            .bitmap_room_sectors(self.device_sectors())
            .unwrap();
        let area = self.sectors(sector, room);
        Some(Bitmap::parse(area, sector * SECTOR_BYTES, room).unwrap())
    }

    pub fn bad_blocks(&self) -> Option<BadBlocks> {
        let superblock = self.superblock();
        let log = superblock
            .bad_block_log
            .filter(|_| superblock.has_bad_blocks)?;
        let sector = superblock.bad_block_log_sector().unwrap();
        let area = self.sectors(sector, u64::from(log.size_sectors));
        Some(BadBlocks::parse(area, log.shift, sector * SECTOR_BYTES).unwrap())
    }
}

/// Calls `check` with every member image of every case.
pub fn for_each_image(check: impl FnMut(&Image)) {
    for_each_image_of(|_| true, check);
}

/// Calls `check` with every member image of some cases.
pub fn for_each_image_of(is_wanted: fn(&Case) -> bool, mut check: impl FnMut(&Image)) {
    for case in md_cases().into_iter().filter(is_wanted) {
        let unpacked = unpack_case(&case.id);
        for member in &case.members {
            check(&Image {
                case: case.clone(),
                member: member.clone(),
                bytes: unpacked.read(&member.file),
            });
        }
    }
}

/// As [`for_each_image`], only those with a valid superblock.
pub fn for_each_valid_image(mut check: impl FnMut(&Image)) {
    for_each_image(|image| {
        if image.member.superblock_ok {
            check(image);
        }
    });
}

/// One image by case and file; each is unpacked once for a test binary.
pub fn image(id: &str, file: &str) -> Image {
    static CACHE: Mutex<BTreeMap<String, Image>> = Mutex::new(BTreeMap::new());
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    let load = || {
        let case = md_cases().into_iter().find(|case| case.id == id).unwrap();
        let member = case
            .members
            .iter()
            .find(|m| m.file == file)
            .unwrap()
            .clone();
        let bytes = unpack_case(id).read(file);
        Image {
            case,
            member,
            bytes,
        }
    };
    cache
        .entry(format!("{id}/{file}"))
        .or_insert_with(load)
        .clone()
}

/// The checksum of a 1.x area, written anew: for tests that change bytes and want to get past it.
pub fn fix_checksum_1(area: &mut [u8]) {
    let max_dev = u32::from_le_bytes(area[220..224].try_into().unwrap());
    let length = 256 + 2 * max_dev as usize;
    area[216..220].fill(0);
    if length > area.len() {
        return;
    }
    let mut sum = 0_u64;
    for word in area[..length].chunks(4) {
        let mut bytes = [0; 4];
        bytes[..word.len()].copy_from_slice(word);
        sum += u64::from(u32::from_le_bytes(bytes));
    }
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    area[216..220].copy_from_slice(&(sum as u32).to_le_bytes());
}

/// The checksum of a little-endian 0.90 area, written anew.
pub fn fix_checksum_090(area: &mut [u8]) {
    area[152..156].fill(0);
    let sum: u64 = area
        .chunks_exact(4)
        .map(|word| u64::from(u32::from_le_bytes(word.try_into().unwrap())))
        .sum();
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    area[152..156].copy_from_slice(&(sum as u32).to_le_bytes());
}
