//! The golden images of Linux md: every case assembles as the kernel assembled it, and a slow reader made of the
//! address maps and the reference arithmetic finds the content, whole and with every subset of members missing that can
//! be spared.

use std::collections::BTreeSet;

use plexum_format::detect::detect;
use plexum_format::md::{BadBlocks, BitmapHeader};
use plexum_layout::{Geometry, RowMap, RowRole};
use plexum_md::assemble::{
    AssembleCode, AssembledMember, AssembledStanding, Assembly, BitmapUse, Examined, Options,
    Refused, assemble,
};
use plexum_parity::reference;
use plexum_testkit::{Case, md_cases, unpack_case};

const UNIT: usize = 512;
type Unit = [u8; UNIT];

/// A member file with everything that was found on it.
struct Image {
    examined: Examined,
    bytes: Vec<u8>,
    bad: Vec<std::ops::Range<u64>>,
}

fn images(case: &Case) -> Vec<Image> {
    let unpacked = unpack_case(&case.id);
    let read = |(index, member): (usize, &plexum_testkit::Member)| {
        let bytes = unpacked.read(&member.file);
        let image = image(index, &member.file, bytes);
        assert_eq!(
            image.is_some(),
            member.superblock_ok,
            "{} {}",
            case.id,
            member.file
        );
        image
    };
    case.members.iter().enumerate().filter_map(read).collect()
}

fn image(index: usize, name: &str, bytes: Vec<u8>) -> Option<Image> {
    let sectors = bytes.len() as u64 / 512;
    let at =
        |sector: u64, length: usize| &bytes[usize::try_from(sector * 512).unwrap()..][..length];
    let mut reader = |offset: u64, buffer: &mut [u8]| {
        buffer.copy_from_slice(at(offset / 512, buffer.len()));
        Ok::<(), ()>(())
    };
    let superblock = detect(sectors, &mut reader).unwrap().md()?.ok()?.clone();
    let room = superblock.bitmap_room_sectors(sectors);
    let bitmap = superblock
        .bitmap_sector()
        .map(|sector| BitmapHeader::parse(at(sector, 256), sector * 512, room.unwrap()).unwrap());
    let mut bad = Vec::new();
    if let (true, Some(log)) = (superblock.has_bad_blocks, superblock.bad_block_log) {
        let sector = superblock.bad_block_log_sector().unwrap();
        let area = at(sector, usize::from(log.size_sectors) * 512);
        bad = BadBlocks::parse(area, log.shift, sector * 512)
            .unwrap()
            .ranges()
            .to_vec();
        assert!(!bad.is_empty());
    }
    let examined = Examined {
        index,
        name: name.to_owned(),
        device_bytes: bytes.len() as u64,
        superblock,
        bitmap,
        refused: Refused::default(),
        log: None,
        goal: None,
    };
    Some(Image {
        examined,
        bytes,
        bad,
    })
}

fn options(case: &Case) -> Options {
    let command = case.kernel_assembles["command"].as_str().unwrap();
    Options {
        force: command.contains("--force"),
        run_degraded: command.contains("--run"),
        read_only: true,
        force_data: false,
        has_backup: case.backup.is_some(),
        ..Options::default()
    }
}

fn assemble_images(
    images: &[&Image],
    options: &Options,
) -> Result<Assembly, plexum_md::assemble::AssembleError> {
    let examined: Vec<Examined> = images.iter().map(|image| image.examined.clone()).collect();
    assemble(&examined, options)
}

/// Reads 512 bytes at a time, from what is valid.
struct SlowReader<'a> {
    assembly: &'a Assembly,
    images: &'a [&'a Image],
}

