//! Clients: seeded requests, checked by the oracle as they are answered.

use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use plexum_block::clock::Clock;
use plexum_block::device::{Fua, IoError, ZeroMode};

use super::operator;
use super::rules::Rules;
use super::scene::Scene;
use crate::course::Plan;
use crate::finding::Finding;
use crate::oracle::{WriteEnd, WriteKind};
use plexum_disks::disk::outcome_number;
use plexum_disks::rng::Rng;
use plexum_disks::trace::{Actor, Verb};

/// Reads of the checker after a start, in sectors.
const VERIFY_SECTORS: u64 = 128;

/// Virtual time within which a request is answered, whatever fails meanwhile: some time-outs of members one after
/// another.
const REQUEST_PATIENCE_NS: u64 = 300_000_000_000;

/// How often clients look whether what they wait for has come.
const LOOK_NS: u64 = 20_000;

/// Length of the reads of streams, and how far before them writes fall, in sectors.
const STREAM_SECTORS: u64 = 16;
const STREAM_WRITES_SECTORS: u64 = 256;

/// Client number of the checker in traces.
const VERIFIER: u32 = 1000;

/// Client number of the last reads in traces.
const LAST_READER: u32 = 2000;

/// One client: requests one after another until the life's quota is used up.
pub(super) async fn work<S: Rules>(scene: Rc<Scene<S>>, life: u64, client: u32) {
    let mut rng = Rng::new(scene.course().seed).fork(0x636c_0000 + (life << 8) + u64::from(client));
    while scene.life_requests.get() < scene.life_quota.get() && !scene.has_findings() {
        scene.life_requests.set(scene.life_requests.get() + 1);
        let number = scene.counts.borrow().requests;
        scene.counts.borrow_mut().requests += 1;
        operator::grant_wishes(&scene, number);
        rest(&scene).await;
        if scene.course().think_ns_max > 0 {
            let think_ns = rng.below(scene.course().think_ns_max);
            scene.clock.sleep(Duration::from_nanos(think_ns)).await;
        }
        let volume = scene.plan.draw_volume(&mut rng);
        let sectors = draw_range(&scene, volume, &mut rng);
        if rng.below(100) < scene.course().flushes_of_100 {
            flush(&scene, volume, client).await;
            continue;
        }
        let reads = scene.course().load.reads_of_93;
        let started_ns = scene.clock.now_ns();
        let drawn = rng.below(93);
        let sectors = if scene.course().load.has_streams {
            draw_near_streams(&scene, volume, client, drawn < reads, &mut rng)
        } else {
            sectors
        };
        match drawn {
            drawn if drawn < reads => read(&scene, volume, client, sectors).await,
            0..=81 if !scene.course().load.is_durable => {
                write(&scene, volume, client, sectors, WriteKind::Data, Fua::No).await;
            }
            0..=87 => write(&scene, volume, client, sectors, WriteKind::Data, Fua::Yes).await,
            88..=90 => write(&scene, volume, client, sectors, WriteKind::Zeroes, Fua::No).await,
            _ => write(&scene, volume, client, sectors, WriteKind::Trim, Fua::No).await,
        }
        let took_ns = scene.clock.now_ns() - started_ns;
        if took_ns > REQUEST_PATIENCE_NS {
            let request = format!("a request of client {client}");
            scene.find(Finding::Late { request, took_ns });
        }
    }
}

/// Waits while all clients are to rest.
async fn rest<S: Rules>(scene: &Scene<S>) {
    loop {
        let (now, until) = (scene.clock.now_ns(), scene.rest_until_ns.get());
        if now >= until {
            return;
        }
        let is_waiting = scene.is_of_flush.get();
        let rest_ns = if is_waiting { LOOK_NS } else { until - now };
        scene.clock.sleep(Duration::from_nanos(rest_ns)).await;
    }
}

