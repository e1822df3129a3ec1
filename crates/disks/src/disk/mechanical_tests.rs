//! Each part of the disk model against the numbers of lab.md.

use std::cell::Cell;
use std::time::Duration;

use plexum_block::buf::BufPool;
use plexum_block::clock::Clock;
use plexum_block::device::{Device, Fua};
use plexum_exec::{Executor, Fifo};

use super::mechanical_geometry::DiskGeometry;
use super::mechanical_spec::{DiskSpec, MechanicalSpec, QueueOrder, SsdSpec};
use super::timed::{Bus, Contents, TimedDisk};
use crate::clock::SimClock;

fn desktop() -> MechanicalSpec {
    MechanicalSpec {
        capacity_bytes: 750_000_000_000,
        rpm: 7200.0,
        tracks_per_cylinder: 8,
        outer_bytes_per_s: 90e6,
        inner_bytes_per_s: 46e6,
        zone_count: 16,
        switch_ms: 1.2,
        seek_track_ms: 2.0,
        seek_average_ms: 8.9,
        seek_full_ms: 21.0,
        write_settle_ms: 0.5,
        overhead_ms: 0.25,
        hit_ms: 0.23,
        write_ms: 0.23,
        interface_bytes_per_s: 240e6,
        queue_depth: 1,
        merge_bytes_max: 0,
        order: QueueOrder::Elevator,
        segment_count: 16,
        segment_bytes: 1 << 20,
        ahead_bytes: 512 << 10,
        ahead_sequential_bytes: 1 << 20,
        write_cache_bytes: 8 << 20,
        write_efficiency: 0.93,
        range_overhead_us: 40.0,
        phase_turns: 0.0,
        slow_factor: 1.0,
    }
}

/// Runs `work` on a disk and gives the virtual nanoseconds it took.
fn timed<F, W>(spec: DiskSpec, bus: Option<Bus>, work: W) -> (u64, TimedDisk)
where
    F: Future<Output = ()> + 'static,
    W: FnOnce(TimedDisk, SimClock, BufPool) -> F,
{
    let clock = SimClock::new();
    let disk = TimedDisk::new(&spec, &clock, bus, Contents::Below(0)).unwrap();
    let mut executor = Executor::new(Fifo);
    let pool = BufPool::new(8 << 20);
    let handle = executor.spawn(work(disk.clone(), clock.clone(), pool));
    while !handle.is_finished() {
        executor.run_until_stalled();
        assert!(handle.is_finished() || clock.advance(), "the disk answers");
    }
    (clock.now_ns(), disk)
}

/// Requests of `length` bytes one after another at `offsets`.
fn one_by_one(
    spec: &MechanicalSpec,
    is_write: bool,
    offsets: Vec<u64>,
    length: usize,
) -> (u64, TimedDisk) {
    timed(
        DiskSpec::Mechanical(spec.clone()),
        None,
        move |disk, _clock, pool| async move {
            let data = pool.take_zeroed(length).freeze();
            for at in offsets {
                if is_write {
                    disk.write(at, data.clone(), Fua::No).await.unwrap();
                } else {
                    disk.read(at, pool.take(length)).await.unwrap();
                }
            }
        },
    )
}

#[test]
fn sustained_rates_are_those_of_the_zones() {
    let spec = desktop();
    let geometry = DiskGeometry::new(&spec);
    for (at, rate) in [(0, 90e6), (749_000_000_000, 46e6)] {
        let length = 512 << 20;
        let seen = length as f64 / geometry.transfer_ns(at, length) * 1e9;
        assert!((seen / rate - 1.0).abs() < 0.01, "{seen} at {at}");
    }
}

#[test]
fn zones_begin_on_whole_tracks() {
    let geometry = DiskGeometry::new(&desktop());
    let mut at = 0;
    let mut tracks = 0;
    while at < 40_000_000_000 {
        let spot = geometry.spot(at);
        assert_eq!(spot.in_track_bytes, 0);
        assert_eq!(spot.track, tracks, "no track is left out at byte {at}");
        at = geometry.track_end_bytes(at);
        tracks += 1;
    }
}