impl SlowReader<'_> {
    /// What a slot has at a member offset; `None` when nobody has it.
    fn source(&self, slot: usize, offset: u64, is_reshaped: bool) -> Option<Unit> {
        let has = |member: &&AssembledMember| {
            let has_reshape = self.assembly.reshape.is_some();
            let is_valid = match member.standing {
                AssembledStanding::Active => true,
                // What a reshape fills holds nothing of the old geometry.
                AssembledStanding::Rebuilding {
                    valid_below_bytes, ..
                } => offset < valid_below_bytes && has_reshape == is_reshaped,
                _ => false,
            };
            is_valid && member.slot.map(usize::from) == Some(slot)
        };
        let get = |member: &AssembledMember| {
            let image = self
                .images
                .iter()
                .find(|image| image.examined.index == member.index)
                .unwrap();
            let start = if is_reshaped {
                member.reshaped_offset_bytes
            } else {
                member.data_offset_bytes
            } + offset;
            if image.bad.iter().any(|range| range.contains(&(start / 512))) {
                return None;
            }
            let start = usize::try_from(start).unwrap();
            Some(Unit::try_from(&image.bytes[start..start + UNIT]).unwrap())
        };
        self.assembly.members.iter().filter(has).find_map(get)
    }

    fn read(&self, offset: u64) -> Option<Unit> {
        match &self.assembly.reshape {
            Some(reshape) if (offset < reshape.position_bytes) != reshape.is_backwards => {
                self.read_by(&reshape.after, offset, true)
            }
            _ => self.read_by(&self.assembly.geometry, offset, false),
        }
    }

    fn read_by(&self, geometry: &Geometry, offset: u64, is_reshaped: bool) -> Option<Unit> {
        if geometry.copy_count() > 1 {
            return geometry
                .copies_of(offset)
                .iter()
                .find_map(|c| self.source(c.slot, c.member_offset_bytes, is_reshaped));
        }
        let place = geometry.locate(offset);
        let whole = self.source(place.slot, place.member_offset_bytes, is_reshaped);
        if whole.is_some() || geometry.parity_count() == 0 {
            return whole;
        }
        let map = geometry.row_map(place.member_offset_bytes / geometry.strip_bytes());
        let RowRole::Data(wanted) = map.role_of(place.slot) else {
            panic!("data are not on parity")
        };
        Row::new(&map, |slot| {
            self.source(slot, place.member_offset_bytes, is_reshaped)
        })
        .solve(wanted)
    }
}

/// One row, 512 bytes of each strip.
struct Row {
    data: Vec<Option<Unit>>,
    exponents: Vec<u8>,
    p: Option<Unit>,
    q: Option<Unit>,
}

/// `target += factor * source`, byte by byte with the reference multiplication.
fn add(target: &mut Unit, factor: u8, source: &Unit) {
    let table: Vec<u8> = (0..=255).map(|byte| reference::mul(factor, byte)).collect();
    target
        .iter_mut()
        .zip(source)
        .for_each(|(t, s)| *t ^= table[usize::from(*s)]);
}

fn power(exponent: u8) -> u8 {
    reference::power(2, u32::from(exponent))
}

impl Row {
    fn new(map: &RowMap, source: impl Fn(usize) -> Option<Unit>) -> Row {
        Row {
            data: (0..map.data_count())
                .map(|i| source(map.data_slot(i)))
                .collect(),
            exponents: (0..map.data_count()).map(|i| map.exponent(i)).collect(),
            p: source(map.p),
            q: map.q.and_then(source),
        }
    }

    /// P (or Q) with the shares of all data that are there taken out.
    fn rest(&self, parity: Option<Unit>, has_exponents: bool) -> Option<Unit> {
        let mut rest = parity?;
        for (data, exponent) in self.data.iter().zip(&self.exponents) {
            if let Some(data) = data {
                add(
                    &mut rest,
                    if has_exponents { power(*exponent) } else { 1 },
                    data,
                );
            }
        }
        Some(rest)
    }

    /// Data strip `x`, which is missing. Source: linux-md.md section 8.
    fn solve(&self, x: usize) -> Option<Unit> {
        let missing: Vec<usize> = (0..self.data.len())
            .filter(|i| self.data[*i].is_none())
            .collect();
        let (p, q) = (self.rest(self.p, false), self.rest(self.q, true));
        let scaled = |unit: &Unit, factor: u8| {
            let mut scaled = [0; UNIT];
            add(&mut scaled, factor, unit);
            scaled
        };
        match missing[..] {
            [_] => p.or_else(|| {
                Some(scaled(
                    &q?,
                    reference::inverse(power(self.exponents[x])).unwrap(),
                ))
            }),
            [a, b] => {
                let (gx, gy) = (
                    power(self.exponents[x]),
                    power(self.exponents[if a == x { b } else { a }]),
                );
                let mut sum = q?;
                add(&mut sum, gy, &p?);
                Some(scaled(&sum, reference::inverse(gx ^ gy).unwrap()))
            }
            _ => None,
        }
    }