/// After a start: reads everything, or random parts; what is seen is settled by that.
pub(super) async fn verify<S: Rules>(scene: Rc<Scene<S>>, life: u64) {
    let mut rng = Rng::new(scene.course().seed).fork(0x7665_0000 + life);
    let share = *rng.pick(&[0, 4, 8]);
    if scene.is_of_flush.get() {
        rest(&scene).await;
    }
    let is_asked = || rng.below(8) < share;
    read_pieces(&scene, VERIFIER, VERIFY_SECTORS, is_asked).await;
}

/// Everything, as clients see it.
pub(super) async fn read_all<S: Rules>(scene: &Rc<Scene<S>>) {
    read_pieces(scene, LAST_READER, 2 * VERIFY_SECTORS, || true).await;
}

async fn read_pieces<S: Rules>(
    scene: &Rc<Scene<S>>,
    client: u32,
    sectors: u64,
    mut is_asked: impl FnMut() -> bool,
) {
    for volume in 0..scene.volume_count() {
        let end = scene.sector_count(volume);
        let mut at = 0;
        while at < end && !scene.has_findings() {
            let next = (at + sectors).min(end);
            if is_asked() {
                read(scene, volume, client, at..next).await;
            }
            at = next;
        }
    }
}

/// Requests cluster, so that they meet: half of them fall into a few hot places.
fn draw_range<S: Rules>(scene: &Scene<S>, volume: usize, rng: &mut Rng) -> Range<u64> {
    let end = scene.sector_count(volume);
    if scene.course().load.is_narrow {
        let is_usual = scene.course().load.is_skewed && rng.chance(15, 16);
        let place = if is_usual { 0 } else { rng.below(4) };
        let hot = Rng::new(scene.course().seed).fork(place).below(end);
        let length = rng.between(1, 7).min(end);
        let start = (hot / 8 * 8 + rng.below(16)).min(end - length);
        return start..start + length;
    }
    let length = match rng.below(16) {
        0..=2 => rng.between(1, 7),
        3..=9 => 8,
        10..=12 => 8 * rng.between(2, 4),
        13..=14 => rng.between(1, 130),
        _ => 128 * rng.between(1, scene.course().load.long_of_128),
    }
    .min(end);
    let start = if rng.chance(1, 2) {
        let hot = Rng::new(scene.course().seed).fork(rng.below(4)).below(end);
        (hot + rng.below(64)).min(end - length)
    } else {
        rng.below(end - length + 1)
    };
    let is_aligned = rng.chance(3, 4);
    let start = if is_aligned { start / 8 * 8 } else { start };
    start..start + length
}

/// Reads go on where the client's last one ended, but for some that begin elsewhere; writes fall close before one of
/// them.
fn draw_near_streams<S: Rules>(
    scene: &Scene<S>,
    volume: usize,
    client: u32,
    is_read: bool,
    rng: &mut Rng,
) -> Range<u64> {
    let end = scene.sector_count(volume);
    let mut streams = scene.streams.borrow_mut();
    if !is_read {
        let before = *rng.pick(&streams);
        let start = (before + rng.below(STREAM_WRITES_SECTORS)) % end;
        return start..(start + rng.between(1, 16)).min(end);
    }
    let length = STREAM_SECTORS.min(end);
    let number = client as usize % streams.len();
    let next = &mut streams[number];
    if *next + length > end || rng.chance(1, 16) {
        *next = rng.below(end - length + 1) / 8 * 8;
    }
    let start = *next;
    *next += length;
    start..*next
}

async fn read<S: Rules>(scene: &Rc<Scene<S>>, volume: usize, client: u32, sectors: Range<u64>) {
    let (offset, length) = (sectors.start * 512, (sectors.end - sectors.start) * 512);
    let token = scene.oracles.borrow_mut()[volume].begin_read(sectors.clone());
    let subject = begin(scene, client, Verb::Read, offset, length);
    let answer = subject.read(volume, offset..offset + length).await;
    let result = answer.as_ref().map(|_| ()).map_err(|error| *error);
    end(scene, client, Verb::ReadDone, offset, length, result);
    match answer {
        Ok(data) if data.len() as u64 != length => {
            scene.oracles.borrow_mut()[volume].fail_read(&token);
            let got = data.len() as u64;
            scene.find(Finding::WrongLength { asked: length, got });
        }
        Ok(data) => {
            let verdict = scene.oracles.borrow_mut()[volume].end_read(&token, &data);
            if let Err(violation) = verdict {
                scene.find(Finding::WrongData(violation));
            }
        }
        Err(error) => {
            scene.oracles.borrow_mut()[volume].fail_read(&token);
            refuse(scene, &format!("read of sectors {sectors:?}"), error);
        }
    }
}

