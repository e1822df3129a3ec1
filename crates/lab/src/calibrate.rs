//! A real disk measured by reads alone, and a preset that behaves like it.
//!
//! Invariants:
//! - nothing is ever written to the device;
//! - the same probes run on the simulated disk of the new preset, so every figure stands beside its model;
//! - what reads cannot tell (write cache, tracks a cylinder) is assumed and said so.

use plexum_block::buf::BufPool;
use plexum_block::device::{Device, IoError};
use plexum_block::wait::join_all;
use plexum_disks::disk::mechanical_spec::{DiskSpec, SsdSpec};
use plexum_disks::rng::Rng;
use serde_json::json;

use crate::array::{DiskSet, Mode};
use crate::error::LabError;
use crate::member::Member;
use crate::preset;
use crate::real::RealDisk;
use crate::report::svg;
use crate::report::table::Table;
use crate::stats::Spread;
use crate::workload::IoRequest;
use crate::world::World;

/// Places where the sustained rate is measured.
const ZONES: u64 = 8;
/// Requests of a rate measurement, and their size.
const RATE_READS: u64 = 24;
const RATE_BYTES: u64 = 1 << 20;
/// Reads of each seek distance.
const SEEK_READS: usize = 40;
const SMALL_BYTES: u64 = 4096;
/// Most that is added to a distance: several tracks.
const JITTER_BYTES: u64 = 8 << 20;
/// Smallest device that can be measured.
const SIZE_BYTES_MIN: u64 = 64 << 20;
/// A random read below this does not come from a turning platter.
const ROTATING_NS_MIN: f64 = 1_500_000.0;
/// Speeds that disks are sold with, in turns a minute.
const SPEEDS: [f64; 7] = [3600.0, 4200.0, 5400.0, 5900.0, 7200.0, 10_000.0, 15_000.0];
/// Readers at once, and reads of each.
const READERS: [usize; 5] = [1, 2, 4, 8, 16];
const AT_ONCE_READS: usize = 64;
/// Calls of a whole probe: reads one by one, and rounds of several readers.
pub const PROBES: u64 =
    ZONES * (RATE_READS + 1) + (DISTANCES.len() * 2 * SEEK_READS + 2 * 16 + READERS.len()) as u64;
/// Seek distances, as shares of the disk.
const DISTANCES: [f64; 6] = [0.0005, 0.005, 0.05, 0.15, 1.0 / 3.0, 0.95];

/// Something whose reads can be timed.
pub trait Probe {
    /// Its size.
    fn size_bytes(&self) -> u64;

    /// Reads and says how many nanoseconds it took.
    ///
    /// # Errors
    /// A read that failed.
    fn read_ns(&mut self, offset_bytes: u64, length_bytes: u64) -> Result<f64, LabError>;

    /// All readers read at once, each one request after another; says how many nanoseconds that took.
    ///
    /// # Errors
    /// A read that failed.
    fn at_once_ns(&mut self, readers: &[Vec<IoRequest>]) -> Result<f64, LabError>;
}

/// A real device or file, opened for reading only.
pub struct RealProbe {
    disk: RealDisk,
    pool: BufPool,
}

impl RealProbe {
    /// Probes that disk.
    #[must_use]
    pub fn new(disk: RealDisk) -> Self {
        Self {
            disk,
            pool: BufPool::new(4 << 20),
        }
    }
}

impl Probe for RealProbe {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn read_ns(&mut self, offset_bytes: u64, length_bytes: u64) -> Result<f64, LabError> {
        let request = IoRequest::read(offset_bytes, length_bytes);
        self.disk.read_ns(&self.pool, &request)
    }

    fn at_once_ns(&mut self, readers: &[Vec<IoRequest>]) -> Result<f64, LabError> {
        Ok(self.disk.run(readers, None)?.elapsed_s * 1e9)
    }
}

/// A simulated disk in virtual time.
pub struct SimProbe {
    world: World,
    member: Member,
}

impl SimProbe {
    /// A disk of that make.
    ///
    /// # Errors
    /// A spec that makes no disk.
    pub fn new(spec: &DiskSpec, seed: u64) -> Result<Self, LabError> {
        let world = World::new();
        let mut disks = DiskSet::of(spec, 1).make(&world, seed, Mode::Timing)?;
        let disk = disks.pop().expect("one was made");
        Ok(Self {
            world,
            member: Member::Disk(disk),
        })
    }
}

impl Probe for SimProbe {
    fn size_bytes(&self) -> u64 {
        self.member.info().size_bytes
    }

