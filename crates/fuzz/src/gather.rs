//! Makes the corpus from the recorded images: one file for each kind of superblock, log and label. That of ZFS is not
//! made anew, but for the trees: it has labels and roots of the recorded pools, and small blocks written for it.

use std::collections::BTreeSet;

use plexum_daemon::control::Action;
use plexum_format::md::ppl::{HEADER_BYTES, find_newest, signature};
use plexum_format::md::superblock::SUPERBLOCK_BYTES;
use plexum_format::md::{JournalMeta, Role, Superblock};
use plexum_format::stripe_log::{Batch, Record, Slots};
use plexum_format::vinum::{CONFIG_BYTES, CONFIG_OFFSETS_BYTES, Config, DriveHeader, HeaderFormat};
use plexum_format::{SECTOR_BYTES, detect};
use plexum_nbd::wire::option::{ContextRequest, InfoRequest, encode_option};
use plexum_nbd::wire::reply::ChunkHead;
use plexum_nbd::wire::request::Request;
use plexum_nbd::wire::{Framing, option};
use plexum_testkit::{Case, freebsd_cases, md_cases, unpack_case, unpack_freebsd_case};
use plexum_vhost::wire::{
    ConfigPart, Header, InflightArea, Message, Region, RingFile, RingPlace, RingValue,
};

mod nvme;

use crate::input::{Input, folder};
use crate::targets::log::header;
use crate::targets::vhost::{AVAILABLE, BASE, MEMORY_BYTES};

/// Configurations longer than this only make the corpus large.
const CONFIG_BYTES_MAX: usize = 4096;

/// Writes all files; those that are there are replaced.
///
/// # Errors
/// A sentence when something cannot be written or read.
pub fn gather() -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for case in md_cases() {
        md(&case, &mut seen)?;
    }
    for kind in ["gmirror", "gstripe", "gconcat"] {
        labels(kind, &mut seen)?;
    }
    vinum(&mut seen)?;
    stripe_log()?;
    nbd()?;
    nvme::gather()?;
    vhost()?;
    for (name, plex) in crate::targets::zfs_tree::corpus() {
        save("zfs-tree", name, [0; 4], &plex)?;
    }
    control()
}

fn save(target: &str, name: &str, numbers: [u64; 4], bytes: &[u8]) -> Result<(), String> {
    save_as(target, &format!("ok-{name}"), numbers, bytes)
}

fn save_as(target: &str, name: &str, numbers: [u64; 4], bytes: &[u8]) -> Result<(), String> {
    let folder = folder(target);
    let tell = |error: std::io::Error| format!("{}: {error}", folder.display());
    std::fs::create_dir_all(&folder).map_err(tell)?;
    let bytes = bytes.to_vec();
    let file = Input { numbers, bytes }.to_file();
    std::fs::write(folder.join(name), file).map_err(tell)
}

fn sectors(bytes: &[u8], start: u64, count: u64) -> Option<&[u8]> {
    let (start, length) = (start * SECTOR_BYTES, count * SECTOR_BYTES);
    bytes.get(start as usize..(start + length) as usize)
}

fn found(bytes: &[u8]) -> Option<Superblock> {
    let mut reader = |offset: u64, buffer: &mut [u8]| -> Result<(), ()> {
        let start = offset as usize;
        buffer.copy_from_slice(bytes.get(start..start + buffer.len()).ok_or(())?);
        Ok(())
    };
    let detection = detect(bytes.len() as u64 / SECTOR_BYTES, &mut reader).ok()?;
    match detection.md() {
        Some(Ok(superblock)) => Some(superblock.clone()),
        _ => None,
    }
}

