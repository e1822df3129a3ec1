//! Clients: seeded requests, checked by the oracle as they are answered.

use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use plexum_block::clock::Clock;
use plexum_block::device::{Fua, IoError};

use super::{Shared, operator};
use crate::finding::Finding;
use crate::oracle::{WriteEnd, WriteKind};
use crate::subject::Subject;
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

/// One client: requests one after another until the life's quota is used up.
pub(super) async fn work<S: Subject>(shared: Rc<Shared<S>>, life: u64, client: u32) {
    let mut rng =
        Rng::new(shared.scenario.seed).fork(0x636c_0000 + (life << 8) + u64::from(client));
    while shared.life_requests.get() < shared.life_quota.get() && !shared.has_findings() {
        shared.life_requests.set(shared.life_requests.get() + 1);
        let number = shared.counts.borrow().requests;
        shared.counts.borrow_mut().requests += 1;
        operator::grant_wishes(&shared, number);
        rest(&shared).await;
        if shared.scenario.think_ns_max > 0 {
            let think_ns = rng.below(shared.scenario.think_ns_max);
            shared.clock.sleep(Duration::from_nanos(think_ns)).await;
        }
        let sectors = draw_range(&shared, &mut rng);
        if rng.below(100) < shared.scenario.flushes_of_100 {
            flush(&shared, client).await;
            continue;
        }
        let reads = shared.scenario.load.reads_of_93;
        let started_ns = shared.clock.now_ns();
        let drawn = rng.below(93);
        let sectors = if shared.scenario.load.has_streams {
            draw_near_streams(&shared, client, drawn < reads, &mut rng)
        } else {
            sectors
        };
        match drawn {
            drawn if drawn < reads => read(&shared, client, sectors).await,
            0..=81 => write(&shared, client, sectors, WriteKind::Data, Fua::No).await,
            82..=87 => write(&shared, client, sectors, WriteKind::Data, Fua::Yes).await,
            88..=90 => write(&shared, client, sectors, WriteKind::Zeroes, Fua::No).await,
            _ => write(&shared, client, sectors, WriteKind::Trim, Fua::No).await,
        }
        let took_ns = shared.clock.now_ns() - started_ns;
        if took_ns > REQUEST_PATIENCE_NS {
            let request = format!("a request of client {client}");
            shared.find(Finding::Late { request, took_ns });
        }
    }
}

/// Waits while all clients are to rest.
async fn rest<S: Subject>(shared: &Shared<S>) {
    loop {
        let (now, until) = (shared.clock.now_ns(), shared.rest_until_ns.get());
        if now >= until {
            return;
        }
        let is_waiting = shared.is_of_flush.get();
        let rest_ns = if is_waiting { LOOK_NS } else { until - now };
        shared.clock.sleep(Duration::from_nanos(rest_ns)).await;
    }
}

/// After a start: reads everything, or random parts; what is seen is settled by that.
pub(super) async fn verify<S: Subject>(shared: Rc<Shared<S>>, life: u64) {
    let mut rng = Rng::new(shared.scenario.seed).fork(0x7665_0000 + life);
    let end = shared.oracle.borrow().sector_count();
    let share = *rng.pick(&[0, 4, 8]);
    if shared.is_of_flush.get() {
        rest(&shared).await;
    }
    let mut at = 0;
    while at < end && !shared.has_findings() {
        let next = (at + VERIFY_SECTORS).min(end);
        if rng.below(8) < share {
            read(&shared, VERIFIER, at..next).await;
        }
        at = next;
    }
}