    fn read_ns(&mut self, offset_bytes: u64, length_bytes: u64) -> Result<f64, LabError> {
        let (member, pool) = (self.member.clone(), self.world.pool().clone());
        let length =
            usize::try_from(length_bytes).map_err(|error| LabError::Bug(error.to_string()))?;
        let started = self.world.clock().now_ns();
        self.world
            .run(async move { member.read(offset_bytes, pool.take(length)).await })??;
        Ok((self.world.clock().now_ns() - started) as f64)
    }

    fn at_once_ns(&mut self, readers: &[Vec<IoRequest>]) -> Result<f64, LabError> {
        let started = self.world.clock().now_ns();
        let readers: Vec<_> = readers
            .iter()
            .cloned()
            .map(|requests| {
                let (member, pool) = (self.member.clone(), self.world.pool().clone());
                async move {
                    for request in requests {
                        let buf = pool.take(request.length_bytes as usize);
                        member.read(request.offset_bytes, buf).await?;
                    }
                    Ok::<(), IoError>(())
                }
            })
            .collect();
        let results = self.world.run(async move { join_all(readers).await })?;
        results.into_iter().collect::<Result<(), IoError>>()?;
        Ok((self.world.clock().now_ns() - started) as f64)
    }
}

/// What was measured.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Place (share of the disk) and sustained rate there, in bytes a second.
    pub rates: Vec<(f64, f64)>,
    /// Seek distance (share of the disk) and mean time of a small read after it, in nanoseconds.
    pub seeks: Vec<(f64, f64)>,
    /// Shortest and longest read of the shortest distance: nearly a turn lies between.
    pub near_ns: (f64, f64),
    /// Readers at once, and small reads a second anywhere of all together.
    pub at_once: Vec<(usize, f64)>,
    /// Time of a small read that the buffer answers.
    pub hit_ns: f64,
    /// The same of 64 KiB.
    pub hit_large_ns: f64,
}

fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    values
        .get((share * last as f64).round() as usize)
        .copied()
        .unwrap_or(0.0)
}

/// Runs all probes.
///
/// # Errors
/// `Usage` for a device too small; a read that failed.
pub fn probe(device: &mut dyn Probe) -> Result<Figures, LabError> {
    let size = device.size_bytes() / SMALL_BYTES * SMALL_BYTES;
    if size < SIZE_BYTES_MIN {
        return Err(LabError::Usage(format!(
            "{size} bytes are too few to measure; at least {SIZE_BYTES_MIN} are needed"
        )));
    }
    let mut figures = Figures::default();
    for zone in 0..ZONES {
        let share = zone as f64 / (ZONES - 1) as f64;
        let room = size - (RATE_READS + 2) * RATE_BYTES;
        let start = (share * room as f64) as u64 / SMALL_BYTES * SMALL_BYTES;
        device.read_ns(start, RATE_BYTES)?; // to get there
        let mut sum = 0.0;
        for number in 1..=RATE_READS {
            sum += device.read_ns(start + number * RATE_BYTES, RATE_BYTES)?;
        }
        let rate = (RATE_READS * RATE_BYTES) as f64 / sum.max(1.0) * 1e9;
        figures.rates.push((share, rate));
    }
    let mut rng = Rng::new(0xca1);
    for share in DISTANCES {
        let most = size - JITTER_BYTES - 2 * SMALL_BYTES;
        let distance = ((share * size as f64) as u64).min(most) / SMALL_BYTES * SMALL_BYTES;
        let mut times = Vec::new();
        for _ in 0..SEEK_READS {
            // A little more or less each time: at one distance the platter would always stand alike.
            let distance = distance + rng.below(JITTER_BYTES / SMALL_BYTES) * SMALL_BYTES;
            let room = (size - distance - SMALL_BYTES) / SMALL_BYTES;
            let base = rng.below(room.max(1)) * SMALL_BYTES;
            let (from, to) = if rng.chance(1, 2) {
                (base, base + distance)
            } else {
                (base + distance, base)
            };
            device.read_ns(from, SMALL_BYTES)?;
            times.push(device.read_ns(to, SMALL_BYTES)?);
        }
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        figures.seeks.push((share, mean));
        if figures.seeks.len() == 1 {
            figures.near_ns = (quantile(&mut times, 0.0), quantile(&mut times, 1.0));
        }
    }
    for readers in READERS {
        let mut read = || IoRequest::read(rng.below(size / SMALL_BYTES) * SMALL_BYTES, SMALL_BYTES);
        let lists: Vec<Vec<IoRequest>> = (0..readers)
            .map(|_| (0..AT_ONCE_READS).map(|_| read()).collect())
            .collect();
        let took_ns = device.at_once_ns(&lists)?.max(1.0);
        let per_s = (readers * AT_ONCE_READS) as f64 / took_ns * 1e9;
        figures.at_once.push((readers, per_s));
    }
    let place = size / 2 / SMALL_BYTES * SMALL_BYTES;
    for (length, is_large) in [(SMALL_BYTES, false), (64 << 10, true)] {
        device.read_ns(place, length)?;
        let mut times = Vec::new();
        for _ in 0..15 {
            times.push(device.read_ns(place, length)?);
        }
        let time = quantile(&mut times, 0.5);
        if is_large {
            figures.hit_large_ns = time;
        } else {
            figures.hit_ns = time;
        }
    }
    Ok(figures)
}

