//! One thing that is different with a disk, by its name.

use plexum_disks::disk::mechanical_spec::{DiskSpec, MechanicalSpec, QueueOrder};

use crate::error::LabError;

/// A change of a disk; nothing when it has nothing of the kind.
type Change = fn(&mut DiskSpec);

fn rotating(spec: &mut DiskSpec, change: impl Fn(&mut MechanicalSpec)) {
    if let DiskSpec::Mechanical(spec) = spec {
        change(spec);
    }
}

fn seeks(spec: &mut DiskSpec, factor: f64) {
    rotating(spec, |spec| {
        spec.seek_track_ms *= factor;
        spec.seek_average_ms *= factor;
        spec.seek_full_ms *= factor;
    })
}

fn rate(spec: &mut DiskSpec, factor: f64) {
    match spec {
        DiskSpec::Mechanical(spec) => {
            spec.outer_bytes_per_s *= factor;
            spec.inner_bytes_per_s *= factor;
        }
        DiskSpec::Ssd(spec) => {
            spec.read_bytes_per_s *= factor;
            spec.write_bytes_per_s *= factor;
        }
    }
}

fn commands(spec: &mut DiskSpec, factor: f64) {
    match spec {
        DiskSpec::Mechanical(spec) => {
            spec.overhead_ms *= factor;
            spec.hit_ms *= factor;
            spec.write_ms *= factor;
        }
        DiskSpec::Ssd(spec) => {
            spec.read_us *= factor;
            spec.write_us *= factor;
        }
    }
}

fn at_once(spec: &mut DiskSpec, count: u32) {
    match spec {
        DiskSpec::Mechanical(spec) => {
            spec.queue_depth = count;
            if count > 1 {
                spec.order = QueueOrder::Fifo;
            }
        }
        DiskSpec::Ssd(spec) => spec.channel_count = count,
    }
}

/// The changes by their names.
pub const CHANGES: [(&str, Change); 11] = [
    ("seeks take half the time", |spec| seeks(spec, 0.5)),
    ("seeks take twice the time", |spec| seeks(spec, 2.0)),
    ("they turn half as fast", |spec| {
        rotating(spec, |spec| spec.rpm *= 0.5)
    }),
    ("they turn twice as fast", |spec| {
        rotating(spec, |spec| spec.rpm *= 2.0)
    }),
    ("the medium gives half the rate", |spec| rate(spec, 0.5)),
    ("the medium gives twice the rate", |spec| rate(spec, 2.0)),
    ("commands cost twice the time", |spec| commands(spec, 2.0)),
    ("they take one command at a time", |spec| at_once(spec, 1)),
    ("they take 32 commands at once", |spec| at_once(spec, 32)),
    ("they read nothing ahead", |spec| {
        rotating(spec, |spec| {
            spec.ahead_bytes = 0;
            spec.ahead_sequential_bytes = 0;
        })
    }),
    ("they have no write cache", |spec| {
        rotating(spec, |spec| spec.write_cache_bytes = 0)
    }),
];

/// Changes a disk; says whether it is another one now.
///
/// # Errors
/// `Usage` for a change that does not exist.
pub fn apply(change: &str, spec: &mut DiskSpec) -> Result<bool, LabError> {
    let found = CHANGES.iter().find(|(name, _)| *name == change);
    let Some((_, change)) = found else {
        let names: Vec<&str> = CHANGES.iter().map(|(name, _)| *name).collect();
        return Err(LabError::Usage(format!(
            "\"{change}\" is no change of a disk; there are: {}",
            names.join(", ")
        )));
    };
    let before = spec.clone();
    change(spec);
    Ok(*spec != before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset;

    #[test]
    fn every_change_makes_a_disk_and_unknown_ones_are_refused_by_name() {
        for preset in preset::presets() {
            let mut made = 0;
            for (change, _) in CHANGES {
                let mut spec = preset.spec.clone();
                if apply(change, &mut spec).unwrap() {
                    spec.check()
                        .unwrap_or_else(|error| panic!("{} {change}: {error}", preset.name));
                    assert_ne!(spec, preset.spec, "{} {change}", preset.name);
                    made += 1;
                }
            }
            assert!(made >= 4, "{}", preset.name);
        }
        let error = apply("more colours", &mut preset::presets()[0].spec).unwrap_err();
        assert!(
            error.to_string().contains("seeks take half the time"),
            "{error}"
        );
    }
}