    /// Whether P and Q are there and right.
    fn agrees(&self) -> bool {
        let is_zero = |rest: Option<Unit>| rest.is_none_or(|rest| rest == [0; UNIT]);
        is_zero(self.rest(self.p, false)) && is_zero(self.rest(self.q, true))
    }
}

fn expect_content(case: &Case, assembly: &Assembly, images: &[&Image], situation: &str) {
    let reader = SlowReader { assembly, images };
    let seed = case.seed_value().expect("every case has a pattern");
    for offset in (0..case.array_bytes).step_by(UNIT) {
        let found = reader
            .read(offset)
            .unwrap_or_else(|| panic!("{} {situation}: nothing at {offset}", case.id));
        for (word, bytes) in (offset..).step_by(8).zip(found.chunks_exact(8)) {
            let value = u64::from_le_bytes(bytes.try_into().unwrap());
            assert_eq!(
                value,
                word ^ seed,
                "{} {situation}: wrong content at {word}",
                case.id
            );
        }
    }
}

/// Rows (parity) or 64 KiB blocks as array sectors (copies) whose redundancy does not agree.
fn disagreements(assembly: &Assembly, images: &[&Image]) -> BTreeSet<u64> {
    let (geometry, reader) = (&assembly.geometry, SlowReader { assembly, images });
    let mut found = BTreeSet::new();
    for row in 0..geometry.row_count() {
        let map = geometry.row_map(row);
        for inside in (0..geometry.strip_bytes()).step_by(UNIT) {
            let offset = row * geometry.strip_bytes() + inside;
            let unit = Row::new(&map, |slot| reader.source(slot, offset, false));
            if unit.data.iter().all(Option::is_some) && !unit.agrees() {
                found.insert(row);
            }
        }
    }
    if geometry.copy_count() > 1 {
        for offset in (0..geometry.volume_bytes()).step_by(UNIT) {
            let copies = geometry.copies_of(offset);
            let units: BTreeSet<Unit> = copies
                .iter()
                .filter_map(|c| reader.source(c.slot, c.member_offset_bytes, false))
                .collect();
            if units.len() > 1 {
                found.insert(offset / 65536 * 128);
            }
        }
    }
    found
}

#[test]
fn every_case_assembles_as_the_kernel_assembled_it() {
    for case in md_cases() {
        let images = images(&case);
        let images: Vec<&Image> = images.iter().collect();
        let assembly = assemble_images(&images, &options(&case))
            .unwrap_or_else(|error| panic!("{}: {error}", case.id));
        let kernel = &case.kernel_assembles;
        assert_eq!(assembly.array.events.0, case.events, "{}", case.id);
        assert_eq!(assembly.array.name, case.name, "{}", case.id);
        assert_eq!(assembly.volume_bytes, case.array_bytes, "{}", case.id);
        let uuid: String = assembly
            .array
            .uuid
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(uuid, case.array_uuid, "{}", case.id);
        if let Some(degraded) = kernel["degraded"].as_u64() {
            let lacking = lacking(&assembly);
            assert_eq!(lacking, degraded, "{}", case.id);
        }
        let missing: Vec<u32> = assembly
            .missing_slots
            .iter()
            .map(|slot| u32::from(*slot))
            .collect();
        // Rebuilt by a rebuild or by a reshape: the manifest does not count them as missing.
        let half_filled = [
            "s28_raid5_half_rebuild",
            "s43_raid5_to_raid6",
            "s45_raid0_grow_3_4",
        ];
        if !half_filled.contains(&case.id.as_str()) {
            assert_eq!(missing, case.missing_roles, "{}", case.id);
        }
        // The kernel replays the PPL, and marks a forced array clean; we keep both dirty (W8).
        if kernel["consistency_policy"] != "ppl" && !options(&case).force {
            let start = assembly
                .resync_start_bytes
                .map_or("none".to_owned(), |bytes| (bytes / 512).to_string());
            assert_eq!(
                start,
                kernel["resync_start"].to_string().trim_matches('"'),
                "{}",
                case.id
            );
        }
        expect_members(&case, &assembly);
        expect_bitmap(&case, &assembly);
    }
}