/// How many requests a disk without moving parts works on at once: so many times more reads it gives when it may.
fn channels(figures: &Figures) -> u32 {
    let alone = figures.at_once.first().map_or(0.0, |(_, per_s)| *per_s);
    let most = figures
        .at_once
        .iter()
        .map(|(_, per_s)| *per_s)
        .fold(0.0, f64::max);
    (most / alone.max(1.0)).round().clamp(1.0, 64.0) as u32
}

/// A preset from figures.
#[must_use]
pub fn fit(figures: &Figures, size_bytes: u64) -> DiskSpec {
    let rates = || figures.rates.iter().map(|(_, rate)| *rate);
    let best = rates().fold(1e5f64, f64::max);
    let mut seeks: Vec<f64> = figures.seeks.iter().map(|(_, time)| *time).collect();
    let random = quantile(&mut seeks, 0.5);
    if random < ROTATING_NS_MIN {
        // No place is faster than another: the middle one is less disturbed than the best.
        let best = quantile(&mut rates().collect::<Vec<f64>>(), 0.5).max(1e5);
        let transfer_us = SMALL_BYTES as f64 / best * 1e6;
        return DiskSpec::Ssd(SsdSpec {
            capacity_bytes: size_bytes,
            read_us: (random / 1e3 - transfer_us).max(0.1),
            write_us: (random / 1e3 / 2.0).max(0.1),
            flush_us: 500.0,
            read_bytes_per_s: best,
            write_bytes_per_s: best * 0.8,
            channel_count: channels(figures),
            slow_factor: 1.0,
        });
    }
    let mut spec = preset::sata_7200_750();
    let (low, high) = figures.near_ns;
    let turn_ns = ((high - low) / 0.95).max(1e6);
    let speed = 60e9 / turn_ns;
    let nearest = SPEEDS
        .iter()
        .min_by(|a, b| (*a / speed).ln().abs().total_cmp(&(*b / speed).ln().abs()));
    spec.rpm = *nearest.expect("there are speeds");
    let half_ms = 30_000.0 / spec.rpm;
    spec.capacity_bytes = size_bytes;
    // A straight line through the rates: the last zone may be slower than the first, not faster.
    let last = figures.rates.last().map_or(best, |(_, rate)| *rate);
    spec.outer_bytes_per_s = figures
        .rates
        .first()
        .map_or(best, |(_, rate)| *rate)
        .max(last);
    spec.inner_bytes_per_s = last;
    let above_hit = |index: usize| {
        let time = figures.seeks.get(index).map_or(0.0, |(_, time)| *time);
        (time / 1e6 - half_ms - spec.overhead_ms).max(0.1)
    };
    let (near, average, full) = (above_hit(0), above_hit(4), above_hit(5));
    spec.seek_track_ms = near.min(average).min(spec.seek_average_ms * 4.0);
    spec.seek_average_ms = average.max(spec.seek_track_ms);
    spec.seek_full_ms = full.max(spec.seek_average_ms);
    let more_ns = (figures.hit_large_ns - figures.hit_ns).max(1.0);
    spec.interface_bytes_per_s = (60.0 * 1024.0 / more_ns * 1e9).clamp(best, 2e10);
    let transfer_ms = SMALL_BYTES as f64 / spec.interface_bytes_per_s * 1e3;
    spec.hit_ms = (figures.hit_ns / 1e6 - transfer_ms).clamp(0.001, 2.0);
    DiskSpec::Mechanical(spec)
}

/// The same probes on the simulated disk of a preset.
///
/// # Errors
/// A spec that makes no disk.
pub fn probe_twin(spec: &DiskSpec) -> Result<Figures, LabError> {
    probe(&mut SimProbe::new(spec, 1)?)
}