async fn write<S: Rules>(
    scene: &Rc<Scene<S>>,
    volume: usize,
    client: u32,
    sectors: Range<u64>,
    kind: WriteKind,
    fua: Fua,
) {
    let (offset, length) = (sectors.start * 512, (sectors.end - sectors.start) * 512);
    let token = scene.oracles.borrow_mut()[volume].begin_write(sectors.clone(), kind);
    let (verb, done) = match kind {
        WriteKind::Data => (Verb::Write, Verb::WriteDone),
        WriteKind::Zeroes | WriteKind::Trim => (Verb::Zero, Verb::ZeroDone),
    };
    let subject = begin(scene, client, verb, offset, length);
    let bytes = offset..offset + length;
    let result = match kind {
        WriteKind::Data => {
            let mut data = scene.pool.take(length as usize);
            scene.oracles.borrow()[volume].fill(&token, &mut data);
            subject.write(volume, offset, data.freeze(), fua).await
        }
        WriteKind::Zeroes => subject.zero(volume, bytes, ZeroMode::Allocate, fua).await,
        WriteKind::Trim => subject.zero(volume, bytes, ZeroMode::Unmap, fua).await,
    };
    end(scene, client, done, offset, length, result);
    let how = match (result, fua) {
        (Ok(()), Fua::Yes) => WriteEnd::Durable,
        (Ok(()), Fua::No) => WriteEnd::Done,
        (Err(_), _) => WriteEnd::Failed,
    };
    scene.oracles.borrow_mut()[volume].end_write(&token, how);
    if result.is_ok() {
        scene.has_written.set(true);
    }
    if let Err(error) = result {
        refuse(scene, &format!("write to sectors {sectors:?}"), error);
    }
}

async fn flush<S: Rules>(scene: &Rc<Scene<S>>, volume: usize, client: u32) {
    let token = scene.oracles.borrow_mut()[volume].begin_flush();
    let subject = begin(scene, client, Verb::Flush, 0, 0);
    let result = subject.flush(volume).await;
    end(scene, client, Verb::FlushDone, 0, 0, result);
    match result {
        Ok(()) => scene.oracles.borrow_mut()[volume].end_flush(&token),
        Err(error) => refuse(scene, "flush", error),
    }
}

fn begin<S: Rules>(scene: &Scene<S>, client: u32, verb: Verb, offset: u64, length: u64) -> Rc<S> {
    scene.note_hits();
    scene
        .trace
        .note(Actor::Client(client), verb, [offset, length, 0]);
    scene.outstanding.set(scene.outstanding.get() + 1);
    scene.subject()
}

fn end<S: Rules>(
    scene: &Scene<S>,
    client: u32,
    verb: Verb,
    offset: u64,
    length: u64,
    result: Result<(), IoError>,
) {
    scene.note_hits();
    let outcome = outcome_number(result);
    scene
        .trace
        .note(Actor::Client(client), verb, [offset, length, outcome]);
    scene.outstanding.set(scene.outstanding.get() - 1);
    let mut counts = scene.counts.borrow_mut();
    counts.answers += 1;
    counts.errors += u64::from(result.is_err());
}

fn refuse<S: Rules>(scene: &Scene<S>, request: &str, error: IoError) {
    if !S::may_answer(scene, error) {
        scene.find(Finding::ErrorWithinPromise {
            request: request.to_owned(),
            error,
        });
    }
}