#[test]
fn advance_is_the_inverse_of_the_transfer_time() {
    let geometry = DiskGeometry::new(&desktop());
    for start in [0, 512, 700_000 / 512 * 512, 60_000_000_000, 749_000_000_000] {
        for length in [512, 4096, 131_072, 857_088, 3 << 20, 200 << 20] {
            let time = geometry.transfer_ns(start, length);
            let reached = geometry.advance(start, time + 1.0);
            assert!(
                reached.abs_diff(start + length) <= 512,
                "{start} + {length}: {reached}"
            );
        }
    }
}

#[test]
fn the_seek_curve_passes_through_the_published_points_and_rises() {
    for (track, average, full) in [(2.0, 8.9, 21.0), (4.0, 16.5, 38.0), (0.8, 5.2, 12.0)] {
        let geometry = DiskGeometry::new(&MechanicalSpec {
            seek_track_ms: track,
            seek_average_ms: average,
            seek_full_ms: full,
            ..desktop()
        });
        let last = geometry.cylinder_count() - 1;
        let ms = |distance: u64| geometry.seek_ns(0, distance) / 1e6;
        assert_eq!(ms(0), 0.0);
        assert!((ms(1) - track).abs() < 1e-6);
        assert!((ms(last / 3) - average).abs() < 0.01);
        assert!((ms(last) - full).abs() < 1e-6);
        let mut before = 0.0;
        for distance in (1..=last).step_by((last / 500) as usize) {
            assert!(ms(distance) >= before, "at {distance}");
            before = ms(distance);
        }
    }
}

#[test]
fn skew_lets_a_transfer_cross_tracks_and_cylinders_without_losing_a_turn() {
    let geometry = DiskGeometry::new(&desktop());
    let mut at = 0;
    let mut now = geometry.rotation_ns(0, 0.0);
    for _ in 0..40 {
        let next = geometry.track_end_bytes(at);
        now += geometry.transfer_ns(at, next - at);
        let wait = geometry.rotation_ns(next, now);
        assert!(
            (wait - 1.2e6).abs() < 30_000.0,
            "the switch and no more: {wait}"
        );
        now += wait;
        at = next;
    }
}

#[test]
fn without_a_write_cache_each_write_waits_a_turn() {
    let spec = MechanicalSpec {
        rpm: 10_000.0,
        outer_bytes_per_s: 34.8e6,
        inner_bytes_per_s: 34.8e6,
        switch_ms: 0.0,
        overhead_ms: 0.3,
        write_cache_bytes: 0,
        write_efficiency: 1.0,
        ..desktop()
    };
    // lab.md, forensic notes: 6.8, 7.2, 8.2, 10.1 ms for 16, 32, 64, 128 KiB.
    for (kib, ms) in [(16u64, 6.5), (32, 6.95), (64, 7.9), (128, 9.8)] {
        let offsets: Vec<u64> = (0..100).map(|n| n * kib * 1024).collect();
        let (took, _) = one_by_one(&spec, true, offsets, (kib * 1024) as usize);
        let each = took as f64 / 1e8;
        // A turn and the overhead it cannot hide, or the media time rounded up to turns.
        assert!((each / ms - 1.0).abs() < 0.3, "{kib} KiB: {each} ms");
    }
}

#[test]
fn sequential_reads_ride_at_the_media_rate_and_random_ones_miss() {
    let spec = desktop();
    let (took, disk) = one_by_one(&spec, false, (0..800).map(|n| n << 17).collect(), 1 << 17);
    let rate = (800u64 << 17) as f64 / took as f64 * 1e3;
    assert!((rate - 90.0).abs() < 3.0, "{rate} MB/s");
    let figures = disk.figures();
    assert!(figures.misses <= 3, "{figures:?}");
    let offsets =
        (0..200u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 700_000_000_000 / 4096 * 4096);
    let (took, disk) = one_by_one(&spec, false, offsets.collect(), 4096);
    let each = took as f64 / 200.0 / 1e6;
    assert!((10.0..17.0).contains(&each), "{each} ms");
    assert_eq!(disk.figures().misses, 200);
}

