use super::*;
use plexum_block::buf::BufPool;
use plexum_exec::{Executor, Seeded};

const SHAPE: DiskShape = DiskShape {
    size_bytes: 1 << 20,
    sector_bytes: 512,
    atom_bytes: 512,
    has_zeroing_trim: true,
    latency_ns: 50_000,
    flush_times: 1,
};

struct Bench {
    clock: SimClock,
    disk: SimDisk,
    pool: BufPool,
    executor: Executor<Seeded>,
}

impl Bench {
    fn new(seed: u64) -> Self {
        let clock = SimClock::new();
        let trace = Trace::new(clock.clone(), false);
        let disk = SimDisk::new(0, SHAPE, clock.clone(), trace, &Rng::new(seed));
        Self {
            clock,
            disk,
            pool: BufPool::new(1 << 20),
            executor: Executor::new(Seeded::new(seed)),
        }
    }

    fn run<T: 'static>(&mut self, future: impl Future<Output = T> + 'static) -> T {
        let slot = Rc::new(RefCell::new(None));
        let inside = Rc::clone(&slot);
        self.executor
            .spawn(async move { *inside.borrow_mut() = Some(future.await) });
        while slot.borrow().is_none() {
            if !self.executor.poll_one() {
                assert!(self.clock.advance(), "the future ends");
            }
        }
        slot.take().expect("just seen")
    }

    fn write(&mut self, offset: u64, byte: u8, length: usize, fua: Fua) -> Result<(), IoError> {
        let (disk, data) = (
            self.disk.clone(),
            self.pool.copy_of(&vec![byte; length]).freeze(),
        );
        self.run(async move { disk.write(offset, data, fua).await })
    }

    fn flush(&mut self) -> Result<(), IoError> {
        let disk = self.disk.clone();
        self.run(async move { disk.flush().await })
    }

    fn read(&mut self, offset: u64, length: usize) -> Result<Vec<u8>, IoError> {
        let (disk, buf) = (self.disk.clone(), self.pool.take(length));
        self.run(async move { disk.read(offset, buf).await })
            .map(|buf| buf.to_vec())
    }
}

#[test]
fn flushed_and_fua_sectors_survive_every_power_cut_and_others_by_chance() {
    let (mut kept, mut lost, mut mixed) = (0, 0, 0);
    for seed in 0..200 {
        let mut bench = Bench::new(seed);
        bench.write(0, 1, 4096, Fua::No).unwrap();
        bench.flush().unwrap();
        bench.write(0, 2, 4096, Fua::No).unwrap();
        bench.write(8192, 3, 512, Fua::No).unwrap();
        bench.write(8192, 4, 512, Fua::Yes).unwrap();
        bench.disk.crash(CrashKind::PowerCut);
        assert_eq!(bench.read(8192, 512).unwrap(), [4; 512]);
        let seen = bench.read(0, 4096).unwrap();
        for sector in seen.chunks(512) {
            assert!(
                sector.iter().all(|byte| *byte == sector[0]),
                "a sector is never mixed"
            );
            assert!(matches!(sector[0], 1 | 2));
        }
        let new = seen.chunks(512).filter(|sector| sector[0] == 2).count();
        match new {
            0 => lost += 1,
            8 => kept += 1,
            _ => mixed += 1,
        }
    }
    assert!(
        kept > 10 && lost > 10 && mixed > 50,
        "{kept} {lost} {mixed}"
    );
}

#[test]
fn a_kill_keeps_every_answered_write() {
    for seed in 0..50 {
        let mut bench = Bench::new(seed);
        bench.write(512, 7, 1024, Fua::No).unwrap();
        bench.disk.crash(CrashKind::Kill);
        assert_eq!(bench.read(512, 1024).unwrap(), [7; 1024]);
    }
}

#[test]
fn a_dropped_future_does_not_stop_its_write() {
    let mut bench = Bench::new(1);
    {
        let mut write = std::pin::pin!(bench.disk.write(
            0,
            bench.pool.copy_of(&[9; 512]).freeze(),
            Fua::No
        ));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(write.as_mut().poll(&mut context).is_pending());
    }
    while bench.clock.advance() {}
    assert_eq!(bench.read(0, 512).unwrap(), [9; 512]);
}

#[test]
fn a_flush_does_not_cover_a_write_that_is_still_in_flight() {
    let mut is_lost = false;
    for seed in 0..100 {
        let mut bench = Bench::new(seed);
        let (disk, other) = (bench.disk.clone(), bench.disk.clone());
        let data = bench.pool.copy_of(&[5; 512]).freeze();
        bench
            .executor
            .spawn(async move { disk.write(0, data, Fua::No).await });
        bench.run(async move { other.flush().await }).unwrap();
        while bench.executor.poll_one() || bench.clock.advance() {}
        bench.disk.crash(CrashKind::PowerCut);
        is_lost |= bench.read(0, 512).unwrap() == [0; 512];
    }
    assert!(is_lost);
}

