//! A member is lost and a new one filled: the engine's own rebuild, any redundant level, with or without readers.
//!
//! Invariant: the clock runs from the moment the new member is added to the moment it is complete.

use std::cell::Cell;
use std::rc::Rc;

use plexum_engine::state::Standing;
use plexum_engine::volume::NewMember;

use super::Work;
use super::measurement::{Figure, Measurement};
use crate::error::LabError;
use crate::inside::Inside;
use crate::member::{Member, SimVolume};
use crate::setup::running::Running;
use crate::workload::{Operation, mixed};

/// How often the volume is looked at for each time that it is asked for all it knows.
const LOOKS_PER_STATUS: u32 = 200;

fn told(error: impl std::fmt::Display) -> LabError {
    LabError::Io(error.to_string())
}

fn redundant_volume(running: &Running) -> Result<Rc<SimVolume>, LabError> {
    let refused = |text: &str| LabError::Usage(text.to_owned());
    match &running.volume {
        None => Err(refused("a single disk has nothing to rebuild it from")),
        Some(volume) if !volume.has_redundancy() => Err(refused(
            "this level has no redundancy: nothing can be rebuilt",
        )),
        Some(volume) => Ok(Rc::clone(volume)),
    }
}

/// Runs it.
pub(super) fn run(running: &Running, work: &Work, seed: u64) -> Result<Measurement, LabError> {
    let volume = redundant_volume(running)?;
    let (_, spare) = running.disks.last().expect("a spare was made").clone();
    let bytes = volume.geometry().used_bytes(0);
    let mut sampler = running.sampler();
    let is_done = Rc::new(Cell::new(false));
    let mut readers = Vec::new();
    if work.kind == "rebuild-load" {
        let shape = mixed::Shape {
            operation: Operation::Read,
            read_percent: None,
            is_random: true,
            block_bytes: work.block_bytes,
            process_count: work.processes,
            depth: 1,
            request_count: u64::MAX,
        };
        for process in mixed::processes(&shape, running.target.size_bytes(), seed)? {
            let (target, is_done) = (running.target.clone(), Rc::clone(&is_done));
            readers.push(running.world.spawn(async move {
                for request in process.requests {
                    if is_done.get() {
                        break;
                    }
                    target
                        .read(request.offset_bytes, request.length_bytes)
                        .await?;
                }
                Ok::<(), LabError>(())
            }));
        }
    }
    let started = running.world.clock().now_ns();
    let took_ns = running
        .world
        .run(rebuild(volume, spare, running.target.clone(), is_done))??;
    let now = started + took_ns;
    running.world.run(async move {
        for reader in readers {
            reader.await.map_err(told)??;
        }
        Ok::<(), LabError>(())
    })??;
    let seconds = (took_ns as f64 / 1e9).max(1e-9);
    let traffic = running.target.take_traffic();
    let mut figures = vec![Figure::new(
        "rebuild",
        bytes as f64 / 1024.0 / seconds,
        "KiB/s",
    )];
    if traffic.reads.count() > 0 {
        let rate = traffic.reads.count() as f64 / seconds;
        figures.push(Figure::new("foreground reads", rate, "1/s"));
    }
    Ok(Measurement {
        figures,
        reads: traffic.reads.summary(),
        members: sampler.sample(now.max(running.world.clock().now_ns())),
        fairness: 1.0,
        elapsed_s: seconds,
        inside: Inside::of(&traffic, 0),
        ..Measurement::default()
    })
}

/// Whether the member of this name is out of the volume.
fn is_failed(volume: &SimVolume, name: &str) -> bool {
    let members = volume.status().members;
    let member = members
        .iter()
        .find(|member| member.name.as_deref() == Some(name));
    member.is_none_or(|member| member.standing == Standing::Faulty)
}

/// Fails the first member, adds the spare, waits until it is filled; virtual nanoseconds.
async fn rebuild(
    volume: Rc<SimVolume>,
    spare: plexum_disks::disk::timed::TimedDisk,
    target: crate::target::Target,
    is_done: Rc<Cell<bool>>,
) -> Result<u64, LabError> {
    let first = volume.status().members.first().map(|member| member.id);
    let first = first.ok_or_else(|| LabError::Bug("a volume has members".to_owned()))?;
    volume.fail(first).await.map_err(told)?;
    let started = target.now_ns();
    let member = NewMember {
        name: "spare0".to_owned(),
        device: Member::Disk(spare),
        identity: [0x53; 16],
        is_write_mostly: false,
        former: None,
    };
    volume.add(member, false).await.map_err(told)?;
    // A status of each look would cost more than the rebuild itself.
    let mut looks = 0u32;
    while volume.lost_slots().contains(&true) {
        looks += 1;
        let is_spare_lost = looks.is_multiple_of(LOOKS_PER_STATUS) && is_failed(&volume, "spare0");
        if volume.is_frozen() || is_spare_lost {
            return Err(LabError::Io(
                "the volume failed during the rebuild".to_owned(),
            ));
        }
        plexum_block::clock::Clock::sleep(target.clock(), std::time::Duration::from_millis(5))
            .await;
    }
    is_done.set(true);
    Ok(target.now_ns() - started)
}
