//! The goals as data: section 7 of docs/reference/performance.md, one entry for each figure it asks for.

use super::{Better, Goal, Rule};
use Better::{Higher, Lower};
use Rule::{Allowed, Limit, Own, Peer, Peers, Value};

const fn goal(
    group: &'static str,
    metric: &'static str,
    unit: &'static str,
    better: Better,
    must: &'static [Rule],
    aim: &'static [Rule],
) -> Goal {
    Goal {
        group,
        metric,
        unit,
        better,
        must,
        aim,
    }
}

const fn rate(metric: &'static str, must: &'static [Rule], aim: &'static [Rule]) -> Goal {
    goal("served", metric, "kIOPS", Higher, must, aim)
}

const fn cost(metric: &'static str, must: &'static [Rule], aim: &'static [Rule]) -> Goal {
    goal("served", metric, "us CPU", Lower, must, aim)
}

const fn stream(metric: &'static str, must: &'static [Rule], aim: &'static [Rule]) -> Goal {
    goal("served", metric, "GB/s", Higher, must, aim)
}

const fn engine(metric: &'static str, must: &'static [Rule], aim: &'static [Rule]) -> Goal {
    goal("engine", metric, "us CPU", Lower, must, aim)
}

/// What one layer costs more than the way through the engine without it.
const fn layer(metric: &'static str) -> Goal {
    engine(metric, &[Value(0.05)], &[Value(0.02)])
}

const fn parity(metric: &'static str, must: &'static [Rule], aim: &'static [Rule]) -> Goal {
    goal("parity", metric, "GB/s", Higher, must, aim)
}

/// What the articles print, as so many times the rate of the array beside it; nothing has to be reached.
const fn ratio(metric: &'static str, unit: &'static str, aim: &'static [Rule]) -> Goal {
    goal("ratios", metric, unit, Higher, &[], aim)
}

/// What a write to a volume of a ZFS pool becomes on the members.
const fn grows(metric: &'static str, must: &'static [Rule]) -> Goal {
    goal("zfs", metric, "bytes per byte", Lower, must, &[])
}

/// A request to a volume of a ZFS pool, as a part of what libzpool needs for it.
const fn zfs(metric: &'static str, must: &'static [Rule], aim: &'static [Rule]) -> Goal {
    goal("zfs", metric, "us CPU", Lower, must, aim)
}

const fn count(metric: &'static str, unit: &'static str, must: &'static [Rule]) -> Goal {
    goal("log", metric, unit, Lower, must, &[])
}

const fn cores(metric: &'static str) -> Goal {
    goal(
        "cores",
        metric,
        "x one core",
        Higher,
        &[Allowed(1.7, 0.9)],
        &[],
    )
}

const RAW_READ: &str = "raw: 4K read, depth 32";
const RAW_WRITE: &str = "raw: 4K write, depth 32";
const STRIPE_WRITE: &str = "stripe of 4: 1M sequential write";
const ISA_L: &str = "isa-l";