/// Measured beside model, probe by probe.
#[must_use]
pub fn compare(measured: &Figures, model: &Figures) -> Table {
    let mut table = Table::new(
        "measured beside the model of the preset",
        &["probe", "measured", "model", "unit", "error_percent"],
    );
    let mut row = |name: String, seen: f64, model: f64, unit: &str| {
        let round = |value: f64| (value * 100.0).round() / 100.0;
        let error = (model / seen.max(1e-12) - 1.0) * 100.0;
        table.push(vec![
            json!(name),
            json!(round(seen)),
            json!(round(model)),
            json!(unit),
            json!((error * 10.0).round() / 10.0),
        ]);
    };
    for (seen, model) in measured.rates.iter().zip(&model.rates) {
        row(
            format!("rate at {:.0} % of the disk", seen.0 * 100.0),
            seen.1 / 1e6,
            model.1 / 1e6,
            "MB/s",
        );
    }
    for (seen, model) in measured.seeks.iter().zip(&model.seeks) {
        row(
            format!("read after {:.2} % of the disk", seen.0 * 100.0),
            seen.1 / 1e6,
            model.1 / 1e6,
            "ms",
        );
    }
    for (seen, model) in measured.at_once.iter().zip(&model.at_once) {
        row(
            format!("reads anywhere, {} at once", seen.0),
            seen.1,
            model.1,
            "1/s",
        );
    }
    row(
        "read that the buffer answers".to_owned(),
        measured.hit_ns / 1e6,
        model.hit_ns / 1e6,
        "ms",
    );
    table
}

/// Measured and modelled times of small reads over the distance of the jump before, as SVG. Of a disk of that size.
#[must_use]
pub fn chart(measured: &Figures, model: &Figures, size_bytes: u64) -> String {
    let distance = |share: f64| share * size_bytes as f64;
    let line = |name: &str, figures: &Figures| {
        let points = figures.seeks.iter().map(|(share, time_ns)| {
            let exact = Spread {
                mean: time_ns / 1e6,
                ..Spread::default()
            };
            (distance(*share), exact)
        });
        (name.to_owned(), points.collect())
    };
    let series = [line("measured", measured), line("model", model)];
    svg::lines(
        "small read after a jump",
        "ms",
        "distance of the jump",
        &series,
    )
}

/// The preset as a file for `--disk`.
///
/// # Errors
/// `Bug` when it cannot be written as TOML.
pub fn preset_text(spec: &DiskSpec, device: &str) -> Result<String, LabError> {
    let fields = toml::to_string(spec).map_err(|error| LabError::Bug(error.to_string()))?;
    Ok(format!(
        "# Measured on {device} by reads alone. Assumed: everything about writes, tracks a cylinder, switch time,\n\
         # segments of the buffer, queue depth.\n{fields}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calibrated(spec: &DiskSpec) -> DiskSpec {
        let mut device = SimProbe::new(spec, 5).unwrap();
        let figures = probe(&mut device).unwrap();
        fit(&figures, spec.capacity_bytes())
    }

    #[test]
    fn a_simulated_disk_is_recognised_by_its_reads() {
        for original in [preset::sata_7200_750(), preset::scsi_10k()] {
            let DiskSpec::Mechanical(found) = calibrated(&DiskSpec::Mechanical(original.clone()))
            else {
                panic!("a rotating disk is recognised");
            };
            assert_eq!(found.rpm, original.rpm);
            for (seen, known) in [
                (found.outer_bytes_per_s, original.outer_bytes_per_s),
                (found.inner_bytes_per_s, original.inner_bytes_per_s),
            ] {
                assert!((seen / known - 1.0).abs() < 0.08, "{seen} for {known}");
            }
            let error = (found.seek_average_ms / original.seek_average_ms - 1.0).abs();
            assert!(error < 0.2, "average seek {}", found.seek_average_ms);
        }
    }

    #[test]
    fn an_ssd_is_recognised_and_its_preset_file_can_be_read() {
        let original = preset::find("ssd-sata").unwrap();
        let found = calibrated(&original);
        let DiskSpec::Ssd(spec) = &found else {
            panic!("an SSD is recognised");
        };
        assert!((spec.read_us - 80.0).abs() < 3.0, "{}", spec.read_us);
        let text = preset_text(&found, "a test").unwrap();
        assert_eq!(preset::parse(&text).unwrap(), found);
        let mut device = SimProbe::new(&original, 5).unwrap();
        let model = probe_twin(&found).unwrap();
        let table = compare(&probe(&mut device).unwrap(), &model);
        assert_eq!(table.rows.len(), 8 + 6 + 5 + 1);
    }

    #[test]
    fn a_real_file_is_measured_and_not_changed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(96 << 20).unwrap();
        let mut device = RealProbe::new(RealDisk::open(file.path()).unwrap());
        let figures = probe(&mut device).unwrap();
        let spec = fit(&figures, device.size_bytes());
        spec.check().unwrap();
        use std::os::unix::fs::MetadataExt;
        assert_eq!(
            file.as_file().metadata().unwrap().blocks(),
            0,
            "still a hole"
        );
        file.as_file().set_len(1 << 20).unwrap();
        let mut small = RealProbe::new(RealDisk::open(file.path()).unwrap());
        assert!(probe(&mut small).is_err());
    }
}
