//! What is compared: sets of disks, and loads of clients.

use plexum_disks::disk::mechanical_spec::{DiskSpec, QueueOrder};

use crate::preset;

/// What one client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
    /// Reads forward.
    Forward,
    /// Reads blocks of this size anywhere.
    Random(u64),
    /// Copies the mirror to a new disk.
    Rebuild,
}

/// A load: its group in the summary, its name, its clients.
pub(super) type Load = (&'static str, &'static str, &'static [(Client, usize)]);

pub(super) const K: u64 = 1 << 10;

pub(super) const M: u64 = 1 << 20;

/// The 17 loads.
pub(super) const LOADS: [Load; 17] = [
    ("1 sequential", "1 sequential", &[(Client::Forward, 1)]),
    (
        "1 random, 4/64 KiB",
        "1 random 4 KiB",
        &[(Client::Random(4 * K), 1)],
    ),
    (
        "1 random, 4/64 KiB",
        "1 random 64 KiB",
        &[(Client::Random(64 * K), 1)],
    ),
    (
        "1 random, 1 MiB",
        "1 random 1 MiB",
        &[(Client::Random(M), 1)],
    ),
    (
        "4 and 16 sequential",
        "4 sequential",
        &[(Client::Forward, 4)],
    ),
    (
        "4 and 16 sequential",
        "16 sequential",
        &[(Client::Forward, 16)],
    ),
    (
        "4-64 random",
        "4 random 4 KiB",
        &[(Client::Random(4 * K), 4)],
    ),
    (
        "4-64 random",
        "16 random 4 KiB",
        &[(Client::Random(4 * K), 16)],
    ),
    (
        "4-64 random",
        "64 random 4 KiB",
        &[(Client::Random(4 * K), 64)],
    ),
    (
        "4-64 random",
        "4 random 64 KiB",
        &[(Client::Random(64 * K), 4)],
    ),
    (
        "4-64 random",
        "16 random 64 KiB",
        &[(Client::Random(64 * K), 16)],
    ),
    ("4-64 random", "4 random 1 MiB", &[(Client::Random(M), 4)]),
    (
        "mixed",
        "1 sequential, 4 random",
        &[(Client::Forward, 1), (Client::Random(4 * K), 4)],
    ),
    (
        "mixed",
        "4 sequential, 4 random",
        &[(Client::Forward, 4), (Client::Random(4 * K), 4)],
    ),
    (
        "mixed",
        "2 sequential, 16 random",
        &[(Client::Forward, 2), (Client::Random(16 * K), 16)],
    ),
    ("rebuild", "rebuild", &[(Client::Rebuild, 1)]),
    (
        "rebuild",
        "rebuild, 4 random",
        &[(Client::Rebuild, 1), (Client::Random(4 * K), 4)],
    ),
];

/// Names of the loads.
pub fn load_names() -> impl Iterator<Item = &'static str> {
    LOADS.iter().map(|(_, name, _)| *name)
}

pub(super) fn disk(depth: u32, slow_factor: f64) -> DiskSpec {
    let mut spec = preset::sata_7200_750();
    spec.queue_depth = depth;
    spec.slow_factor = slow_factor;
    if depth > 1 {
        spec.order = QueueOrder::Fifo;
    }
    DiskSpec::Mechanical(spec)
}

/// The eight disk sets.
pub(super) fn sets() -> Vec<(&'static str, Vec<DiskSpec>)> {
    let ssd = preset::find("ssd-sata").expect("the preset exists");
    let fast = DiskSpec::Mechanical(preset::scsi_10k());
    vec![
        ("2 equal", vec![disk(1, 1.0); 2]),
        ("2 equal, queue 32", vec![disk(32, 1.0); 2]),
        ("4 equal", vec![disk(1, 1.0); 4]),
        ("4 equal, queue 32", vec![disk(32, 1.0); 4]),
        ("unequal pair", vec![disk(1, 1.0), fast]),
        (
            "3, first four times slower",
            vec![disk(1, 4.0), disk(1, 1.0), disk(1, 1.0)],
        ),
        ("SSD first", vec![ssd.clone(), disk(32, 1.0)]),
        ("SSD last", vec![disk(32, 1.0), ssd]),
    ]
}

/// Names of the disk sets.
#[must_use]
pub fn set_names() -> Vec<&'static str> {
    sets().into_iter().map(|(name, _)| name).collect()
}
