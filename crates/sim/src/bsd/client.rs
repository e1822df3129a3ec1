//! Clients: seeded requests to the volumes, checked by their oracles as they are answered.

use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use plexum_block::clock::Clock;
use plexum_block::device::{Fua, IoError, ZeroMode};

use super::world::Shared;
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

/// Client number of the checker in traces.
const VERIFIER: u32 = 1000;

/// Client number of the last reads in traces.
const LAST_READER: u32 = 2000;

/// One client: requests one after another until the life's quota is used up.
pub(super) async fn work(shared: Rc<Shared>, life: u64, client: u32) {
    let mut rng = Rng::new(shared.plan.seed).fork(0x636c_0000 + (life << 8) + u64::from(client));
    while shared.life_requests.get() < shared.life_quota.get() && !shared.has_findings() {
        shared.life_requests.set(shared.life_requests.get() + 1);
        let number = shared.counts.borrow().requests;
        shared.counts.borrow_mut().requests += 1;
        super::operator::grant_wishes(&shared, number);
        rest(&shared).await;
        if shared.plan.think_ns_max > 0 {
            let think_ns = rng.below(shared.plan.think_ns_max);
            shared.clock.sleep(Duration::from_nanos(think_ns)).await;
        }
        let volume = rng.below(shared.volume_count() as u64) as usize;
        let sectors = draw_range(&shared, &mut rng);
        if rng.below(100) < shared.plan.flushes_of_100 {
            flush(&shared, volume, client).await;
            continue;
        }
        let started_ns = shared.clock.now_ns();
        match rng.below(93) {
            0..=39 => read(&shared, volume, client, sectors).await,
            40..=81 => write(&shared, volume, client, sectors, WriteKind::Data, Fua::No).await,
            82..=87 => write(&shared, volume, client, sectors, WriteKind::Data, Fua::Yes).await,
            88..=90 => write(&shared, volume, client, sectors, WriteKind::Zeroes, Fua::No).await,
            _ => write(&shared, volume, client, sectors, WriteKind::Trim, Fua::No).await,
        }
        let took_ns = shared.clock.now_ns() - started_ns;
        if took_ns > REQUEST_PATIENCE_NS {
            let request = format!("a request of client {client}");
            shared.find(Finding::Late { request, took_ns });
        }
    }
}

/// Waits while all clients are to rest.
async fn rest(shared: &Shared) {
    loop {
        let (now, until) = (shared.clock.now_ns(), shared.rest_until_ns.get());
        if now >= until {
            return;
        }
        shared.clock.sleep(Duration::from_nanos(until - now)).await;
    }
}

/// After a start: reads everything, or random parts; what is seen is settled by that.
pub(super) async fn verify(shared: Rc<Shared>, life: u64) {
    let mut rng = Rng::new(shared.plan.seed).fork(0x7665_0000 + life);
    let share = *rng.pick(&[0, 4, 8]);
    for volume in 0..shared.volume_count() {
        let end = shared.oracles.borrow()[volume].sector_count();
        let mut at = 0;
        while at < end && !shared.has_findings() {
            let next = (at + VERIFY_SECTORS).min(end);
            if rng.below(8) < share {
                read(&shared, volume, VERIFIER, at..next).await;
            }
            at = next;
        }
    }
}

/// Everything, as clients see it.
pub(super) async fn read_all(shared: &Rc<Shared>) {
    for volume in 0..shared.volume_count() {
        let end = shared.oracles.borrow()[volume].sector_count();
        let mut at = 0;
        while at < end && !shared.has_findings() {
            let next = (at + 2 * VERIFY_SECTORS).min(end);
            read(shared, volume, LAST_READER, at..next).await;
            at = next;
        }
    }
}

/// Requests cluster, so that they meet: half of them fall into a few hot places.
fn draw_range(shared: &Shared, rng: &mut Rng) -> Range<u64> {
    let end = shared.plan.volume_bytes / 512;
    let length = match rng.below(16) {
        0..=2 => rng.between(1, 7),
        3..=9 => 8,
        10..=12 => 8 * rng.between(2, 4),
        13..=14 => rng.between(1, 130),
        _ => 128 * rng.between(1, 2),
    }
    .min(end);
    let start = if rng.chance(1, 2) {
        let hot = Rng::new(shared.plan.seed).fork(rng.below(4)).below(end);
        (hot + rng.below(64)).min(end - length)
    } else {
        rng.below(end - length + 1)
    };
    let start = if rng.chance(3, 4) {
        start / 8 * 8
    } else {
        start
    };
    start..start + length
}

