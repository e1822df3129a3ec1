//! What is on a member before it is overwritten: signatures that util-linux knows, our own formats, unknown data.
//!
//! Invariants:
//! - nothing is changed, and nothing is taken for blank that could not be read;
//! - a range that the file system calls a hole is blank without being read.

use std::path::Path;
use std::process::Command;

use plexum_block::buf::BufPool;
use plexum_block::device::{Device, IoError};
use plexum_format::detect::{Found as FormatFound, detect, probe_places};
use plexum_format::{Container, SECTOR_BYTES};

use crate::open::{AnyDevice, problem_of_io};
use crate::problem::{Code, Problem};

/// Bytes at the start and at the end that are looked at.
const EDGE_BYTES: u64 = 1 << 20;
/// Where util-linux's tool may be when it is not on the path of an ordinary user.
const WIPEFS: [&str; 3] = ["wipefs", "/usr/sbin/wipefs", "/sbin/wipefs"];

/// Something found on a member.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// What it is, for people: `ext4 file system "home"`.
    pub what: String,
    /// Where its signature is, where known.
    pub offset_bytes: Option<u64>,
}

/// The refusal of a member that would be overwritten, and on which something was found.
pub(crate) fn not_empty(word: &str, found: &Finding) -> Problem {
    Problem::new(
        Code::WouldDestroy,
        format!("{word} is not empty: {} found", found.what),
    )
    .member(word)
    .why("it would be overwritten")
    .hint(format!("to look at it:   plexum examine {word}"))
    .hint("to overwrite it all the same, add:   --force")
}

/// Everything found on the member `word`, best known first. Empty: it is blank.
///
/// # Errors
/// When the member cannot be read: then nobody knows what is on it.
pub async fn inspect(device: &AnyDevice, word: &str) -> Result<Vec<Finding>, Problem> {
    let read = |error| problem_of_io(error, "looking for data on it", word);
    let mut found = own_formats(device).await.map_err(read)?;
    if let Some(file) = device.as_file() {
        for signature in signatures(file.path()) {
            let is_md = signature.what.starts_with("linux_raid_member");
            let is_known = found.iter().any(|one| one.what == signature.what);
            if !is_known && (!is_md || found.is_empty()) {
                found.push(signature);
            }
        }
    }
    if found.is_empty() {
        found.extend(unknown_data(device).await.map_err(read)?);
    }
    Ok(found)
}

async fn own_formats(device: &AnyDevice) -> Result<Vec<Finding>, IoError> {
    let pool = BufPool::new(0);
    let info = device.info();
    let device_sectors = info.size_bytes / SECTOR_BYTES;
    let mut areas = Vec::new();
    for place in probe_places(device_sectors) {
        let bytes = read_unaligned(device, &pool, place.start, place.end - place.start).await?;
        areas.push((place.start, bytes));
    }
    let mut reader = |offset: u64, buffer: &mut [u8]| -> Result<(), ()> {
        let area = areas.iter().find(|(start, _)| *start == offset).ok_or(())?;
        buffer.copy_from_slice(&area.1[..buffer.len()]);
        Ok(())
    };
    let Ok(detection) = detect(device_sectors, &mut reader) else {
        return Err(IoError::Medium);
    };
    Ok(detection
        .found
        .iter()
        .map(|found| match found {
            FormatFound::Md(superblock) => Finding {
                what: format!(
                    "md superblock {} of array {}",
                    superblock.version,
                    if superblock.name.is_empty() {
                        plexum_format::uuid::md_uuid_text(&superblock.array_uuid)
                    } else {
                        superblock.name.clone()
                    }
                ),
                offset_bytes: Some(superblock.super_offset_sectors * SECTOR_BYTES),
            },
            FormatFound::Damaged { version, error } => Finding {
                what: format!("damaged md superblock {version}"),
                offset_bytes: Some(error.offset_bytes),
            },
            FormatFound::Container(container) => Finding {
                what: container.to_string(),
                offset_bytes: None,
            },
            _ => Finding {
                what: "metadata of a RAID".into(),
                offset_bytes: None,
            },
        })
        .collect())
}

