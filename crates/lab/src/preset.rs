//! The disks of lab.md section 8, and own ones from a file.
//!
//! One preset a machine; nothing is fitted to a cell. What was chosen to fit is said in `fitted`.

use plexum_disks::disk::mechanical_spec::{DiskSpec, MechanicalSpec, QueueOrder, SsdSpec};

use crate::error::LabError;

/// A named disk.
#[derive(Clone, Debug)]
pub struct Preset {
    /// Name.
    pub name: &'static str,
    /// What it stands for.
    pub about: &'static str,
    /// What was chosen to fit a table.
    pub fitted: &'static str,
    /// Its numbers.
    pub spec: DiskSpec,
}

const MB: f64 = 1e6;

fn base() -> MechanicalSpec {
    MechanicalSpec {
        capacity_bytes: 750_000_000_000,
        rpm: 7200.0,
        tracks_per_cylinder: 8,
        outer_bytes_per_s: 90.0 * MB,
        inner_bytes_per_s: 46.0 * MB,
        zone_count: 16,
        switch_ms: 1.2,
        seek_track_ms: 2.0,
        seek_average_ms: 8.9,
        seek_full_ms: 21.0,
        write_settle_ms: 0.5,
        overhead_ms: 0.25,
        hit_ms: 0.23,
        write_ms: 0.23,
        interface_bytes_per_s: 240.0 * MB,
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

/// Desktop disk of 2006 (WD7500AAKS class).
#[must_use]
pub fn sata_7200_750() -> MechanicalSpec {
    MechanicalSpec {
        // With the transfer 1.0 ms for 128 KiB: what the target of the rebuild by round-robin shows, which nothing
        // holds up (35 % busy with 350 writes a second). The class figure, 0.23 ms, is that of a read from the buffer.
        write_ms: 0.45,
        ..base()
    }
}

/// Old disk of the Vinum table.
#[must_use]
pub fn scsi_1989() -> MechanicalSpec {
    MechanicalSpec {
        capacity_bytes: 600_000_000,
        rpm: 3600.0,
        tracks_per_cylinder: 9,
        outer_bytes_per_s: 1.75 * MB,
        inner_bytes_per_s: 1.25 * MB,
        switch_ms: 1.5,
        seek_track_ms: 4.0,
        seek_average_ms: 16.5,
        seek_full_ms: 38.0,
        write_settle_ms: 1.5,
        overhead_ms: 2.5,
        hit_ms: 2.5,
        write_ms: 2.5,
        interface_bytes_per_s: 1.9 * MB,
        segment_count: 0,
        ahead_bytes: 0,
        ahead_sequential_bytes: 0,
        write_cache_bytes: 0,
        write_efficiency: 1.0,
        ..base()
    }
}

/// Rate of the bus that the disks of the Vinum table share, in bytes a second.
pub const SCSI_1989_BUS_BYTES_PER_S: f64 = 1.9 * MB;

/// Ultra-2-wide SCSI disk of the HOWTO.
#[must_use]
pub fn u2w_1999() -> MechanicalSpec {
    MechanicalSpec {
        capacity_bytes: 9_100_000_000,
        tracks_per_cylinder: 10,
        outer_bytes_per_s: 15.0 * MB,
        inner_bytes_per_s: 9.0 * MB,
        switch_ms: 1.0,
        seek_track_ms: 1.2,
        seek_average_ms: 8.0,
        seek_full_ms: 17.0,
        overhead_ms: 0.3,
        hit_ms: 0.2,
        write_ms: 0.2,
        interface_bytes_per_s: 80.0 * MB,
        segment_count: 4,
        segment_bytes: 256 << 10,
        ahead_bytes: 128 << 10,
        ahead_sequential_bytes: 128 << 10,
        write_cache_bytes: 1 << 20,
        ..base()
    }
}

/// Network-storage disk of 2020.
#[must_use]
pub fn nas_12t() -> MechanicalSpec {
    MechanicalSpec {
        capacity_bytes: 12_000_000_000_000,
        tracks_per_cylinder: 16,
        outer_bytes_per_s: 214.0 * MB,
        inner_bytes_per_s: 105.0 * MB,
        switch_ms: 0.7,
        seek_track_ms: 0.8,
        seek_average_ms: 8.5,
        seek_full_ms: 17.0,
        overhead_ms: 0.1,
        hit_ms: 0.05,
        write_ms: 0.05,
        interface_bytes_per_s: 550.0 * MB,
        queue_depth: 32,
        merge_bytes_max: 512 << 10,
        order: QueueOrder::Fifo,
        write_cache_bytes: 16 << 20,
        ahead_sequential_bytes: 2 << 20,
        segment_bytes: 2 << 20,
        ..base()
    }
}

/// Disk of the gvinum and gmirror article.
#[must_use]
pub fn scsi_10k() -> MechanicalSpec {
    MechanicalSpec {
        capacity_bytes: 36_000_000_000,
        rpm: 10_000.0,
        tracks_per_cylinder: 8,
        outer_bytes_per_s: 36.0 * MB,
        inner_bytes_per_s: 25.0 * MB,
        switch_ms: 0.8,
        seek_track_ms: 0.8,
        seek_average_ms: 5.2,
        seek_full_ms: 12.0,
        overhead_ms: 0.3,
        hit_ms: 0.3,
        write_ms: 0.3,
        interface_bytes_per_s: 160.0 * MB,
        segment_count: 8,
        segment_bytes: 512 << 10,
        ahead_bytes: 256 << 10,
        ahead_sequential_bytes: 512 << 10,
        write_cache_bytes: 0,
        write_efficiency: 1.0,
        ..base()
    }
}

/// All presets.
#[must_use]
pub fn presets() -> Vec<Preset> {
    let rotating = |name, about, fitted, spec| Preset {
        name,
        about,
        fitted,
        spec: DiskSpec::Mechanical(spec),
    };
    vec![
        rotating(
            "sata-7200-750",
            "desktop disk of 2006, 750 GB",
            "position 55 %, write efficiency, costs of hits and of buffered writes, the track-end rule: by the rebuild table",
            sata_7200_750(),
        ),
        rotating(
            "scsi-1989",
            "old SCSI disk, 600 MB, four on one slow bus",
            "media rate and bus rate: by the Vinum table",
            scsi_1989(),
        ),
        rotating(
            "u2w-1999",
            "Ultra-2-wide SCSI disk, 9.1 GB",
            "four CPU constants of the host: by four RAID-0 cells of the HOWTO",
            u2w_1999(),
        ),
        rotating(
            "nas-12t",
            "network-storage disk of 2020, 12 TB",
            "overhead of each range the cache writes",
            nas_12t(),
        ),
        rotating(
            "scsi-10k",
            "10 000 rpm SCSI disk without write cache",
            "command overhead: by the single-disk writes of the article",
            scsi_10k(),
        ),
        Preset {
            name: "ssd-sata",
            about: "SSD behind SATA, 500 GB",
            fitted: "nothing",
            spec: DiskSpec::Ssd(SsdSpec {
                capacity_bytes: 500_000_000_000,
                read_us: 80.0,
                write_us: 30.0,
                flush_us: 500.0,
                read_bytes_per_s: 500.0 * MB,
                write_bytes_per_s: 400.0 * MB,
                channel_count: 4,
                slow_factor: 1.0,
            }),
        },
        Preset {
            name: "nvme",
            about: "SSD behind PCI Express, 1 TB",
            fitted: "nothing",
            spec: DiskSpec::Ssd(SsdSpec {
                capacity_bytes: 1_000_000_000_000,
                read_us: 70.0,
                write_us: 15.0,
                flush_us: 100.0,
                read_bytes_per_s: 3200.0 * MB,
                write_bytes_per_s: 2400.0 * MB,
                channel_count: 32,
                slow_factor: 1.0,
            }),
        },
    ]
}

/// The preset of that name, or the disk described in that file (TOML, the fields of a preset).
///
/// # Errors
/// `Usage` for a name that is neither, and for a file that describes no disk.
pub fn find(name: &str) -> Result<DiskSpec, LabError> {
    if let Some(preset) = presets().into_iter().find(|preset| preset.name == name) {
        return Ok(preset.spec);
    }
    let names: Vec<&str> = presets().iter().map(|preset| preset.name).collect();
    let text = std::fs::read_to_string(name).map_err(|error| {
        LabError::Usage(format!(
            "\"{name}\" is no preset ({}) and no file: {error}",
            names.join(", ")
        ))
    })?;
    parse(&text).map_err(|error| LabError::Usage(format!("{name}: {error}")))
}

/// Reads a disk from TOML.
///
/// # Errors
/// What does not fit, with its line.
pub fn parse(text: &str) -> Result<DiskSpec, String> {
    let spec: DiskSpec = toml::from_str(text).map_err(|error| error.to_string())?;
    spec.check()?;
    Ok(spec)
}