/// Members that the worse half of a reshape lacks, or the one geometry that there is.
fn lacking(assembly: &Assembly) -> u64 {
    let Some(reshape) = &assembly.reshape else {
        return assembly.missing_slots.len() as u64;
    };
    let is_there = |slot: usize, is_after: bool| {
        assembly.members.iter().any(|member| {
            let is_filled = is_after && reshape.has_filled(member);
            member.slot.map(usize::from) == Some(slot)
                && (is_filled || member.standing == AssembledStanding::Active)
        })
    };
    let of = |geometry: &Geometry, is_after| {
        let slots = 0..geometry.member_count();
        slots.filter(|slot| !is_there(*slot, is_after)).count() as u64
    };
    of(&assembly.geometry, false).max(of(&reshape.after, true))
}

fn expect_members(case: &Case, assembly: &Assembly) {
    let mut used = 0;
    for told in case.kernel_assembles["members"].as_array().unwrap() {
        let name = told["member"].as_str().unwrap();
        let state = told["state"].as_str().unwrap();
        let member = assembly
            .members
            .iter()
            .find(|member| member.name == name)
            .unwrap();
        assert_eq!(
            member.slot.map(u64::from),
            told["slot"].as_u64(),
            "{} {name}",
            case.id
        );
        let as_expected = match (&member.standing, state) {
            (AssembledStanding::Active, "in_sync") => !member.is_write_mostly,
            (AssembledStanding::Active, "in_sync,write_mostly") => member.is_write_mostly,
            (AssembledStanding::Rebuilding { .. }, "spare") => {
                member.slot.is_some() && !member.is_replacement
            }
            (AssembledStanding::Rebuilding { .. }, "spare,replacement") => member.is_replacement,
            (AssembledStanding::Spare, "spare") => member.slot.is_none(),
            (AssembledStanding::Journal, "journal") => true,
            _ => false,
        };
        assert!(
            as_expected,
            "{} {name}: {:?}, the kernel says {state}",
            case.id, member.standing
        );
        used += 1;
    }
    assert_eq!(
        assembly
            .members
            .iter()
            .filter(|member| member.standing.is_used())
            .count(),
        used,
        "{}",
        case.id
    );
    for member in &assembly.members {
        assert_eq!(
            case.stale.contains(&member.name),
            !member.standing.is_used(),
            "{} {}",
            case.id,
            member.name
        );
        assert_eq!(
            member.reason.is_some(),
            !member.standing.is_used(),
            "{} {}",
            case.id,
            member.name
        );
    }
}

fn expect_bitmap(case: &Case, assembly: &Assembly) {
    let has_bitmap = case.members.iter().any(|member| member.bitmap.is_some());
    match &assembly.bitmap {
        BitmapUse::Usable {
            events_cleared,
            sources,
        } => {
            assert!(has_bitmap && !sources.is_empty(), "{}", case.id);
            assert!(events_cleared.0 <= case.events, "{}", case.id);
        }
        BitmapUse::None => assert!(!has_bitmap, "{}", case.id),
        other => panic!("{}: {other:?}", case.id),
    }
    if case.id == "s24_raid1_stale_bitmap" {
        let fits = AssembledStanding::Stale {
            events: plexum_format::units::EventCount(2),
            newest: plexum_format::units::EventCount(13),
            fits_bitmap: true,
        };
        assert_eq!(assembly.members[1].standing, fits);
        assert_eq!(
            assembly.members[1].reason.as_deref(),
            Some("it is stale: event count 2, newest is 13")
        );
    }
}

#[test]
fn every_case_reads_whole_and_its_redundancy_disagrees_exactly_where_it_should() {
    for case in md_cases() {
        let images = images(&case);
        let images: Vec<&Image> = images.iter().collect();
        let assembly = assemble_images(&images, &options(&case)).unwrap();
        // Without the backup file the content is wrong: golden_volumes.rs reads it with it.
        if case.backup.is_none() {
            expect_content(&case, &assembly, &images, "whole");
        }
        if case.state != "reshape" {
            let expected: BTreeSet<u64> = case.inconsistent.iter().copied().collect();
            assert_eq!(disagreements(&assembly, &images), expected, "{}", case.id);
        }
    }
}

