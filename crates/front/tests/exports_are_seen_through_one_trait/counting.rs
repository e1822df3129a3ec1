//! What clients ask for is counted once, whatever server they come through.

use std::sync::Arc;
use std::time::Duration;

use plexum_front::counted::{Counters, Tally};
use plexum_front::testing::TestClock;

use super::*;

/// An export whose clients are counted in `tally`.
fn counted(clock: &TestClock, tally: &Arc<Tally>) -> Rc<MemoryExport> {
    let export = MemoryExport::new("v", 1 << 30, |_| {});
    Rc::new(export.counted(clock.clone(), Arc::clone(tally)))
}

/// What the clients of an export have asked for.
fn asked_of(export: &MemoryExport) -> Counters {
    export.counting().unwrap().counters()
}

#[test]
fn clients_are_counted_once_whatever_server_they_come_through() {
    let clock = TestClock::new();
    let export = counted(&clock, &Arc::default());
    let (mut world, mut other_server) = (World::new(&[&export]), World::new(&[&export]));
    let (queue, _) = world.queue("v");
    let (other, _) = other_server.queue("v");
    let sector = Guest::new(&[1; 512]);
    queue.ask(Command::Write(Fua::No), 0, &sector);
    world.settle();
    other.ask(Command::Write(Fua::No), 512, &sector);
    other.ask(Command::Read, 4096, &Guest::new(&[0; 1024]));
    other.ask(Command::Flush, 0, &Guest::new(&[]));
    other_server.settle();
    export.fail_with(Some(IoError::Medium));
    let trimmed = queue.ask(Command::Trim(Fua::No), 0, &sector);
    world.settle();
    assert_eq!(trimmed.get(), Some(Err(IoError::Medium)));
    let counters = asked_of(&export);
    let done = (
        counters.reads,
        counters.writes,
        counters.flushes,
        counters.errors,
    );
    assert_eq!(done, (1, 3, 1, 1));
    assert_eq!((counters.read_bytes, counters.written_bytes), (1024, 1024));
    assert_eq!(counters.sequential_writes, 1);
}

#[test]
fn what_never_reached_the_export_is_not_counted_and_each_slice_of_a_long_range_is() {
    let export = counted(&TestClock::new(), &Arc::default());
    let mut world = World::new(&[&export]);
    let (queue, client) = world.queue("v");
    queue.ask(Command::Write(Fua::No), 512, &Guest::new(&[]));
    queue.ask_range(Command::Trim(Fua::No), 0..2 * SLICE_BYTES + 512, None);
    queue.ask_range(Command::Cache, 0..SLICE_BYTES, None);
    world.settle();
    let counters = asked_of(&export);
    assert_eq!(
        (counters.writes, counters.written_bytes),
        (3, 2 * SLICE_BYTES + 512)
    );
    client.tell(Leave::Fence);
    queue.ask(Command::Read, 0, &Guest::new(&[0; 512]));
    world.settle();
    let counters = asked_of(&export);
    assert_eq!((counters.reads, counters.errors), (0, 0));
}

#[test]
fn clients_of_other_threads_count_from_when_they_are_known_and_anew_after_a_reset() {
    let (clock, elsewhere) = (TestClock::new(), Arc::<Tally>::default());
    let here = counted(&clock, &Arc::default());
    let there = counted(&clock, &elsewhere);
    let mut world = World::new(&[&there]);
    let (queue, _) = world.queue("v");
    let mut read = || {
        queue.ask(Command::Read, 0, &Guest::new(&[0; 512]));
        world.settle();
    };
    read();
    let counting = here.counting().unwrap();
    counting.count_elsewhere(vec![elsewhere]);
    assert_eq!(counting.counters().reads, 0);
    read();
    assert_eq!(counting.counters().reads, 1);
    counting.reset();
    assert_eq!(counting.counters().reads, 0);
    read();
    assert_eq!(counting.counters().reads, 1);
}

#[test]
fn time_counts_as_busy_once_and_zeroes_that_would_not_be_fast_do_not_count() {
    let clock = TestClock::new();
    let export = counted(&clock, &Arc::default());
    let counting = export.counting().unwrap();
    {
        let world = World::new(&[&export]);
        let (opened, limits) = (world.exports.find("v").unwrap(), RequestLimits::default());
        let entered = world
            .exports
            .enter(&opened, String::new(), limits, &world.budget);
        let visit = entered.unwrap();
        let performer = Performer::new(visit.export(), visit.client());
        export.hold(true);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut both = [0, 512].map(|offset_bytes| {
            Box::pin(performer.carry_out(Job {
                key: (),
                command: Command::Read,
                offset_bytes,
                length_bytes: 512,
                data: None,
                tag: run(visit.client().requests().admit(512)),
            }))
        });
        for read in &mut both {
            assert!(read.as_mut().poll(&mut cx).is_pending());
        }
        clock.advance(Duration::from_nanos(100));
        assert_eq!(counting.counters().outstanding, 2);
        export.release(0);
        assert!(both[0].as_mut().poll(&mut cx).is_ready());
        clock.advance(Duration::from_nanos(50));
        // The other one is dropped, as with its session.
    }
    let counters = counting.counters();
    assert_eq!(counters.busy_ns, 150);
    assert_eq!((counters.outstanding, counters.read_ns), (0, 100));
    export.hold(false);
    export.zero_fast(false);
    let mut world = World::new(&[&export]);
    let (queue, _) = world.queue("v");
    let how = ZeroRequest {
        fua: Fua::No,
        may_unmap: true,
        only_if_fast: true,
    };
    let zeroed = queue.ask_range(Command::Zero(how), 0..512, None);
    world.settle();
    assert_eq!(zeroed.get(), Some(Err(IoError::Unsupported)));
    // Nor is it where the next request would begin.
    queue.ask(Command::Read, 1024, &Guest::new(&[0; 512]));
    world.settle();
    let counters = counting.counters();
    assert_eq!((counters.writes, counters.errors), (0, 0));
    assert_eq!(counters.sequential_reads, 1);
}