/// Every goal.
pub(crate) const GOALS: &[Goal] = &[
    // parity
    parity(
        "XOR of 8, 4K warm",
        &[Peer(0.95, ISA_L)],
        &[Peer(1.1, ISA_L)],
    ),
    parity(
        "XOR of 8, 64K warm",
        &[Peer(0.95, ISA_L)],
        &[Peer(1.1, ISA_L)],
    ),
    parity(
        "recover 1 of 8, 4K warm",
        &[Peer(0.95, ISA_L)],
        &[Peer(1.1, ISA_L)],
    ),
    parity(
        "P+Q of 4, 4K warm",
        &[Peer(1.0, ISA_L)],
        &[Peer(1.15, ISA_L)],
    ),
    parity(
        "P+Q of 8, 4K warm",
        &[Peer(1.0, ISA_L)],
        &[Peer(1.15, ISA_L)],
    ),
    parity(
        "P+Q of 16, 4K warm",
        &[Peer(1.0, ISA_L)],
        &[Peer(1.15, ISA_L)],
    ),
    parity(
        "P+Q of 8, 64K warm",
        &[Peer(1.0, ISA_L)],
        &[Peer(1.15, ISA_L)],
    ),
    parity("XOR of 8, 256K warm", &[], &[]),
    parity("P+Q of 8, 256K warm", &[], &[]),
    parity("P+Q+R of 8, 256K warm", &[Peers(1.3)], &[Peers(1.75)]),
    parity("P+Q+R of 8, 4K warm", &[Peers(1.3)], &[Peers(1.75)]),
    parity("P+Q+R of 8, 64K warm", &[Peers(1.3)], &[Peers(1.75)]),
    parity("recover 2 of 8, 4K warm", &[Peers(1.3)], &[Peers(1.7)]),
    parity("recover 2 of 8, 64K warm", &[Peers(1.3)], &[Peers(1.7)]),
    parity(
        "recover data and P of 8, 4K warm",
        &[Peers(1.3)],
        &[Peers(1.7)],
    ),
    parity("XOR of 8, 64K cold", &[Peers(0.95)], &[Limit(1.0)]),
    parity("P+Q of 8, 64K cold", &[Peers(0.95)], &[Limit(0.9)]),
    parity("P+Q+R of 8, 64K cold", &[Peers(0.95)], &[Limit(0.8)]),
    parity("recover 2 of 8, 64K cold", &[Peers(0.95)], &[Limit(0.85)]),
    parity("XOR of 8, 4K warm, AVX2", &[Peers(1.0)], &[Peers(1.1)]),
    parity("P+Q of 8, 4K warm, AVX2", &[Peers(1.0)], &[Peers(1.1)]),
    parity("P+Q+R of 8, 4K warm, AVX2", &[Peers(1.0)], &[Peers(1.1)]),
    parity(
        "recover 2 of 8, 4K warm, AVX2",
        &[Peers(1.0)],
        &[Peers(1.1)],
    ),
    parity("XOR of 8, 256K warm, AVX2", &[Peers(1.0)], &[Peers(1.1)]),
    parity("P+Q of 8, 256K warm, AVX2", &[Peers(1.0)], &[Peers(1.1)]),
    parity("P+Q+R of 8, 256K warm, AVX2", &[Peers(1.0)], &[Peers(1.1)]),
    // engine
    engine(
        "stripe of 4: 4K read",
        &[Value(0.30), Peers(0.25)],
        &[Value(0.15)],
    ),
    engine(
        "mirror of 2: 4K read",
        &[Value(0.30), Peers(0.25)],
        &[Value(0.15)],
    ),
    engine(
        "mirror of 2: 4K write, bitmap",
        &[Value(0.50), Peers(0.25)],
        &[Value(0.25)],
    ),
    engine(
        "RAID-5 of 4: 4K write, bitmap",
        &[Value(4.0)],
        &[Value(2.0)],
    ),
    engine(
        "RAID-5 of 4: 192K row write",
        &[Value(12.0)],
        &[Value(10.0)],
    ),
    layer("each layer added: deadline and retries of a drive, 4K read"),
    layer("each layer added: deadline and retries of a drive, 4K write"),
    layer("each layer added: statistics of a drive, 4K read"),
    layer("each layer added: statistics of a drive, 4K write"),
    layer("each layer added: plex, a volume of one member, 4K read"),
    layer("each layer added: plex, a volume of one member, 4K write"),
    layer("each layer added: counters of a plex that is a member, 4K read"),
    layer("each layer added: statistics of a drive over a plex, 4K read"),
    layer("each layer added: volume over a plex, 4K read"),
    layer("each layer added: counters of a plex that is a member, 4K write"),
    layer("each layer added: statistics of a drive over a plex, 4K write"),
    layer("each layer added: volume over a plex, 4K write"),
    layer("each layer added: cache, of what is read ahead, 4K read"),
    // cores
    cores("stripe of 4, null: 4K read"),
    cores("mirror of 2, null: 4K read"),
    cores("mirror of 2, null: 4K write"),
    cores("RAID-5 of 4, null: 4K write"),
    cores("mirror of 2, files: 4K read"),
    cores("mirror of 2, files: 4K write"),
    cores("RAID-5 of 4, files: 4K write"),
    // served
    cost(RAW_READ, &[Peer(0.8, "nbdkit file")], &[Limit(1.2)]),
    cost(RAW_WRITE, &[Peer(1.0, "nbdkit file")], &[Limit(1.2)]),
    rate("raw: 4K read, depth 1", &[Peers(1.1)], &[Limit(0.9)]),
    rate("raw: 4K write, depth 1", &[Peers(1.1)], &[Limit(0.9)]),
    rate(RAW_READ, &[Peers(1.15)], &[Limit(0.9)]),
    rate(RAW_WRITE, &[Peers(1.0)], &[Limit(0.9)]),
    cost(
        "mirror of 2: 4K read, depth 32",
        &[Peer(0.4, "quorum")],
        &[Own(1.1, RAW_READ)],
    ),
    cost(
        "mirror of 2: 4K write, depth 32",
        &[Peer(0.35, "quorum")],
        &[Own(1.5, RAW_WRITE)],
    ),
    rate(
        "mirror of 2: 4K read, depth 32",
        &[Peer(2.0, "quorum")],
        &[Own(0.9, RAW_READ)],
    ),
    rate(
        "mirror of 2: 4K write, depth 32",
        &[Peer(2.0, "quorum")],
        &[Own(0.7, RAW_WRITE)],
    ),
    rate(
        "stripe of 4: 4K read, depth 32",
        &[Peers(2.0)],
        &[Own(0.9, RAW_READ)],
    ),
    rate(
        "stripe of 4: 4K write, depth 32",
        &[Peers(2.5)],
        &[Own(0.9, RAW_WRITE)],
    ),
    rate(
        "RAID-10 of 4: 4K read, depth 32",
        &[Peers(2.0)],
        &[Own(0.9, RAW_READ)],
    ),
    rate(
        "RAID-10 of 4: 4K write, depth 32",
        &[Peers(2.5)],
        &[Own(0.7, RAW_WRITE)],
    ),
    rate(
        "RAID-5 of 4: 4K write, depth 32",
        &[Peers(4.0)],
        &[Own(0.4, RAW_WRITE)],
    ),
    rate(
        "RAID-6 of 6: 4K write, depth 32",
        &[Peers(5.0)],
        &[Own(0.3, RAW_WRITE)],
    ),
    stream("raw: 1M sequential read", &[Peers(1.0)], &[Limit(0.9)]),
    stream("raw: 1M sequential write", &[Peers(1.0)], &[Limit(0.9)]),
    stream(
        "stripe of 4: 1M sequential read",
        &[Peers(1.0)],
        &[Limit(0.9)],
    ),
    stream(STRIPE_WRITE, &[Peers(1.0)], &[Limit(0.9)]),
    stream(
        "RAID-5 of 4: 1M sequential write",
        &[Peers(2.0)],
        &[Own(0.8, STRIPE_WRITE)],
    ),
    stream(
        "RAID-6 of 6: 1M sequential write",
        &[Peers(2.0)],
        &[Own(0.8, STRIPE_WRITE)],
    ),
    // The same with each consistency: shown, the goals hold for the default.
    rate("RAID-5 of 4, bitmap: 4K write, depth 32", &[], &[]),
    rate("RAID-5 of 4, resync: 4K write, depth 32", &[], &[]),
    rate("RAID-5 of 4, write-back: 4K write, depth 32", &[], &[]),
    rate("RAID-6 of 6, bitmap: 4K write, depth 32", &[], &[]),
    rate("RAID-6 of 6, resync: 4K write, depth 32", &[], &[]),
    rate("RAID-6 of 6, write-back: 4K write, depth 32", &[], &[]),
    stream("RAID-5 of 4, bitmap: 1M sequential write", &[], &[]),
    stream("RAID-5 of 4, resync: 1M sequential write", &[], &[]),
    stream("RAID-6 of 6, bitmap: 1M sequential write", &[], &[]),
    stream("RAID-6 of 6, resync: 1M sequential write", &[], &[]),
    rate(
        "mirror of 2: 4K read, depth 32, while scrubbing",
        &[Own(0.7, "mirror of 2: 4K read, depth 32")],
        &[Own(0.85, "mirror of 2: 4K read, depth 32")],
    ),
    // scrub and rebuild
    goal(
        "scrub",
        "RAID-5 of 5",
        "GB/s",
        Higher,
        &[Peers(1.3)],
        &[Limit(0.7)],
    ),
    goal(
        "scrub",
        "RAID-6 of 6",
        "GB/s",
        Higher,
        &[Peers(1.3)],
        &[Limit(0.7)],
    ),
    goal(
        "scrub",
        "mirror of 2",
        "GB/s",
        Higher,
        &[Peers(1.5)],
        &[Limit(0.7)],
    ),
    goal(
        "rebuild",
        "RAID-5 of 5",
        "GB/s",
        Higher,
        &[Peer(1.5, "snapraid"), Peer(3.0, "btrfs")],
        &[Limit(0.6)],
    ),
    goal(
        "rebuild",
        "RAID-6 of 6",
        "GB/s",
        Higher,
        &[Peer(1.5, "snapraid"), Peer(3.0, "btrfs")],
        &[Limit(0.6)],
    ),
    goal(
        "scrub",
        "mirror of 2, O_DIRECT on disk",
        "GB/s",
        Higher,
        &[Limit(0.9)],
        &[Limit(0.97)],
    ),
    goal(
        "rebuild",
        "RAID-5 of 5, O_DIRECT on disk",
        "GB/s",
        Higher,
        &[Limit(0.9)],
        &[Limit(0.97)],
    ),
    // start and idle
    goal(
        "start",
        "RAID-6 of 6: start to first answer",
        "ms",
        Lower,
        &[Value(15.0)],
        &[Value(8.0)],
    ),
    goal(
        "start",
        "RAID-6 of 6: idle RSS",
        "MiB",
        Lower,
        &[Value(16.0)],
        &[Value(10.0)],
    ),
    goal(
        "start",
        "RAID-6 of 6: idle RSS per further volume",
        "MiB",
        Lower,
        &[Value(1.0)],
        &[],
    ),
    goal(
        "start",
        "RAID-6 of 6: idle wake-ups but for timers",
        "per s",
        Lower,
        &[Value(0.0)],
        &[],
    ),
    // the daemon with ten volumes, the judge included
    goal(
        "daemon",
        "10 mirrors: exec to all served",
        "ms",
        Lower,
        &[Value(20.0)],
        &[],
    ),
    goal(
        "daemon",
        "10 mirrors: idle RSS, the judge included",
        "MiB",
        Lower,
        &[Value(20.0)],
        &[],
    ),
    goal(
        "daemon",
        "10 mirrors: idle wake-ups, timers and the judge included",
        "per s",
        Lower,
        &[Value(2.0)],
        &[],
    ),
    // Bitmap and log. A warm bitmap is near zero below one member write in a hundred: 1,000 writes make 2,000.
    count(
        "RAID-5 of 4, bitmap: 4K random warm, depth 1",
        "extra writes",
        &[Value(20.0)],
    ),
    count(
        "RAID-5 of 4, bitmap: 4K random warm, depth 32",
        "extra writes",
        &[Value(20.0)],
    ),
    count(
        "RAID-5 of 4, log: 4K random warm, depth 1",
        "x time",
        &[Value(2.0)],
    ),
    count(
        "RAID-6 of 6, log: 4K random warm, depth 1",
        "x time",
        &[Value(2.0)],
    ),
    count(
        "RAID-5 of 4, write-back: 4K random warm, depth 32",
        "x time",
        &[Value(1.0)],
    ),
    count(
        "RAID-6 of 6, write-back: 4K random warm, depth 32",
        "x time",
        &[Value(1.0)],
    ),
    // ZFS pools beside libzpool: a third of its time for writes, a quarter for reads and synchronous writes
    zfs(
        "RAID-Z2 of 8: 4K random write",
        &[Peers(0.33)],
        &[Peers(0.2)],
    ),
    zfs(
        "RAID-Z2 of 8: 4K random read",
        &[Peers(0.25)],
        &[Peers(0.125)],
    ),
    zfs(
        "RAID-Z2 of 8: 4K synchronous write",
        &[Peers(0.25)],
        &[Peers(0.1)],
    ),
    zfs(
        "RAID-Z2 of 8: 4K synchronous write, 4 clients",
        &[Peers(0.25)],
        &[Peers(0.1)],
    ),
    zfs(
        "4 mirrors of 2: 4K random write",
        &[Peers(0.33)],
        &[Peers(0.2)],
    ),
    zfs(
        "4 mirrors of 2: 4K random read",
        &[Peers(0.25)],
        &[Peers(0.125)],
    ),
    zfs(
        "4 mirrors of 2: 4K synchronous write",
        &[Peers(0.25)],
        &[Peers(0.1)],
    ),
    zfs(
        "4 mirrors of 2: 4K synchronous write, 4 clients",
        &[Peers(0.25)],
        &[Peers(0.1)],
    ),
    // 1.2 times what the format needs: docs/reference/zfs-write.md 3.3
    grows("RAID-Z2 of 8: 4K random write", &[Value(3.84)]),
    grows("RAID-Z2 of 8: 4K synchronous write", &[]),
    grows("RAID-Z2 of 8: 4K synchronous write, 4 clients", &[]),
    grows("4 mirrors of 2: 4K random write", &[Value(2.76)]),
    grows("4 mirrors of 2: 4K synchronous write", &[]),
    grows("4 mirrors of 2: 4K synchronous write, 4 clients", &[]),
    // the ratios of the articles: RAID-Z2 beside RAID-6, mirrors beside RAID-10
    ratio("RAID-6 of 8: 4K random write, depth 32", "kIOPS", &[]),
    ratio(
        "RAID-Z2 of 8: 4K random write, depth 32",
        "kIOPS",
        &[Own(6.0, "RAID-6 of 8: 4K random write, depth 32")],
    ),
    ratio("RAID-6 of 8: 4K random read, depth 32", "kIOPS", &[]),
    ratio(
        "RAID-Z2 of 8: 4K random read, depth 32",
        "kIOPS",
        &[Own(0.5, "RAID-6 of 8: 4K random read, depth 32")],
    ),
    ratio(
        "RAID-6 of 8: 4K synchronous write, 16 clients",
        "kIOPS",
        &[],
    ),
    ratio(
        "RAID-Z2 of 8: 4K synchronous write, 16 clients",
        "kIOPS",
        &[Own(12.0, "RAID-6 of 8: 4K synchronous write, 16 clients")],
    ),
    ratio("RAID-6 of 8: 1M write, depth 4", "GB/s", &[]),
    ratio("RAID-Z2 of 8: 1M write, depth 4", "GB/s", &[]),
    ratio("RAID-6 of 8: 1M read, depth 4", "GB/s", &[]),
    ratio("RAID-Z2 of 8: 1M read, depth 4", "GB/s", &[]),
    ratio("RAID-10 of 8: 4K random write, depth 32", "kIOPS", &[]),
    ratio(
        "4 mirrors of 2: 4K random write, depth 32",
        "kIOPS",
        &[Own(4.0, "RAID-10 of 8: 4K random write, depth 32")],
    ),
    ratio("RAID-10 of 8: 4K random read, depth 32", "kIOPS", &[]),
    ratio("4 mirrors of 2: 4K random read, depth 32", "kIOPS", &[]),
    ratio(
        "RAID-10 of 8: 4K synchronous write, 16 clients",
        "kIOPS",
        &[],
    ),
    ratio(
        "4 mirrors of 2: 4K synchronous write, 16 clients",
        "kIOPS",
        &[Own(12.0, "RAID-10 of 8: 4K synchronous write, 16 clients")],
    ),
    ratio("RAID-10 of 8: 1M write, depth 4", "GB/s", &[]),
    ratio("4 mirrors of 2: 1M write, depth 4", "GB/s", &[]),
    ratio("RAID-10 of 8: 1M read, depth 4", "GB/s", &[]),
    ratio("4 mirrors of 2: 1M read, depth 4", "GB/s", &[]),
];
