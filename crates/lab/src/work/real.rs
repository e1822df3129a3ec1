//! A workload on something real, by our own requests.

use std::time::Duration;

use super::Work;
use super::job_file::{fio_bytes, fio_notes};
use super::measurement::{Figure, Measurement, summarise, without_files};
use super::phases::{
    FILE_BYTES, Phase, bonnie_of, file_bytes, iozone_runs, is_buffered, makes_its_file, phases,
    writes,
};
use super::programs::fio_figures;
use crate::error::LabError;
use crate::place::files::Files;
use crate::place::{Actor, RealPlace, Wish, interrupt};
use crate::workload::bonnie::{self, BonnieFigures};
use crate::workload::{IoRequest, Operation, Outcome, Process, dd, files, iozone, rawio};

/// Length of the writes that give a device content, and how many are under way.
const FILL_BYTES: usize = 1 << 20;
const FILL_DEPTH: usize = 4;

/// What ran, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct On<'a> {
    /// A folder, a device, a file or an NBD URI.
    pub name: &'a str,
    /// The one whose content may be lost.
    pub destroy: Option<&'a str>,
}

/// What the workload wants of the place it runs on.
pub(super) fn wish<'a>(on: &On<'a>, work: &Work) -> Result<Wish<'a>, LabError> {
    let is_folder = std::path::Path::new(on.name).is_dir();
    Ok(Wish {
        writes: writes(work)?,
        destroy: on.destroy,
        range_bytes: needed_bytes(work, is_folder)?,
        is_direct: !(is_folder && is_buffered(&work.kind)),
        has_content: !makes_its_file(&work.kind),
    })
}

/// Bytes that a workload asks for; 0 = as many as usual.
fn needed_bytes(work: &Work, is_folder: bool) -> Result<u64, LabError> {
    Ok(match work.range_bytes {
        0 if is_folder && work.kind.starts_with("dd") => {
            work.block_bytes.saturating_mul(work.requests)
        }
        0 if is_folder && work.kind == "fio" => fio_bytes(work)?,
        bytes => bytes,
    })
}

/// What a workload will run on, and about how many bytes that has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Space {
    /// A folder of a file system.
    Folder(u64),
    /// A device or an export.
    Device(u64),
}

/// Whether a workload fits, before there is what it will run on.
///
/// # Errors
/// `Usage` when it does not, or can only run on simulated disks.
pub(crate) fn check_on(work: &Work, space: Space) -> Result<(), LabError> {
    let (is_folder, size_bytes) = match space {
        Space::Folder(bytes) => (true, bytes),
        Space::Device(bytes) => (false, bytes),
    };
    let used = match (needed_bytes(work, is_folder)?, is_folder) {
        (0, true) if work.is_auto => iozone::auto(0).last().map_or(0, |(file, _)| *file),
        (0, true) => FILE_BYTES,
        (0, false) => size_bytes,
        (bytes, _) => bytes,
    };
    if used > size_bytes {
        return Err(LabError::Usage(format!(
            "the workload wants {used} bytes, the volume will have about {size_bytes}"
        )));
    }
    phases(work, used, 1).map(drop)
}

/// Writes what a workload is about to use of a device or an export, so that it reads no holes.
///
/// # Errors
/// As `measure_on`.
pub(crate) fn fill(on: &On, work: &Work) -> Result<(), LabError> {
    if makes_its_file(&work.kind) {
        return Ok(());
    }
    let wish = Wish {
        writes: true,
        ..wish(on, work)?
    };
    let place = RealPlace::open(on.name, wish)?;
    let used = work.used_bytes(on.name, place.size_bytes())?;
    let requests = (0..used)
        .step_by(FILL_BYTES)
        .map(move |at| IoRequest::write(at, used.min(at + FILL_BYTES as u64) - at));
    let writes = Process {
        depth: FILL_DEPTH,
        requests: Box::new(requests),
    };
    place.run(vec![Actor::of(writes)], None)?;
    let flush = IoRequest {
        operation: Operation::Flush,
        ..IoRequest::read(0, 0)
    };
    let flush = Process::single(std::iter::once(flush));
    place.run(vec![Actor::of(flush)], None).map(drop)
}

/// Whether a workload may run on `name` as far as writing goes, before anything runs.
///
/// # Errors
/// `WouldDestroy` when it would write to what was not named in `destroy`.
pub fn may_write(name: &str, destroy: &[String], work: &Work) -> Result<(), LabError> {
    if destroy.iter().any(|named| named == name)
        || std::path::Path::new(name).is_dir()
        || !writes(work)?
    {
        return Ok(());
    }
    Err(LabError::WouldDestroy(format!(
        "\"{}\" writes, and what is on {name} would be lost: only with destroy = \"{name}\"",
        work.kind
    )))
}

/// What `measure_on` would be refused for before its first request.
///
/// # Errors
/// As `measure_on`.
pub fn rehearse_on(on: &On, work: &Work, seed: u64) -> Result<(), LabError> {
    work.check()?;
    if work.kind != "trace" {
        phases(work, u64::MAX >> 1, seed)?;
    }
    let size = RealPlace::rehearse(on.name, wish(on, work)?)?;
    files_of(work, seed)?;
    match size {
        Some(size) => phases(work, work.used_bytes(on.name, size)?, seed).map(drop),
        None => Ok(()),
    }
}