/// What one array of md has that was not seen yet.
fn md(case: &Case, seen: &mut BTreeSet<String>) -> Result<(), String> {
    let unpacked = unpack_case(&case.id);
    for member in case.members.iter().filter(|member| member.superblock_ok) {
        let bytes = unpacked.read(&member.file);
        let Some(superblock) = found(&bytes) else {
            continue;
        };
        let size = bytes.len() as u64 / SECTOR_BYTES;
        let name = format!("{}-{}", case.id, member.file.trim_end_matches(".img"));
        let mut is_new = |what: String| seen.insert(what);
        let at = superblock.super_offset_sectors;
        let version = crate::targets::version_number(superblock.version);
        let kind = format!(
            "superblock {version} {} {:?} {}",
            case.level.signum(),
            member.features,
            case.state
        );
        if is_new(kind)
            && let Some(area) = sectors(&bytes, at, SUPERBLOCK_BYTES as u64 / SECTOR_BYTES)
        {
            save("md-superblock", &name, [at, size, version, 0], area)?;
        }
        let bitmap = superblock
            .bitmap_sector()
            .zip(superblock.bitmap_room_sectors(size));
        if let Some((start, room)) = bitmap
            && is_new(format!("bitmap {version} {}", case.state))
            && let Some(area) = sectors(&bytes, start, room.min(8))
        {
            save("md-bitmap", &name, [start * SECTOR_BYTES, room, 0, 0], area)?;
        }
        let log = superblock
            .bad_block_log
            .filter(|_| superblock.has_bad_blocks);
        if let Some((log, start)) = log.zip(superblock.bad_block_log_sector())
            && is_new(format!("bad blocks {}", case.id))
            && let Some(area) = sectors(&bytes, start, u64::from(log.size_sectors))
        {
            let numbers = [u64::from(log.shift), start * SECTOR_BYTES, 0, 0];
            save("md-bad-blocks", &name, numbers, area)?;
        }
        md_logs(&superblock, &bytes, &name, &mut is_new)?;
    }
    Ok(())
}

/// Headers of a partial parity log and of a journal.
fn md_logs(
    superblock: &Superblock,
    bytes: &[u8],
    name: &str,
    is_new: &mut impl FnMut(String) -> bool,
) -> Result<(), String> {
    let signature = signature(&superblock.array_uuid);
    let ppl = superblock.ppl_sector().zip(superblock.ppl);
    if let Some((start, area)) = ppl
        && let Some(log) = sectors(bytes, start, u64::from(area.size_sectors))
        && let Some((offset, header)) = find_newest(log, start * SECTOR_BYTES, signature, true)
        && is_new(format!("ppl {}", header.entries.len()))
    {
        let from = offset as usize;
        let numbers = [start * SECTOR_BYTES + offset, u64::from(signature), 0, 0];
        save("md-ppl", name, numbers, &log[from..from + HEADER_BYTES])?;
    }
    if superblock.role() != Role::Journal {
        return Ok(());
    }
    let uuid = superblock.array_uuid;
    let half = |at: usize| u64::from_le_bytes(uuid[at..at + 8].try_into().expect("8 bytes"));
    let start = (superblock.data_offset_sectors * SECTOR_BYTES) as usize;
    for (number, block) in bytes[start..].chunks_exact(4096).enumerate() {
        let Ok(meta) = JournalMeta::parse(block, 0, &uuid) else {
            continue;
        };
        if is_new(format!("journal {}", meta.payloads.len())) {
            save(
                "md-journal",
                &format!("{name}-{number}"),
                [0, half(0), half(8), 0],
                block,
            )?;
        }
    }
    Ok(())
}

fn labels(kind: &str, seen: &mut BTreeSet<String>) -> Result<(), String> {
    for case in freebsd_cases(kind) {
        let id = case["id"].as_str().unwrap_or_default();
        let unpacked = unpack_freebsd_case(id);
        for member in case["members"].as_array().into_iter().flatten() {
            let (Some(file), Some(size)) = (member["file"].as_str(), member["size"].as_u64())
            else {
                continue;
            };
            if !seen.insert(format!("{kind} {id}")) {
                continue;
            }
            let offset = size - member["sector_size"].as_u64().unwrap_or(512);
            let bytes = unpacked.read(file);
            let label = &bytes[offset as usize..offset as usize + 512];
            save(kind, id, [offset, size, 0, 0], label)?;
        }
    }
    Ok(())
}

