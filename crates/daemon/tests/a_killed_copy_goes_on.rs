//! `convert` onto new members, killed after every step: the next try goes on where the journal says, and both are
//! equal.
#![allow(clippy::unwrap_used)] // a test

use std::path::{Path, PathBuf};

use plexum_daemon::create::{CreateRequest, Creation};
use plexum_daemon::foreign::Kind;
use plexum_daemon::foreign::convert::{
    Goal, Journal, Phase, VolumeOnMembers, copy, run_in_place, source_of,
};
use plexum_daemon::foreign::create::{ForeignCreation, LabelRequest, MirrorOptions};
use plexum_daemon::pool_change::PoolChange;
use plexum_daemon::pool_write::{PoolCreation, PoolRequest, Trust, open_writable, wall_seconds};
use plexum_daemon::problem::Code;
use plexum_format::gmirror::Balance;
use plexum_format::md::MdVersion;
use plexum_layout::{Organisation, Raid5Layout};
use plexum_pool::{Foreign, GroupKind};
use plexum_runtime::file::Access;
use plexum_runtime::{Handle, IoChoice, Runtime};

const SIZE: usize = 2 << 20;

fn folder(name: &str) -> PathBuf {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn paths(folder: &Path, names: [&str; 2]) -> Vec<String> {
    let each = names
        .iter()
        .map(|name| folder.join(name).display().to_string());
    each.collect()
}

/// The only volume on these members.
fn at(members: &[String]) -> VolumeOnMembers {
    VolumeOnMembers {
        members: members.to_vec(),
        volume: None,
    }
}

/// A mirror of FreeBSD with a pattern on it.
async fn mirror(handle: &Handle, members: &[String]) -> Vec<u8> {
    let content: Vec<u8> = (0..SIZE)
        .map(|at| (at / 512 * 13 + at % 509) as u8)
        .collect();
    for member in members {
        std::fs::write(member, &content).unwrap();
    }
    let request = LabelRequest {
        kind: Kind::Gmirror,
        name: "g".into(),
        members: members.to_vec(),
        member_size_bytes: None,
        strip_bytes: None,
        balance: Balance::Load,
        is_assume_clean: true,
        mirror: MirrorOptions::default(),
    };
    let creation = ForeignCreation::labels(handle, &request, Access::ReadWrite).await;
    creation.unwrap().carry_out(handle, None).await.unwrap();
    content[..SIZE - 512].to_vec()
}

async fn raid5(handle: &Handle, members: &[String]) {
    let request = CreateRequest {
        name: "n".into(),
        homehost: String::new(),
        organisation: Organisation::Raid5(Raid5Layout::LeftSymmetric),
        members: members.to_vec(),
        spares: Vec::new(),
        strip_bytes: Some(65_536),
        size_bytes: None,
        member_size_bytes: Some(4 << 20),
        data_offset_bytes: None,
        version: MdVersion::V12,
        has_bitmap: true,
        region_bytes: None,
        has_log: false,
        is_write_back: false,
        has_ppl: false,
        write_mostly: Vec::new(),
        is_assume_clean: false,
        is_forced: true,
    };
    let creation = Creation::prepare(handle, &request, Access::ReadWrite).await;
    creation.unwrap().carry_out(handle, None).await.unwrap();
}

/// A pool of a mirror, with a volume of `SIZE`.
async fn pool_with_volume(handle: &Handle, members: &[String]) {
    let request = PoolRequest {
        name: "tank".into(),
        groups: vec![(GroupKind::Mirror, members.to_vec())],
        member_size_bytes: Some(64 << 20),
        sector_bytes: 4096,
    };
    let creation = PoolCreation::prepare(handle, &request, Access::ReadWrite).await;
    creation.unwrap().carry_out(handle).await.unwrap();
    let opened = open_writable(handle, members, Foreign::Refused, Trust::AfterCheck).await;
    let mut pool = opened.unwrap();
    let change = PoolChange::CreateVolume {
        name: "tank/v".into(),
        size_bytes: SIZE as u64,
        block_bytes: None,
    };
    change.carry_out(handle, &mut pool).await.unwrap();
    pool.export(wall_seconds().unwrap()).await.unwrap();
}

#[test]
fn a_copy_that_was_killed_goes_on_from_its_journal() {
    let folder = folder("killed-copy");
    kill_after_every_step(&folder, |runtime, steps| {
        let mut new = paths(&folder, [&format!("x{steps}"), &format!("y{steps}")]);
        new.push(folder.join(format!("z{steps}")).display().to_string());
        runtime.block_on(raid5(&runtime.handle(), &new));
        at(&new)
    });
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_copy_into_a_pool_that_was_killed_goes_on_from_its_journal() {
    let folder = folder("killed-copy-into-pool");
    kill_after_every_step(&folder, |runtime, steps| {
        let new = paths(&folder, [&format!("x{steps}"), &format!("y{steps}")]);
        runtime.block_on(pool_with_volume(&runtime.handle(), &new));
        VolumeOnMembers {
            members: new,
            volume: Some("tank/v".into()),
        }
    });
    std::fs::remove_dir_all(folder).unwrap();
}

/// Copies a mirror to what `make` has made, killed after one step, after two, and so on until it is not killed any
/// more; each goes on and ends.
fn kill_after_every_step(folder: &Path, make: impl Fn(&mut Runtime, usize) -> VolumeOnMembers) {
    let mut runtime = Runtime::new(IoChoice::Threads).unwrap();
    let handle = runtime.handle();
    let old = paths(folder, ["a", "b"]);
    let content = runtime.block_on(mirror(&handle, &old));
    let read = |path: &String| std::fs::read(path).unwrap();
    let before: Vec<Vec<u8>> = old.iter().map(read).collect();
    let save_bytes = 256 << 10;
    for steps in 1.. {
        let new = make(&mut runtime, steps);
        let path = folder.join(format!("journal{steps}"));
        let source = runtime.block_on(source_of(&handle, &at(&old))).unwrap();
        assert_eq!(source.size_bytes, content.len() as u64);
        let mut journal = Journal {
            version: 1,
            source: old.clone(),
            volume: None,
            target: new.members.clone(),
            target_volume: new.volume.clone(),
            size_bytes: source.size_bytes,
            phase: Phase::Copying,
            copied_bytes: 0,
        };
        journal.save(&path).unwrap();
        let mut left = steps;
        let mut count_down = |_| {
            left -= 1;
            left > 0
        };
        let copying = copy(&handle, &mut journal, &path, save_bytes, &mut count_down);
        let Err(problem) = runtime.block_on(copying) else {
            let both = "it was killed while it copied and while it compared";
            assert!(steps > 9, "{both}");
            assert!(!path.exists());
            break;
        };
        assert_eq!(problem.code, Code::NotConfirmed, "{problem:?}");
        let mut journal = Journal::load(&path).unwrap().unwrap();
        let done = journal.copied_bytes;
        let mut first_step = None;
        let mut note = |step: plexum_daemon::foreign::convert::Step| {
            first_step.get_or_insert(step);
            true
        };
        runtime
            .block_on(copy(&handle, &mut journal, &path, save_bytes, &mut note))
            .unwrap_or_else(|problem| panic!("after {steps} steps: {problem:?}"));
        let first_step = first_step.unwrap();
        let goes_on = first_step.phase == Phase::Comparing || first_step.done_bytes > done;
        assert!(goes_on, "what was copied is not copied again");
        assert!(!path.exists());
        let found = runtime.block_on(source_of(&handle, &new)).unwrap();
        assert!(found.size_bytes >= content.len() as u64);
        for path in &new.members {
            std::fs::remove_file(path).unwrap();
        }
    }
    let after: Vec<Vec<u8>> = old.iter().map(read).collect();
    assert!(before == after, "the old members are only read");
}

#[test]
fn a_difference_keeps_the_old_volume() {
    let folder = folder("damaged-copy");
    let mut runtime = Runtime::new(IoChoice::Threads).unwrap();
    let handle = runtime.handle();
    let old = paths(&folder, ["a", "b"]);
    runtime.block_on(mirror(&handle, &old));
    let mut new = paths(&folder, ["x", "y"]);
    new.push(folder.join("z").display().to_string());
    runtime.block_on(raid5(&handle, &new));
    let mut journal = Journal {
        version: 1,
        source: old,
        volume: None,
        target: new,
        target_volume: None,
        size_bytes: SIZE as u64 - 512,
        phase: Phase::Comparing, // nothing was copied
        copied_bytes: SIZE as u64 - 512,
    };
    let path = folder.join("journal");
    journal.save(&path).unwrap();
    let mut go_on = |_| true;
    let compared = copy(&handle, &mut journal, &path, 1 << 20, &mut go_on);
    let problem = runtime.block_on(compared).unwrap_err();
    assert!(problem.message.contains("reads otherwise"), "{problem:?}");
    assert!(path.exists());
    std::fs::write(&path, "{}").unwrap();
    assert_eq!(
        Journal::load(&path).unwrap_err().code,
        Code::DamagedMetadata
    );
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn in_place_the_data_decide_whether_old_metadata_are_erased() {
    let folder = folder("in-place");
    let mut runtime = Runtime::new(IoChoice::Threads).unwrap();
    let handle = runtime.handle();
    let members = paths(&folder, ["a", "b"]);
    runtime.block_on(mirror(&handle, &members));
    let goal = Goal::Md(MdVersion::V10);
    let refused = runtime.block_on(run_in_place(&handle, &members, goal, None, &mut |_| true));
    let problem = refused.unwrap_err();
    assert_eq!(problem.code, Code::WrongState);
    assert!(problem.message.contains("bytes smaller"), "{problem:?}");
    std::fs::remove_dir_all(folder).unwrap();
}
