//! Arrays that the Linux kernel left half reshaped are served for writing, carried to their end, and read like the
//! kernel's own end of them: golden images.

use crate::common::{Memory, Still, named, run};
use plexum_block::buf::BufPool;
use plexum_block::device::Fua;
use plexum_block::wait::join;
use plexum_engine::volume::{Volume, VolumeOptions};
use plexum_format::detect::detect;
use plexum_layout::Level;
use plexum_md::assemble::Options;
use plexum_md::open::{OpenError, OpenRequest, open_volume};
use plexum_md::reshape::{Alteration, Reshaping, open_reshaping};
use plexum_testkit::{Case, md_cases, unpack_case};

fn members(case: &Case) -> Vec<Memory> {
    let unpacked = unpack_case(&case.id);
    let used = case.members.iter().filter(|member| member.superblock_ok);
    let read = used.map(|member| Memory::new(unpacked.read(&member.file)));
    read.filter(has_superblock).collect()
}

fn has_superblock(member: &Memory) -> bool {
    let bytes = member.bytes.borrow();
    let mut reader = |offset: u64, buffer: &mut [u8]| {
        let at = usize::try_from(offset).unwrap();
        buffer.copy_from_slice(&bytes[at..at + buffer.len()]);
        Ok::<(), ()>(())
    };
    let found = detect(bytes.len() as u64 / 512, &mut reader).unwrap();
    matches!(found.md(), Some(Ok(_)))
}

fn request() -> OpenRequest {
    let mut volume = VolumeOptions::default();
    volume.thresholds.migration_step_bytes = 1;
    OpenRequest {
        assemble: Options {
            run_degraded: true,
            ..Options::default()
        },
        volume,
        ..OpenRequest::default()
    }
}

fn pool() -> BufPool {
    BufPool::new(1 << 20)
}

fn reshaping(members: &[Memory]) -> Result<Reshaping<Memory, Still>, OpenError> {
    let devices = named(members.to_vec());
    let opened = open_reshaping(devices, Still::default(), pool(), request(), None);
    run(opened).map(|(moving, _)| moving)
}

fn whole(members: &[Memory]) -> Result<Volume<Memory, Still>, OpenError> {
    let devices = named(members.to_vec());
    let opened = open_volume(devices, Still::default(), pool(), request());
    run(opened).map(|(volume, _)| volume)
}

/// The content by the manifest: each word of 8 bytes is its offset, changed by the seed.
fn pattern(case: &Case) -> Vec<u8> {
    let seed = case.seed.as_deref().unwrap().trim_start_matches("0x");
    let seed = u64::from_str_radix(seed, 16).unwrap();
    let words = (0..case.array_bytes).step_by(8);
    words.flat_map(|at| (at ^ seed).to_le_bytes()).collect()
}

/// Left out: in place in its critical section (refused), and RAID-10 (read only).
fn half_way() -> Vec<Case> {
    let apart = ["s46_raid10_grow_4_6", "s47_raid5_backup_critical"];
    let all = md_cases().into_iter();
    let cases: Vec<Case> = all
        .filter(|case| case.state == "reshape" && !apart.contains(&case.id.as_str()))
        .collect();
    assert!(cases.len() >= 7, "{}", cases.len());
    cases
}

#[test]
fn half_way_arrays_of_the_kernel_are_written_to_and_carried_to_their_end() {
    for case in half_way() {
        let place = case.id.as_str();
        let members = members(&case);
        let moving = reshaping(&members).unwrap_or_else(|error| panic!("{place}: {error}"));
        let mut content = pattern(&case);
        let size = content.len();
        let read = run(moving.read(0, size)).unwrap().to_vec();
        assert!(read == content, "{place}: as it stands");
        run(join(moving.run(), async {
            for round in 0..40_usize {
                let at = round * 7919 % (size / 512) * 512;
                content[at..at + 512].fill(round as u8);
                let data = pool().copy_of(&[round as u8; 512]).freeze();
                moving.write(at as u64, data, Fua::No).await.unwrap();
            }
            moving.ended().await;
            assert!(moving.has_ended(), "{place}");
            moving.stop().await.unwrap();
        }));
        drop(moving);
        let end = whole(&members).unwrap_or_else(|error| panic!("{place}: {error}"));
        let all = run(end.read(0, end.size_bytes() as usize))
            .unwrap()
            .to_vec();
        assert!(all[..size] == content, "{place}: at the end");
        let geometry = end.geometry().clone();
        let lost = end.lost_slots();
        drop(end);
        if lost.contains(&true) || geometry.organisation().level() == Level::Raid0 {
            continue;
        }
        for missing in 0..members.len() {
            let mut fewer = members.clone();
            fewer.remove(missing);
            let degraded = whole(&fewer).unwrap_or_else(|error| panic!("{place}: {error}"));
            let read = run(degraded.read(0, all.len())).unwrap().to_vec();
            assert!(read == all, "{place}: without {missing}");
        }
    }
}

#[test]
fn half_way_arrays_of_the_kernel_go_back_to_what_they_were() {
    let mut turned_count = 0;
    for case in half_way() {
        let place = case.id.as_str();
        let members = members(&case);
        let moving = reshaping(&members).unwrap_or_else(|error| panic!("{place}: {error}"));
        let before = moving.before_geometry().unwrap();
        let mut content = pattern(&case);
        content.truncate(moving.size_bytes() as usize);
        if !moving.can_turn() {
            continue; // in place
        }
        let turn = async {
            let has_turned = moving.turn().await; // asked before it moves: it would not stop by itself
            moving.stop().await.unwrap();
            has_turned
        };
        let (has_turned, ()) = run(join(turn, moving.run()));
        drop(moving);
        if !has_turned {
            continue; // it had ended before
        }
        let mut asked = request();
        asked.alteration = Some(Alteration::TurnRound);
        let devices = named(members.clone());
        let opened = run(open_reshaping(
            devices,
            Still::default(),
            pool(),
            asked,
            None,
        ));
        let (moving, _) = opened.unwrap_or_else(|error| panic!("{place}: {error}"));
        run(join(moving.run(), async {
            for round in 0..40_usize {
                let at = round * 7919 % (content.len() / 512) * 512;
                content[at..at + 512].fill(round as u8);
                let data = pool().copy_of(&[round as u8; 512]).freeze();
                moving.write(at as u64, data, Fua::No).await.unwrap();
            }
            moving.ended().await;
            assert!(moving.has_ended(), "{place}");
            moving.stop().await.unwrap();
        }));
        drop(moving);
        let end = whole(&members).unwrap_or_else(|error| panic!("{place}: {error}"));
        assert_eq!(*end.geometry(), before, "{place}");
        let all = run(end.read(0, end.size_bytes() as usize))
            .unwrap()
            .to_vec();
        assert!(all[..content.len()] == content, "{place}: at the end");
        turned_count += 1;
    }
    assert!(turned_count >= 5, "{turned_count}");
}

#[test]
fn what_was_being_moved_in_place_is_refused_and_nothing_is_written() {
    let case = md_cases()
        .into_iter()
        .find(|case| case.id == "s47_raid5_backup_critical")
        .unwrap();
    let members = members(&case);
    let error = reshaping(&members).err().unwrap();
    assert!(error.to_string().contains("in place"), "{error}");
    assert!(members.iter().all(|member| member.writes.get() == 0));
}