/// Runs the workload once, by our own requests.
///
/// # Errors
/// `Usage` for a workload that cannot be there and `WouldDestroy` for one that would write to what was not named as
/// the one to be destroyed, before anything is touched; a request that failed; `Interrupted`.
pub fn measure_on(on: &On, work: &Work, seed: u64) -> Result<Measurement, LabError> {
    work.check()?;
    // What is not possible at all is refused before a file is made for it.
    if work.kind != "trace" {
        phases(work, u64::MAX >> 1, seed)?;
    }
    interrupt::catch()?;
    let place = RealPlace::open(on.name, wish(on, work)?)?;
    let size = place.size_bytes();
    let used = work.used_bytes(on.name, size)?;
    let files = files_of(work, seed)?;
    if let (Some(files), Some(folder)) = (&files, place.folder()) {
        files.check(folder)?;
    }
    let mut all = Outcome::default();
    let mut parts = Vec::new();
    for phase in phases(work, used, seed)? {
        let Phase {
            name,
            actors,
            limit_ns,
        } = phase;
        let outcome = place.run(actors, limit_ns.map(Duration::from_nanos))?;
        if !name.is_empty() {
            all.add(&outcome);
            parts.push((name, outcome));
        }
    }
    let mut measurement = summarise(&all, Vec::new());
    show(&mut measurement, work, on.name, used, &parts, seed)?;
    measurement.notes.clone_from(&place.notes);
    if work.kind == "fio" {
        measurement.notes.extend(fio_notes(work)?);
    }
    match (files, place.folder()) {
        (Some(files), Some(folder)) => {
            let phases = files.run(folder)?;
            measurement.add_files(&short(on.name), files.count, phases);
        }
        _ => measurement.notes.extend(without_files(work)),
    }
    Ok(measurement)
}

/// The files of bonnie++'s phases with many of them, where it is asked for these.
fn files_of(work: &Work, seed: u64) -> Result<Option<Files>, LabError> {
    if work.kind != "bonnie++" || work.files == 0 {
        return Ok(None);
    }
    let size_bytes = usize::try_from(work.files_bytes)
        .map_err(|_| LabError::Usage("files are that small that they fit memory".to_owned()))?;
    Ok(Some(Files {
        count: work.files * files::UNIT,
        size_bytes,
        size_bytes_min: usize::try_from(work.files_bytes_min)
            .unwrap_or(size_bytes)
            .min(size_bytes),
        folders: work.file_folders,
        seed,
    }))
}

fn show(
    seen: &mut Measurement,
    work: &Work,
    name: &str,
    used_bytes: u64,
    parts: &[(String, Outcome)],
    seed: u64,
) -> Result<(), LabError> {
    let rates = || {
        parts
            .iter()
            .map(|(_, outcome)| outcome.bytes_per_s() / 1024.0)
    };
    let named = || {
        let pairs = parts.iter().zip(rates());
        pairs.map(|((name, _), rate)| Figure::new(name, rate, "KiB/s"))
    };
    match work.kind.as_str() {
        "rawio" => {
            seen.figures = named().collect();
            let mut pairs = [(0.0, 0.0); 4];
            for (pair, (_, outcome)) in pairs.iter_mut().zip(parts) {
                *pair = (outcome.bytes_per_s() / 1024.0, outcome.requests_per_s());
            }
            seen.classic = rawio::classic(&[(short(name), pairs)]);
        }
        "iozone" => {
            seen.figures = named().collect();
            let rates: Vec<f64> = rates().collect();
            let runs = iozone_runs(work, used_bytes)?;
            seen.classic = iozone::classic(&runs, &rates);
        }
        "bonnie" | "bonnie++" => {
            let file_bytes = file_bytes(work, used_bytes)?;
            let seeks = bonnie_of(work, seed).seek_count;
            let figures = bonnie_figures(parts, file_bytes, seeks);
            seen.figures = figures.list();
            seen.classic = bonnie::classic(&[(short(name), figures)]);
        }
        "fio" => {
            seen.figures.clear();
            for (name, outcome) in parts {
                seen.classic += &fio_figures(name, outcome, &mut seen.figures);
            }
        }
        kind if kind.contains("dd") => {
            for (_, outcome) in parts {
                seen.classic += &dd::classic(outcome);
            }
        }
        _ => {}
    }
    Ok(())
}

/// What fits into the column of a name.
fn short(name: &str) -> String {
    let export = name.split('?').next().unwrap_or(name);
    let last = export.rsplit('/').find(|part| !part.is_empty());
    last.unwrap_or(name).chars().take(8).collect()
}

fn bonnie_figures(parts: &[(String, Outcome)], file_bytes: u64, seeks: u64) -> BonnieFigures {
    let seconds = |name: &str| {
        let part = parts.iter().find(|(part, _)| part == name);
        part.map_or(f64::INFINITY, |(_, outcome)| outcome.seconds())
    };
    let rate = |name: &str| file_bytes as f64 / 1024.0 / seconds(name);
    BonnieFigures {
        file_mib: file_bytes >> 20,
        putc_kib_per_s: None,
        block_write_kib_per_s: rate("block write"),
        rewrite_kib_per_s: rate("rewrite"),
        getc_kib_per_s: None,
        block_read_kib_per_s: rate("block read"),
        seeks_per_s: seeks as f64 / seconds("seeks"),
    }
}