#[test]
fn read_ahead_of_a_request_with_a_gap_ends_with_the_track() {
    let spec = desktop();
    let track = DiskGeometry::new(&spec).track_end_bytes(0);
    let far = track / 4096 * 4096 + 4096;
    // The second request is not sequential: inside of the track it rides, beyond it it misses.
    let (_, inside) = one_by_one(&spec, false, vec![4096, 65_536], 4096);
    assert_eq!(inside.figures().misses, 1);
    let (_, outside) = one_by_one(&spec, false, vec![4096, far], 4096);
    assert_eq!(outside.figures().misses, 2);
}

#[test]
fn the_write_cache_takes_writes_at_interface_speed_until_it_is_full() {
    let spec = desktop();
    let (took, _) = one_by_one(&spec, true, (0..32).map(|n| n << 17).collect(), 1 << 17);
    let each = took as f64 / 32.0 / 1e6;
    assert!(
        (each - 0.776).abs() < 0.01,
        "0.23 ms and 128 KiB at 240 MB/s: {each}"
    );
    let count = 4000u64;
    let (took, _) = one_by_one(&spec, true, (0..count).map(|n| n << 17).collect(), 1 << 17);
    let rate = (count << 17) as f64 / took as f64 * 1e3;
    assert!((rate - 90.0 * 0.93).abs() < 3.0, "sustained: {rate} MB/s");
}

#[test]
fn a_flush_waits_for_the_platter_and_fua_too() {
    let (took, disk) = timed(
        DiskSpec::Mechanical(desktop()),
        None,
        |disk, _clock, pool| async move {
            let data = pool.take_zeroed(4 << 20).freeze();
            disk.write(0, data, Fua::No).await.unwrap();
            assert!(disk.dirty_bytes() > 0);
            disk.flush().await.unwrap();
            assert_eq!(disk.dirty_bytes(), 0);
            let small = pool.take_zeroed(4096).freeze();
            disk.write(8 << 20, small, Fua::Yes).await.unwrap();
        },
    );
    assert!(
        took > 45_000_000,
        "4 MiB need about 47 ms on the platter: {took}"
    );
    assert_eq!(disk.figures().flushes, 1);
}

#[test]
fn reads_that_never_end_keep_no_write_and_no_flush_waiting_for_ever() {
    for (queue_depth, order) in [(1, QueueOrder::Elevator), (8, QueueOrder::Fifo)] {
        let spec = MechanicalSpec {
            queue_depth,
            order,
            ..desktop()
        };
        let work = |disk: TimedDisk, clock: SimClock, pool: BufPool| async move {
            let (next, is_flushed) = (Cell::new(1u64 << 30), Cell::new(false));
            let read = async || {
                while !is_flushed.get() {
                    let at = next.replace(next.get() + (1 << 20));
                    assert!(at < 3 << 30, "two gigabytes went before {queue_depth}");
                    drop(disk.read(at, pool.take(1 << 20)).await.unwrap());
                }
            };
            let write = async {
                clock.sleep(Duration::from_secs(1)).await;
                let small = pool.take_zeroed(512).freeze();
                disk.write(8192, small, Fua::No).await.unwrap();
                disk.flush().await.unwrap();
                is_flushed.set(true);
            };
            let reads = plexum_block::wait::join_all((0..4).map(|_| read()));
            plexum_block::wait::join(write, reads).await;
        };
        let _ = timed(DiskSpec::Mechanical(spec), None, work);
    }
}