#[test]
fn every_case_reads_with_every_subset_of_members_missing_that_can_be_spared() {
    let mut runs = 0;
    for case in md_cases() {
        if case.state != "clean" || case.no_missing_test {
            continue;
        }
        let images = images(&case);
        let whole: Vec<&Image> = images.iter().collect();
        let options = Options {
            run_degraded: true,
            ..options(&case)
        };
        let first = assemble_images(&whole, &options).unwrap();
        let used: Vec<usize> = (0..whole.len())
            .filter(|i| first.members[*i].standing.is_used())
            .collect();
        for bits in 1u32..1 << used.len() {
            let is_out = |position: usize| bits >> position & 1 == 1;
            let left: Vec<&Image> = used
                .iter()
                .enumerate()
                .filter(|(position, _)| !is_out(*position))
                .map(|(_, i)| whole[*i])
                .collect();
            let mut missing = vec![true; first.geometry.member_count()];
            for (position, i) in used.iter().enumerate() {
                if let (AssembledStanding::Active, Some(slot), false) = (
                    &first.members[*i].standing,
                    first.members[*i].slot,
                    is_out(position),
                ) {
                    missing[usize::from(slot)] = false;
                }
            }
            let result = assemble_images(&left, &options);
            let situation = format!("without {bits:b}");
            assert_eq!(
                result.is_ok(),
                first.geometry.tolerates(&missing),
                "{} {situation}",
                case.id
            );
            if bits.count_ones() <= case.tolerates {
                assert!(result.is_ok(), "{} {situation}", case.id);
            }
            match result {
                Ok(assembly) => {
                    expect_content(&case, &assembly, &left, &situation);
                    runs += 1;
                }
                Err(error) if left.is_empty() => assert_eq!(error.code, AssembleCode::NoMetadata),
                Err(error) => assert_eq!(
                    (error.code, error.code.exit()),
                    (AssembleCode::TooFewMembers, 4),
                    "{}",
                    case.id
                ),
            }
        }
    }
    assert_eq!(runs, 190, "runs with members missing");
}

#[test]
fn what_must_be_refused_is_refused_with_its_code() {
    let refused = |id: &str, options: Options| {
        let case = md_cases().into_iter().find(|case| case.id == id).unwrap();
        let images = images(&case);
        let error = assemble_images(&images.iter().collect::<Vec<_>>(), &options).unwrap_err();
        assert!(!error.hints.is_empty(), "{id}: {error}");
        (error.code.slug(), error.code.exit())
    };
    let none = Options::default();
    assert_eq!(
        refused(
            "s37_raid5_dirty_degraded",
            Options {
                run_degraded: true,
                ..none
            }
        ),
        ("dirty_degraded", 3)
    );
    assert_eq!(
        refused(
            "s37_raid5_dirty_degraded",
            Options {
                read_only: true,
                ..none
            }
        ),
        ("dirty_degraded", 3)
    );
    let read_only = Options {
        read_only: true,
        ..none
    };
    assert_eq!(
        refused("s47_raid5_backup_critical", read_only),
        ("reshape_torn", 3)
    );
    assert_eq!(
        refused("s33_raid6_bad_checksum", none),
        ("degraded_start", 3)
    );
    for id in [
        "s31_raid5_grow_3_4",
        "s35_raid5_journal",
        "s39_raid5_chunk_layout",
    ] {
        assert_eq!(refused(id, none), ("unsupported_feature", 4), "{id}");
    }
}

#[test]
fn arrays_with_a_partial_parity_log_start_to_be_written() {
    for id in ["s29_raid5_ppl", "s30_raid5_ppl_crash"] {
        let case = md_cases().into_iter().find(|case| case.id == id).unwrap();
        let images = images(&case);
        let members: Vec<_> = images.iter().collect();
        let assembly = assemble_images(&members, &Options::default()).unwrap();
        assert!(assembly.has_ppl && !assembly.is_read_only, "{id}");
    }
}
