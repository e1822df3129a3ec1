//! Timing mode computes no parity and keeps no data; every time it tells is that of a run that does both.

use std::rc::Rc;

use plexum_block::device::Fua;
use plexum_disks::rng::Rng;
use plexum_lab::array::Mode;
use plexum_lab::setup::Setup;
use plexum_lab::setup::running::Running;
use plexum_lab::work::{Work, measure_in};

fn arrangement(level: &str) -> Setup {
    Setup {
        level: level.to_owned(),
        members: 5,
        strip_bytes: 64 << 10,
        member_bytes: 32 << 20,
        ..Setup::default()
    }
}

/// The same in both modes, to the last digit: figures, latencies, and what each member did.
fn assert_agree(setup: &Setup, work: &Work) {
    let told = |mode| {
        let seen = measure_in(setup, work, 7, mode).expect("the workload runs");
        serde_json::to_string(&seen).expect("figures are numbers")
    };
    assert_eq!(
        told(Mode::Timing),
        told(Mode::Data),
        "{} {}",
        setup.label(),
        work.kind
    );
}

#[test]
fn requests_take_the_same_virtual_time_whether_bytes_are_kept_or_not() {
    for level in ["0", "4", "5", "6", "10"] {
        for (kind, block_kib) in [
            ("mixed", 4),
            ("random-write", 4),
            ("random-write", 96),
            ("sequential-write", 768),
        ] {
            let work = Work {
                kind: kind.to_owned(),
                block_bytes: block_kib << 10,
                requests: 40,
                ..Work::default()
            };
            assert_agree(&arrangement(level), &work);
        }
    }
}

#[test]
fn a_log_takes_the_same_virtual_time_whether_bytes_are_kept_or_not() {
    for consistency in ["log", "write-back", "ppl", "resync"] {
        let setup = Setup {
            consistency: consistency.to_owned(),
            ..arrangement("5")
        };
        for block_kib in [4, 256] {
            let work = Work {
                kind: "random-write".to_owned(),
                block_bytes: block_kib << 10,
                requests: 60,
                ..Work::default()
            };
            assert_agree(&setup, &work);
        }
    }
}

#[test]
fn a_rebuild_takes_the_same_virtual_time_whether_bytes_are_kept_or_not() {
    for level in ["1", "5", "6", "10"] {
        for kind in ["rebuild", "rebuild-load"] {
            let work = Work {
                kind: kind.to_owned(),
                ..Work::default()
            };
            assert_agree(&arrangement(level), &work);
        }
    }
}

/// Writes random pieces everywhere; what the volume must hold now.
fn fill(running: &Running, rng: &mut Rng) -> Vec<u8> {
    let volume = running.volume.as_ref().expect("there is a volume");
    let mut wanted = vec![0u8; 6 << 20];
    for at in (0..wanted.len()).step_by(1 << 20) {
        write(running, &mut wanted, at, 1 << 20, rng);
    }
    for _ in 0..60 {
        let length = 512 * rng.between(1, 300) as usize;
        let at = 512 * rng.below(((wanted.len() - length) / 512) as u64) as usize;
        write(running, &mut wanted, at, length, rng);
    }
    assert!(volume.size_bytes() >= wanted.len() as u64);
    wanted
}

fn write(running: &Running, wanted: &mut [u8], at: usize, length: usize, rng: &mut Rng) {
    let mut bytes = running.world.pool().take(length);
    for byte in bytes.iter_mut() {
        *byte = rng.below(256) as u8;
    }
    wanted[at..at + length].copy_from_slice(&bytes);
    let volume = Rc::clone(running.volume.as_ref().expect("there is a volume"));
    let written = async move { volume.write(at as u64, bytes.freeze(), Fua::No).await };
    running
        .world
        .run(written)
        .expect("time goes on")
        .expect("the write succeeds");
}

fn read(running: &Running, length: usize) -> Vec<u8> {
    let volume = Rc::clone(running.volume.as_ref().expect("there is a volume"));
    let read = running.world.run(async move {
        let mut all = Vec::new();
        while all.len() < length {
            let rope = volume.read(all.len() as u64, 1 << 20).await?;
            for piece in rope.pieces {
                all.extend_from_slice(&piece);
            }
        }
        Ok::<_, plexum_block::device::IoError>(all)
    });
    read.expect("time goes on").expect("reads succeed")
}

fn lose(running: &Running) {
    let volume = Rc::clone(running.volume.as_ref().expect("there is a volume"));
    let lost = running.world.run(async move {
        let members = volume.status().members;
        let first = members
            .iter()
            .find(|member| member.standing == plexum_engine::state::Standing::Active);
        volume.fail(first.expect("a member is left").id).await
    });
    lost.expect("time goes on").expect("a member may fail");
}

#[test]
fn data_mode_keeps_data_and_parity_beside_a_world_that_computes_none() {
    let mut rng = Rng::new(3);
    for (level, losses) in [("5", 1), ("6", 2)] {
        let timing = arrangement(level)
            .start(1, 0, Mode::Timing)
            .expect("it starts");
        let data = arrangement(level)
            .start(1, 0, Mode::Data)
            .expect("it starts");
        fill(&timing, &mut rng);
        let wanted = fill(&data, &mut rng);
        assert!(
            read(&data, wanted.len()) == wanted,
            "RAID-{level}: other bytes"
        );
        for lost in 1..=losses {
            lose(&data);
            lose(&timing);
            read(&timing, wanted.len());
            assert!(
                read(&data, wanted.len()) == wanted,
                "RAID-{level}: other bytes with {lost} members lost"
            );
        }
    }
}