fn vinum(seen: &mut BTreeSet<String>) -> Result<(), String> {
    for case in freebsd_cases("gvinum") {
        let id = case["id"].as_str().unwrap_or_default();
        let unpacked = unpack_freebsd_case(id);
        let drives = case["drives"].as_array().into_iter().flatten();
        for file in drives.filter_map(|drive| drive["file"].as_str()) {
            let bytes = unpacked.read(file);
            let header = DriveHeader::parse(&bytes[4096..4608], 4096);
            // What the original Vinum wrote is read, and written in the current format.
            let is_current = header.is_ok_and(|header| header.format == HeaderFormat::Current);
            let prefix = if is_current { "ok" } else { "legacy" };
            if seen.insert(format!("header {id}")) {
                let numbers = [4096, 0, 0, 0];
                save_as(
                    "vinum-header",
                    &format!("{prefix}-{id}"),
                    numbers,
                    &bytes[4096..4608],
                )?;
            }
            let from = CONFIG_OFFSETS_BYTES[0];
            let copy = &bytes[from as usize..(from + CONFIG_BYTES) as usize];
            let Ok(config) = Config::parse(copy, from) else {
                continue;
            };
            let text = config.to_string();
            if text.len() <= CONFIG_BYTES_MAX && seen.insert(text.clone()) {
                save("vinum-config", id, [from, 0, 0, 0], text.as_bytes())?;
            }
        }
    }
    Ok(())
}

fn stripe_log() -> Result<(), String> {
    let header = header(77);
    save("log-header", "fresh", [4096, 0, 0, 0], &header.encode())?;
    for count in [1, 3, 63_u16] {
        let record = |number: u16| {
            let mut touched = Slots::default();
            for slot in 0..=number % 4 {
                touched.insert(usize::from(slot));
            }
            Record {
                sequence: u64::from(number) + 10,
                row: u64::from(number) * 7,
                start_bytes: 512 * u32::from(number % 3),
                length_bytes: 512,
                checksum: 0x1234_5678,
                slot: number % 4,
                touched,
            }
        };
        let batch = Batch {
            log_id: 77,
            number: 1,
            position: 4096,
            records: (0..count).map(record).collect(),
        };
        let numbers = [batch.number, batch.position, batch.log_id, 0];
        save(
            "log-batch",
            &count.to_string(),
            numbers,
            &batch.encode_page(),
        )?;
    }
    Ok(())
}