/// Reads a range whose borders need not fit the device's sectors.
///
/// # Errors
/// Of the device, `OutOfRange` past its end.
pub async fn read_unaligned(
    device: &AnyDevice,
    pool: &BufPool,
    offset_bytes: u64,
    length_bytes: u64,
) -> Result<Vec<u8>, IoError> {
    let sector = u64::from(device.info().sector_bytes);
    let start = offset_bytes / sector * sector;
    let end = offset_bytes
        .checked_add(length_bytes)
        .ok_or(IoError::OutOfRange)?
        .next_multiple_of(sector);
    let length = usize::try_from(end - start).map_err(|_| IoError::OutOfRange)?;
    let buf = device.read(start, pool.take(length)).await?;
    let skip = (offset_bytes - start) as usize;
    Ok(buf[skip..skip + length_bytes as usize].to_vec())
}

/// Signatures that util-linux knows on a path; none when the tool is missing or refuses.
#[must_use]
pub fn signatures(path: &Path) -> Vec<Finding> {
    for program in WIPEFS {
        let Ok(output) = Command::new(program)
            .args(["--no-act", "--json"])
            .arg(path)
            .output()
        else {
            continue;
        };
        return parse_wipefs(&output.stdout);
    }
    Vec::new()
}

fn parse_wipefs(json: &[u8]) -> Vec<Finding> {
    // Labels are bytes of the disk: what is no text must not cost us the other signatures.
    let text = String::from_utf8_lossy(json);
    let Ok(value) = serde_json::from_str::<serde_json::Value>(&text) else {
        return Vec::new();
    };
    let signatures = value["signatures"].as_array().cloned().unwrap_or_default();
    signatures
        .iter()
        .filter_map(|signature| {
            let kind = signature["type"].as_str()?;
            let label = signature["label"].as_str().unwrap_or("");
            let offset = signature["offset"].as_str().unwrap_or("");
            let mut what = match kind {
                "dos" | "gpt" | "PMBR" | "mac" | "bsd" | "sun" => format!("{kind} partition table"),
                "ddf_raid_member" => Container::Ddf.to_string(),
                "isw_raid_member" => Container::Intel.to_string(),
                "crypto_LUKS" | "swap" => kind.to_owned(),
                member if member.ends_with("_member") => member.to_owned(),
                other => format!("{other} file system"),
            };
            if !label.is_empty() {
                what.push_str(&format!(" \"{}\"", label.escape_default()));
            }
            Some(Finding {
                what,
                offset_bytes: u64::from_str_radix(offset.trim_start_matches("0x"), 16).ok(),
            })
        })
        .collect()
}

/// Whether the first or the last MiB holds anything but zeroes.
async fn unknown_data(device: &AnyDevice) -> Result<Option<Finding>, IoError> {
    let pool = BufPool::new(0);
    let size = device.info().size_bytes;
    let edge = EDGE_BYTES.min(size);
    for (where_, start) in [("first", 0), ("last", size - edge)] {
        if edge == 0 || is_hole(device, start, edge) {
            continue;
        }
        let bytes = read_unaligned(device, &pool, start, edge).await?;
        if let Some(at) = bytes.iter().position(|byte| *byte != 0) {
            return Ok(Some(Finding {
                what: format!("unknown data in its {where_} MiB"),
                offset_bytes: Some(start + at as u64),
            }));
        }
    }
    Ok(None)
}

/// Whether the file system says that nothing was ever written to the range.
#[must_use]
pub fn is_hole(device: &AnyDevice, offset_bytes: u64, length_bytes: u64) -> bool {
    device.as_file().is_some_and(|file| {
        length_bytes == 0 || file.is_hole(offset_bytes, length_bytes).unwrap_or(false)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_of_util_linux_become_words() {
        let found = parse_wipefs(
            br#"{"signatures":[
            {"device":"a","offset":"0x438","type":"ext4","uuid":"u","label":"ho\"me"},
            {"device":"a","offset":"0x1fe","type":"dos","uuid":null,"label":null}]}"#,
        );
        assert_eq!(found[0].what, "ext4 file system \"ho\\\"me\"");
        assert_eq!(found[0].offset_bytes, Some(0x438));
        assert_eq!(found[1].what, "dos partition table");
        let found = parse_wipefs(
            b"{\"signatures\":[{\"offset\":\"0x1\",\"type\":\"xfs\",\"label\":\"a\xde\xbe\"}]}",
        );
        assert!(found[0].what.starts_with("xfs file system \"a"));
        assert_eq!(parse_wipefs(b""), []);
        assert_eq!(parse_wipefs(b"[1]"), []);
    }
}