#[test]
fn a_read_error_stays_until_the_sector_is_rewritten() {
    let mut bench = Bench::new(2);
    bench.disk.put_fault(&Fault::ReadError(1024..1536));
    assert_eq!(bench.read(0, 4096), Err(IoError::Medium));
    assert!(bench.read(0, 1024).is_ok());
    bench.write(1024, 3, 512, Fua::No).unwrap();
    assert!(bench.read(0, 4096).is_ok());
}

#[test]
fn silent_faults_damage_exactly_what_they_say() {
    let mut bench = Bench::new(3);
    bench.write(0, 1, 4096, Fua::Yes).unwrap();
    bench.disk.put_fault(&Fault::BitFlip {
        offset_bytes: 700,
        mask: 4,
    });
    assert_eq!(bench.read(512, 512).unwrap()[188], 5);
    bench.disk.put_fault(&Fault::LostWrite(0..512));
    bench.write(0, 8, 512, Fua::Yes).unwrap();
    assert_eq!(bench.read(0, 512).unwrap(), [1; 512]);
    bench.disk.put_fault(&Fault::MisdirectedWrite {
        range: 0..512,
        shift_bytes: 8192,
    });
    bench.write(0, 6, 512, Fua::Yes).unwrap();
    assert_eq!(bench.read(0, 512).unwrap(), [1; 512]);
    assert_eq!(bench.read(8192, 512).unwrap(), [6; 512]);
}

#[test]
fn a_vanished_disk_is_gone_for_its_handle_and_back_for_a_new_one() {
    let mut bench = Bench::new(4);
    bench.write(0, 1, 512, Fua::Yes).unwrap();
    bench.disk.put_fault(&Fault::Vanish);
    assert_eq!(bench.read(0, 512), Err(IoError::Gone));
    bench.disk.put_fault(&Fault::Return);
    assert_eq!(
        bench.read(0, 512),
        Err(IoError::Gone),
        "an old handle stays dead"
    );
    bench.disk = bench.disk.reopen();
    assert_eq!(bench.read(0, 512).unwrap(), [1; 512]);
}

#[test]
fn a_hung_disk_answers_nothing_until_it_returns() {
    let mut bench = Bench::new(5);
    bench.disk.put_fault(&Fault::Hang);
    let (disk, data) = (bench.disk.clone(), bench.pool.copy_of(&[1; 512]).freeze());
    let write = bench
        .executor
        .spawn(async move { disk.write(0, data, Fua::No).await });
    while bench.executor.poll_one() || bench.clock.advance() {}
    assert!(!write.is_finished());
    bench.disk.put_fault(&Fault::Return);
    while bench.executor.poll_one() || bench.clock.advance() {}
    assert!(write.is_finished());
}

#[test]
fn after_a_failed_flush_some_of_what_it_covered_is_lost_at_the_next_cut() {
    let mut is_lost = false;
    for seed in 0..60 {
        let mut bench = Bench::new(seed);
        bench.write(0, 1, 2048, Fua::No).unwrap();
        bench.disk.put_fault(&Fault::FlushError { count: 1 });
        assert!(!bench.disk.has_dropped(), "the fault is only to come");
        assert_eq!(bench.flush(), Err(IoError::Medium));
        assert_eq!(bench.read(0, 2048).unwrap(), [1; 2048]);
        bench.flush().unwrap();
        assert!(bench.disk.has_dropped());
        bench.disk.crash(CrashKind::PowerCut);
        assert!(!bench.disk.has_dropped());
        is_lost |= bench.read(0, 2048).unwrap() != [1; 2048];
    }
    assert!(
        is_lost,
        "a second flush does not bring back what the first one dropped"
    );
}

#[test]
fn a_write_that_a_fua_write_cut_in_two_is_kept_whole_by_a_kill() {
    for seed in 0..50 {
        let mut bench = Bench::new(seed);
        let (outer, inner) = (bench.disk.clone(), bench.disk.clone());
        let (old, new) = (
            bench.pool.copy_of(&[1; 4096]).freeze(),
            bench.pool.copy_of(&[2; 512]).freeze(),
        );
        bench
            .executor
            .spawn(async move { outer.write(0, old, Fua::No).await });
        bench
            .executor
            .spawn(async move { inner.write(1024, new, Fua::Yes).await });
        while bench.executor.poll_one() || bench.clock.advance() {}
        let before = bench.read(0, 4096).unwrap();
        bench.disk.crash(CrashKind::Kill);
        assert_eq!(bench.read(0, 4096).unwrap(), before);
    }
}