async fn read(shared: &Rc<Shared>, volume: usize, client: u32, sectors: Range<u64>) {
    let (offset, length) = (sectors.start * 512, (sectors.end - sectors.start) * 512);
    let token = shared.oracles.borrow_mut()[volume].begin_read(sectors.clone());
    begin(shared, client, Verb::Read, offset, length);
    let array = shared.array();
    let answer = array.volumes[volume]
        .volume
        .read(offset, length as usize)
        .await;
    let result = answer.as_ref().map(|_| ()).map_err(|error| *error);
    end(shared, client, Verb::ReadDone, offset, length, result);
    let mut oracles = shared.oracles.borrow_mut();
    match answer {
        Ok(data) => {
            if let Err(violation) = oracles[volume].end_read(&token, &data.to_vec()) {
                shared.find(Finding::WrongData(violation));
            }
        }
        Err(error) => {
            oracles[volume].fail_read(&token);
            refuse(shared, &format!("read of sectors {sectors:?}"), error);
        }
    }
}

async fn write(
    shared: &Rc<Shared>,
    volume: usize,
    client: u32,
    sectors: Range<u64>,
    kind: WriteKind,
    fua: Fua,
) {
    let (offset, length) = (sectors.start * 512, (sectors.end - sectors.start) * 512);
    let token = shared.oracles.borrow_mut()[volume].begin_write(sectors.clone(), kind);
    let array = shared.array();
    let target = &array.volumes[volume].volume;
    let (verb, done) = if kind == WriteKind::Data {
        (Verb::Write, Verb::WriteDone)
    } else {
        (Verb::Zero, Verb::ZeroDone)
    };
    begin(shared, client, verb, offset, length);
    let result = match kind {
        WriteKind::Data => {
            let mut data = shared.pool.take(length as usize);
            shared.oracles.borrow()[volume].fill(&token, &mut data);
            target.write(offset, data.freeze(), fua).await
        }
        WriteKind::Zeroes => target.zero(offset, length, ZeroMode::Allocate, fua).await,
        WriteKind::Trim => target.zero(offset, length, ZeroMode::Unmap, fua).await,
    };
    end(shared, client, done, offset, length, result);
    let how = match (result, fua) {
        (Ok(()), Fua::Yes) => WriteEnd::Durable,
        (Ok(()), Fua::No) => WriteEnd::Done,
        (Err(_), _) => WriteEnd::Failed,
    };
    shared.oracles.borrow_mut()[volume].end_write(&token, how);
    if let Err(error) = result {
        refuse(shared, &format!("write to sectors {sectors:?}"), error);
    }
}

async fn flush(shared: &Rc<Shared>, volume: usize, client: u32) {
    let token = shared.oracles.borrow_mut()[volume].begin_flush();
    begin(shared, client, Verb::Flush, 0, 0);
    let array = shared.array();
    let result = array.volumes[volume].volume.flush().await;
    end(shared, client, Verb::FlushDone, 0, 0, result);
    match result {
        Ok(()) => shared.oracles.borrow_mut()[volume].end_flush(&token),
        Err(error) => refuse(shared, "flush", error),
    }
}

fn begin(shared: &Shared, client: u32, verb: Verb, offset: u64, length: u64) {
    shared
        .trace
        .note(Actor::Client(client), verb, [offset, length, 0]);
    shared.outstanding.set(shared.outstanding.get() + 1);
}

fn end(
    shared: &Shared,
    client: u32,
    verb: Verb,
    offset: u64,
    length: u64,
    result: Result<(), IoError>,
) {
    let outcome = outcome_number(result);
    shared
        .trace
        .note(Actor::Client(client), verb, [offset, length, outcome]);
    shared.outstanding.set(shared.outstanding.get() - 1);
    let mut counts = shared.counts.borrow_mut();
    counts.answers += 1;
    counts.errors += u64::from(result.is_err());
}

fn refuse(shared: &Shared, request: &str, error: IoError) {
    if !shared.are_errors_allowed.get() {
        shared.find(Finding::ErrorWithinPromise {
            request: request.to_owned(),
            error,
        });
    }
}
