//! Every golden md image is opened by the engine itself and read through it: whole, and with every subset of members
//! missing that the array can spare. Nothing is ever written to a member.

use crate::common::{Memory, Still, run};
use plexum_block::buf::{BufPool, Rope};
use plexum_block::device::IoError;
use plexum_md::assemble::Options;
use plexum_md::open::{OpenError, OpenRequest, open_pieces, open_volume};
use plexum_testkit::{Case, md_cases, unpack_case};

/// How much is read at once: odd on purpose, so that pieces begin and end anywhere in strips.
const READ_BYTES: u64 = 512 * 371;

fn members(case: &Case) -> Vec<(String, Memory)> {
    let unpacked = unpack_case(&case.id);
    let usable = case.members.iter().filter(|member| member.superblock_ok);
    usable
        .map(|member| {
            (
                member.file.clone(),
                Memory::new(unpacked.read(&member.file)),
            )
        })
        .collect()
}

fn read_all(case: &Case, devices: Vec<(String, Memory)>, situation: &str) -> Vec<u8> {
    let assemble = Options {
        force: true,
        run_degraded: true,
        read_only: true,
        force_data: true,
        ..Options::default()
    };
    let request = || OpenRequest {
        assemble,
        ..OpenRequest::default()
    };
    let pool = || BufPool::new(1 << 22);
    // Its journal holds what was written last, though it was stopped cleanly.
    if case.reshape.is_some() || case.id == "s35_raid5_journal" {
        let backup = case.backup.as_ref().map(|backup| {
            let bytes = unpack_case(&case.id).read(&backup.file);
            (backup.file.clone(), Memory::new(bytes))
        });
        let opened = run(open_pieces(
            devices,
            Still::default(),
            pool(),
            request(),
            backup,
        ));
        let (volume, _) =
            opened.unwrap_or_else(|error: OpenError| panic!("{} {situation}: {error}", case.id));
        assert_eq!(volume.volume_bytes, case.array_bytes, "{}", case.id);
        return read_by(case, situation, |at, length| run(volume.read(at, length)));
    }
    let opened = run(open_volume(devices, Still::default(), pool(), request()));
    let (volume, _) =
        opened.unwrap_or_else(|error: OpenError| panic!("{} {situation}: {error}", case.id));
    assert_eq!(volume.size_bytes(), case.array_bytes, "{}", case.id);
    let block_bytes = volume.sector_bytes() as usize;
    read_by(case, situation, |at, length| {
        let whole = (length / block_bytes).max(1) * block_bytes;
        run(volume.read(at, whole))
    })
}

fn read_by(
    case: &Case,
    situation: &str,
    read: impl Fn(u64, usize) -> Result<Rope, IoError>,
) -> Vec<u8> {
    let mut content = Vec::new();
    while (content.len() as u64) < case.array_bytes {
        let at = content.len() as u64;
        let length = usize::try_from(READ_BYTES.min(case.array_bytes - at)).unwrap();
        let rope = read(at, length);
        let rope = rope.unwrap_or_else(|error| panic!("{} {situation}: {error} at {at}", case.id));
        content.extend_from_slice(&rope.to_vec());
    }
    content
}

fn expect(case: &Case, content: &[u8], situation: &str) {
    let seed = case.seed_value().expect("every case has a pattern");
    for (word, bytes) in (0u64..).step_by(8).zip(content.chunks_exact(8)) {
        let value = u64::from_le_bytes(bytes.try_into().unwrap());
        assert_eq!(
            value,
            word ^ seed,
            "{} {situation}: wrong content at {word}",
            case.id
        );
    }
}

/// All ways to leave out 1 to `most` of `count` members.
fn subsets(count: usize, most: u32) -> impl Iterator<Item = u32> {
    (1u32..1 << count).filter(move |subset| subset.count_ones() <= most)
}

#[test]
fn every_case_reads_as_the_kernel_read_it() {
    for case in md_cases() {
        let devices = members(&case);
        let before: Vec<Vec<u8>> = devices
            .iter()
            .map(|(_, device)| device.bytes.borrow().clone())
            .collect();
        let content = read_all(&case, devices.clone(), "whole");
        expect(&case, &content, "whole");
        for ((name, device), before) in devices.iter().zip(before) {
            assert!(
                *device.bytes.borrow() == before,
                "{} {name}: reading wrote to a member",
                case.id
            );
        }
    }
}

/// Members that an array in the middle of a reshape can lose besides those that it lacks: the worse half counts.
fn losses_in_a_reshape(id: &str) -> u32 {
    match id {
        "s42_raid6_shrink_6_5" | "s44_raid6_to_raid5" => 2,
        "s45_raid0_grow_3_4" | "s48_raid5_grow_degraded" => 0,
        _ => 1,
    }
}

#[test]
fn every_half_of_a_reshape_reads_with_every_loss_that_the_worse_one_survives() {
    for case in md_cases().into_iter().filter(|case| case.reshape.is_some()) {
        let used: Vec<(String, Memory)> = members(&case)
            .into_iter()
            .filter(|(name, _)| !case.stale.contains(name))
            .collect();
        let losses = losses_in_a_reshape(&case.id);
        for subset in subsets(used.len(), losses) {
            let left: Vec<(String, Memory)> = (0..used.len())
                .filter(|index| subset >> index & 1 == 0)
                .map(|index| used[index].clone())
                .collect();
            let situation = format!("without {subset:b}");
            let content = read_all(&case, left, &situation);
            expect(&case, &content, &situation);
        }
    }
}

#[test]
fn every_case_reads_with_every_subset_of_members_missing_that_it_can_spare() {
    let mut runs = 0;
    for case in md_cases()
        .into_iter()
        .filter(|case| case.tolerates > 0 && !case.no_missing_test)
    {
        let used: Vec<(String, Memory)> = members(&case)
            .into_iter()
            .filter(|(name, _)| !case.stale.contains(name))
            .collect();
        for subset in subsets(used.len(), case.tolerates) {
            let left: Vec<(String, Memory)> = (0..used.len())
                .filter(|index| subset >> index & 1 == 0)
                .map(|index| used[index].clone())
                .collect();
            let situation = format!("without {subset:b}");
            let content = read_all(&case, left, &situation);
            expect(&case, &content, &situation);
            runs += 1;
        }
    }
    assert!(runs > 100, "there are many subsets: {runs}");
}