#[test]
fn a_deep_queue_is_faster_than_a_shallow_one_on_random_reads() {
    let rate = |queue_depth: u32| {
        let spec = MechanicalSpec {
            queue_depth,
            order: QueueOrder::Fifo,
            ..desktop()
        };
        let (took, _) = timed(
            DiskSpec::Mechanical(spec),
            None,
            |disk, _clock, pool| async move {
                let reads = (0..300u64).map(|n| {
                    let at = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 700_000_000_000 / 4096 * 4096;
                    let buf = pool.take(4096);
                    let disk = disk.clone();
                    async move { drop(disk.read(at, buf).await.unwrap()) }
                });
                plexum_block::wait::join_all(reads).await;
            },
        );
        300.0 / (took as f64 / 1e9)
    };
    let (shallow, deep) = (rate(1), rate(32));
    assert!(deep > shallow * 1.5, "{shallow} against {deep} reads/s");
}

#[test]
fn a_shared_bus_bounds_two_disks_together() {
    let clock = SimClock::new();
    let bus = Bus::new(1.9e6);
    let spec = DiskSpec::Mechanical(MechanicalSpec {
        capacity_bytes: 600_000_000,
        rpm: 3600.0,
        outer_bytes_per_s: 1.75e6,
        inner_bytes_per_s: 1.75e6,
        segment_count: 0,
        write_cache_bytes: 0,
        overhead_ms: 2.5,
        ..desktop()
    });
    let mut executor = Executor::new(Fifo);
    let pool = BufPool::new(8 << 20);
    let mut handles = Vec::new();
    for _ in 0..4 {
        let disk = TimedDisk::new(&spec, &clock, Some(bus.clone()), Contents::Below(0)).unwrap();
        let pool = pool.clone();
        handles.push(executor.spawn(async move {
            for n in 0..50 {
                drop(disk.read(n << 16, pool.take(1 << 16)).await.unwrap());
            }
        }));
    }
    while handles.iter().any(|handle| !handle.is_finished()) {
        executor.run_until_stalled();
        let _ = clock.advance();
    }
    let rate = ((4 * 50) << 16) as f64 / clock.now_ns() as f64 * 1e9;
    assert!((1.7e6..1.91e6).contains(&rate), "{rate} bytes/s");
}

#[test]
fn an_ssd_has_latency_in_its_channels_and_one_rate_for_all() {
    let spec = SsdSpec {
        capacity_bytes: 1 << 30,
        read_us: 80.0,
        write_us: 30.0,
        flush_us: 500.0,
        read_bytes_per_s: 500e6,
        write_bytes_per_s: 400e6,
        channel_count: 4,
        slow_factor: 1.0,
    };
    let run = |count: u64, length: usize| {
        timed(
            DiskSpec::Ssd(spec.clone()),
            None,
            move |disk, _clock, pool| async move {
                let reads = (0..count).map(|n| {
                    let (disk, buf) = (disk.clone(), pool.take(length));
                    async move { drop(disk.read(n * length as u64, buf).await.unwrap()) }
                });
                plexum_block::wait::join_all(reads).await;
            },
        )
        .0
    };
    assert_eq!(run(1, 4096), 80_000 + 8192);
    let four = run(4, 4096);
    assert_eq!(
        four,
        80_000 + 4 * 8192,
        "four at once share the transfer only"
    );
    let rate = (64 << 20) as f64 / run(64, 1 << 20) as f64 * 1e3;
    assert!((rate - 500.0).abs() < 5.0, "{rate} MB/s");
}

#[test]
fn the_same_requests_take_the_same_time_again() {
    let run = || {
        let offsets = (0..300u64).map(|n| (n * 1_234_567 * 4096) % 100_000_000_000 / 4096 * 4096);
        let (took, disk) = one_by_one(&desktop(), false, offsets.collect(), 8192);
        (took, disk.figures())
    };
    assert_eq!(run(), run());
}