/// Requests cluster, so that they meet: half of them fall into a few hot places.
fn draw_range<S>(shared: &Shared<S>, rng: &mut Rng) -> Range<u64> {
    let end = shared.oracle.borrow().sector_count();
    if shared.scenario.load.is_narrow {
        let is_usual = shared.scenario.load.is_skewed && rng.chance(15, 16);
        let place = if is_usual { 0 } else { rng.below(4) };
        let hot = Rng::new(shared.scenario.seed).fork(place).below(end);
        let length = rng.between(1, 7).min(end);
        let start = (hot / 8 * 8 + rng.below(16)).min(end - length);
        return start..start + length;
    }
    let length = match rng.below(16) {
        0..=2 => rng.between(1, 7),
        3..=9 => 8,
        10..=12 => 8 * rng.between(2, 4),
        13..=14 => rng.between(1, 130),
        _ => 128 * rng.between(1, 4),
    }
    .min(end);
    let start = if rng.chance(1, 2) {
        let hot = Rng::new(shared.scenario.seed).fork(rng.below(4)).below(end);
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
fn draw_near_streams<S>(
    shared: &Shared<S>,
    client: u32,
    is_read: bool,
    rng: &mut Rng,
) -> Range<u64> {
    let end = shared.oracle.borrow().sector_count();
    let mut streams = shared.streams.borrow_mut();
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

pub(super) async fn read<S: Subject>(shared: &Rc<Shared<S>>, client: u32, sectors: Range<u64>) {
    let (offset, length) = (sectors.start * 512, (sectors.end - sectors.start) * 512);
    let token = shared.oracle.borrow_mut().begin_read(sectors.clone());
    let subject = begin(shared, client, Verb::Read, offset, length);
    let answer = subject.read(offset, length).await;
    let result = answer.as_ref().map(|_| ()).map_err(|error| *error);
    end(shared, client, Verb::ReadDone, offset, length, result);
    match answer {
        Ok(data) if data.len() as u64 != length => {
            shared.oracle.borrow_mut().fail_read(&token);
            let got = data.len() as u64;
            shared.find(Finding::WrongLength { asked: length, got });
        }
        Ok(data) => {
            let verdict = shared.oracle.borrow_mut().end_read(&token, &data);
            if let Err(violation) = verdict {
                shared.find(Finding::WrongData(violation));
            }
        }
        Err(error) => {
            shared.oracle.borrow_mut().fail_read(&token);
            refuse(shared, &format!("read of sectors {sectors:?}"), error);
        }
    }
}

async fn write<S: Subject>(
    shared: &Rc<Shared<S>>,
    client: u32,
    sectors: Range<u64>,
    kind: WriteKind,
    fua: Fua,
) {
    let (offset, length) = (sectors.start * 512, (sectors.end - sectors.start) * 512);
    let token = shared
        .oracle
        .borrow_mut()
        .begin_write(sectors.clone(), kind);
    let result = if kind == WriteKind::Data {
        let mut data = shared.pool.take(length as usize);
        shared.oracle.borrow().fill(&token, &mut data);
        let subject = begin(shared, client, Verb::Write, offset, length);
        subject.write(offset, data.freeze(), fua).await
    } else {
        let subject = begin(shared, client, Verb::Zero, offset, length);
        if kind == WriteKind::Trim {
            subject.trim(offset, length).await
        } else {
            subject.zero(offset, length, fua).await
        }
    };
    let done = if kind == WriteKind::Data {
        Verb::WriteDone
    } else {
        Verb::ZeroDone
    };
    end(shared, client, done, offset, length, result);
    let how = match (result, fua) {
        (Ok(()), Fua::Yes) => WriteEnd::Durable,
        (Ok(()), Fua::No) => WriteEnd::Done,
        (Err(_), _) => WriteEnd::Failed,
    };
    shared.oracle.borrow_mut().end_write(&token, how);
    if result.is_ok() {
        shared.has_written.set(true);
    }
    if let Err(error) = result {
        refuse(shared, &format!("write to sectors {sectors:?}"), error);
    }
}

pub(super) async fn flush<S: Subject>(shared: &Rc<Shared<S>>, client: u32) {
    let token = shared.oracle.borrow_mut().begin_flush();
    let subject = begin(shared, client, Verb::Flush, 0, 0);
    let result = subject.flush().await;
    end(shared, client, Verb::FlushDone, 0, 0, result);
    match result {
        Ok(()) => shared.oracle.borrow_mut().end_flush(&token),
        Err(error) => refuse(shared, "flush", error),
    }
}

fn begin<S: Subject>(
    shared: &Shared<S>,
    client: u32,
    verb: Verb,
    offset: u64,
    length: u64,
) -> Rc<S> {
    shared.note_hits();
    shared
        .trace
        .note(Actor::Client(client), verb, [offset, length, 0]);
    shared.outstanding.set(shared.outstanding.get() + 1);
    shared.subject()
}

fn end<S: Subject>(
    shared: &Shared<S>,
    client: u32,
    verb: Verb,
    offset: u64,
    length: u64,
    result: Result<(), IoError>,
) {
    shared.note_hits();
    let outcome = outcome_number(result);
    shared
        .trace
        .note(Actor::Client(client), verb, [offset, length, outcome]);
    shared.outstanding.set(shared.outstanding.get() - 1);
    let mut counts = shared.counts.borrow_mut();
    counts.answers += 1;
    counts.errors += u64::from(result.is_err());
}

fn refuse<S: Subject>(shared: &Shared<S>, request: &str, error: IoError) {
    if !shared.may_answer(error) {
        shared.find(Finding::ErrorWithinPromise {
            request: request.to_owned(),
            error,
        });
    }
}