/// Conversations that clients have.
fn nbd() -> Result<(), String> {
    let info = InfoRequest::encode("nas", &[0, 3]);
    let contexts = ContextRequest::encode("nas", &["base:allocation"]);
    type Option<'a> = (u32, &'a [u8]);
    let conversations: [(&str, &[Option<'_>]); 4] = [
        ("go", &[(8, &[]), (10, &contexts), (7, &info)]),
        ("list", &[(3, &[]), (9, &contexts), (6, &info), (2, &[])]),
        ("name", &[(1, b"nas")]),
        ("unknown", &[(4242, b"what"), (5, &[]), (7, &info)]),
    ];
    for (name, options) in conversations {
        let mut bytes = 3_u32.to_be_bytes().to_vec();
        for (number, data) in options {
            option::encode_option(&mut bytes, *number, data);
        }
        save("nbd-options", name, [0; 4], &bytes)?;
    }
    let mut lonely = 1_u32.to_be_bytes().to_vec();
    encode_option(&mut lonely, 1, b"");
    save("nbd-options", "old", [0; 4], &lonely)?;
    for (framing, number) in [
        (Framing::Simple, 0),
        (Framing::Structured, 1),
        (Framing::Extended, 2),
    ] {
        for command in [0, 1, 3, 7] {
            let request = Request {
                flags: 0,
                command,
                cookie: 77,
                offset_bytes: 4096,
                length_bytes: 8192,
            };
            let (bytes, length) = request.encode(framing);
            let name = format!("{number}-{command}");
            save("nbd-request", &name, [number, 0, 0, 0], &bytes[..length])?;
        }
        let head = ChunkHead {
            is_done: true,
            kind: 1,
            cookie: 77,
            offset_bytes: 0,
            length_bytes: 512,
        };
        if framing != Framing::Simple {
            let (bytes, length) = head.encode(framing);
            let bytes = [&bytes[..length], &[0; 40]].concat();
            save("nbd-reply", &format!("{number}"), [number, 0, 0, 0], &bytes)?;
        }
    }
    let simple = plexum_nbd::wire::reply::encode_simple(None, 77);
    save("nbd-reply", "0", [0; 4], &simple)
}

fn control() -> Result<(), String> {
    let word = |text: &str| text.to_owned();
    let actions = [
        Action::Fail { member: word("0") },
        Action::Add {
            member: word("/dev/sdb"),
            force: true,
        },
        Action::ReAdd {
            member: word("nbd://host/export"),
        },
        Action::Replace {
            old: word("1"),
            new: word("new.img"),
            force: false,
        },
        Action::Scrub {
            repair: true,
            stop: false,
        },
        Action::Stop,
        Action::Set {
            settings: [(word("rebuild-max"), word("8M"))].into(),
        },
    ];
    for action in actions {
        let bytes = serde_json::to_vec(&action).map_err(|error| error.to_string())?;
        save("control", action.route(), [0; 4], &bytes)?;
    }
    Ok(())
}

/// A message of each kind, and rings of a machine that asks for everything there is.
fn vhost() -> Result<(), String> {
    let value = RingValue { ring: 1, value: 16 };
    let file = RingFile {
        ring: 1,
        has_file: true,
    };
    let region = Region {
        guest_address: 0x1000,
        size_bytes: 0x10_0000,
        user_address: 0x7000_0000,
        file_offset_bytes: 0,
    };
    let part = ConfigPart {
        offset_bytes: 32,
        flags: 0,
        bytes: vec![1],
    };
    let area = InflightArea {
        size_bytes: 4096,
        file_offset_bytes: 0,
        queues: 1,
        descriptors: 128,
    };
    let messages = [
        Message::GetFeatures,
        Message::SetFeatures(1 << 32),
        Message::SetMemoryTable(vec![region, region]),
        Message::SetRingSize(value),
        Message::SetRingPlace(RingPlace::default()),
        Message::GetRingBase(value),
        Message::SetKick(file),
        Message::SetConfig(part),
        Message::SetInflight(area),
        Message::AddRegion(region),
    ];
    for message in messages {
        let payload = message.encode_payload();
        let header = Header {
            request: message.request(),
            needs_reply: true,
            is_reply: false,
            payload_bytes: payload.len(),
        };
        let name = format!("{:02}", message.request());
        let bytes = [&header.encode()[..], &payload].concat();
        save("vhost-message", &name, [0; 4], &bytes)?;
    }
    for (number, kind) in [0_u32, 1, 4, 8, 11, 13].into_iter().enumerate() {
        save(
            "vhost-ring",
            &format!("{kind:02}"),
            [number as u64, 0, 0, 0],
            &ring_of(kind),
        )?;
    }
    Ok(())
}

/// A machine's memory: one request, directly and by a table.
fn ring_of(kind: u32) -> Vec<u8> {
    const NEXT: u16 = 1;
    const WRITE: u16 = 2;
    const INDIRECT: u16 = 4;
    let mut bytes = vec![0; MEMORY_BYTES];
    let mut put = |at: u64, field: &[u8]| {
        bytes[at as usize..at as usize + field.len()].copy_from_slice(field);
    };
    let descriptor = |address: u64, count: u32, flags: u16, next: u16| {
        let mut all = (BASE + address).to_le_bytes().to_vec();
        all.extend_from_slice(&count.to_le_bytes());
        all.extend_from_slice(&flags.to_le_bytes());
        all.extend_from_slice(&next.to_le_bytes());
        all
    };
    let data = match kind {
        0 | 8 => NEXT | WRITE,
        _ => NEXT,
    };
    let count = match kind {
        0 | 1 => 512,
        8 => 20,
        _ => 16,
    };
    // In the ring, and the same in a table at 608.
    for (place, first) in [(0, 0), (608, 0)] {
        put(place, &descriptor(656, 16, NEXT, first + 1));
        put(place + 16, &descriptor(704, count, data, first + 2));
        put(place + 32, &descriptor(1500, 1, WRITE, 0));
    }
    put(48, &descriptor(608, 48, INDIRECT, 0));
    put(AVAILABLE + 2, &2_u16.to_le_bytes());
    put(AVAILABLE + 4, &[0, 0, 3, 0]);
    put(656, &kind.to_le_bytes());
    put(664, &5_u64.to_le_bytes());
    if kind > 8 {
        put(704, &7_u64.to_le_bytes());
        put(712, &8_u32.to_le_bytes());
    }
    bytes
}
