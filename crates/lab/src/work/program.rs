//! A workload by the real program of its name, on something real.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::Work;
use super::job_file::{fio_groups, read_file};
use super::measurement::{Figure, Measurement};
use super::phases::{file_bytes, iozone_runs, processes, writes};
use super::real::{On, wish};
use crate::error::LabError;
use crate::place::{RealPlace, Wish, interrupt};
use crate::program::{self, bonnie, dd, fio, iozone};
use crate::workload::{dd as requests, fio as jobs, iozone as tests};

/// Most reads of random dd: each is a process.
const PROCESSES_MAX: u64 = 100_000;

/// The program that does a workload.
fn program_of(kind: &str) -> Result<&'static str, LabError> {
    match kind {
        "fio" | "random-read" | "random-write" | "mixed" | "sequential-read"
        | "sequential-write" => Ok("fio"),
        "dd-read" | "dd-write" | "random-dd" => Ok("dd"),
        "bonnie++" => Ok("bonnie++"),
        "iozone" => Ok("iozone"),
        other => Err(LabError::Usage(format!(
            "no program is known that does \"{other}\"; leave out --real"
        ))),
    }
}

/// What a program is started with.
struct Prepared<'a> {
    name: &'static str,
    /// What it wants of the place.
    wished: Wish<'a>,
    /// A job file that is handed on as it is.
    handed: Option<String>,
}

/// Nothing is touched.
fn prepare<'a>(on: &On<'a>, work: &Work) -> Result<Prepared<'a>, LabError> {
    work.check()?;
    let name = program_of(&work.kind)?;
    program::find(name)?;
    let is_nbd = on.name.contains("://");
    if is_nbd && name != "fio" {
        return Err(LabError::Usage(format!(
            "{name} knows no NBD; `plexum attach` makes a device or file of the volume"
        )));
    }
    let is_folder = Path::new(on.name).is_dir();
    if !is_folder && matches!(name, "bonnie++" | "iozone") {
        return Err(LabError::Usage(format!(
            "{name} makes files of its own: name a folder after --on"
        )));
    }
    let handed = match work.kind.as_str() {
        // What is given for a part of a place, or for an export, is written anew for it.
        "fio" if !is_nbd && work.range_bytes == 0 => Some(read_file(work)?),
        _ => None,
    };
    let wished = match &handed {
        Some(text) => Wish {
            writes: fio::text_writes(text),
            destroy: on.destroy,
            is_direct: true,
            ..Wish::default()
        },
        None => Wish {
            writes: writes(work)?,
            has_content: is_folder && matches!(work.kind.as_str(), "dd-read" | "random-dd"),
            ..wish(on, work)?
        },
    };
    Ok(Prepared {
        name,
        wished,
        handed,
    })
}

/// What `measure_program` would be refused for before the program starts.
///
/// # Errors
/// As `measure_program`.
pub fn rehearse_program(on: &On, work: &Work) -> Result<(), LabError> {
    let wished = prepare(on, work)?.wished;
    if let Some(size) = RealPlace::rehearse(on.name, wished)? {
        work.used_bytes(on.name, size)?;
    }
    Ok(())
}

/// Runs the real program once.
///
/// # Errors
/// As `measure_on`; `Usage` for a program that is not installed or cannot work there, before anything is touched.
pub fn measure_program(on: &On, work: &Work, seed: u64) -> Result<Measurement, LabError> {
    let Prepared {
        name,
        wished,
        handed,
    } = prepare(on, work)?;
    let is_nbd = on.name.contains("://");
    interrupt::catch()?;
    let place = RealPlace::open(on.name, wished)?;
    let size = place.size_bytes();
    let used = work.used_bytes(on.name, size)?;
    let call = Call {
        on: on.name,
        work,
        place: &place,
        used_bytes: used,
        seed,
    };
    let mut seen = match name {
        "fio" => match handed {
            Some(text) => call.fio_handed(&text),
            None => call.fio(is_nbd),
        },
        "dd" => call.dd(),
        "bonnie++" => call.bonnie(),
        _ => call.iozone(),
    }?;
    seen.fairness = 1.0;
    Ok(seen)
}

struct Call<'a> {
    on: &'a str,
    work: &'a Work,
    place: &'a RealPlace,
    used_bytes: u64,
    seed: u64,
}

/// A job file that is removed again.
struct JobFile(PathBuf);

impl Drop for JobFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Call<'_> {
    /// The folder of ours, or an error.
    fn folder(&self) -> Result<&Path, LabError> {
        let folder = self.place.folder();
        folder.ok_or_else(|| LabError::Bug("there is no folder".to_owned()))
    }

    fn fio(&self, is_nbd: bool) -> Result<Measurement, LabError> {
        let target = match self.place.folder() {
            Some(folder) => fio::Target::Folder(folder),
            None if is_nbd => fio::Target::Nbd(self.on),
            None => fio::Target::File(self.on),
        };
        let (text, names) = if self.work.kind == "fio" {
            let file = jobs::parse(&read_file(self.work)?, Some(self.used_bytes))?;
            let groups = jobs::groups(file.jobs);
            fio_groups(self.work, self.used_bytes, self.seed)?;
            let name = |group: &Vec<jobs::Job>| {
                jobs::group_name(group.iter().map(|job| job.name.as_str()))
            };
            let names = groups.iter().map(name).collect();
            (fio::job_file(&groups, &target), names)
        } else {
            processes(self.work, self.used_bytes, self.seed)?;
            let text = fio::job_file_of(self.work, self.used_bytes, &target);
            (text, vec![self.work.kind.clone()])
        };
        Self::run_fio(&text, &names, &[])
    }

    /// The user's own job file.
    fn fio_handed(&self, text: &str) -> Result<Measurement, LabError> {
        let target = match self.place.folder() {
            Some(folder) => fio::Target::Folder(folder),
            None => fio::Target::File(self.on),
        };
        let (file, notes) = fio::handed_on(text, &target)?;
        // In a folder of ours fio lays its files out before it reads them; nothing else is ever made longer by a
        // reader.
        let is_reader = self.place.folder().is_none() && !fio::text_writes(text);
        let options: &[&str] = if is_reader { &["--readonly"] } else { &[] };
        let mut seen = Self::run_fio(&file, &[], options)?;
        seen.notes = notes;
        Ok(seen)
    }

    fn run_fio(text: &str, names: &[String], options: &[&str]) -> Result<Measurement, LabError> {
        let path = std::env::temp_dir().join(format!("plexum-lab-{}.fio", std::process::id()));
        let told = |error: std::io::Error| LabError::Io(format!("{}: {error}", path.display()));
        let mut file = std::fs::File::create_new(&path).map_err(told)?;
        let job_file = JobFile(path.clone());
        std::io::Write::write_all(&mut file, text.as_bytes()).map_err(told)?;
        let mut command = Command::new("fio");
        command.arg("--output-format=normal,json").args(options);
        command.arg(&job_file.0);
        let printed = program::run(&mut command)?;
        let seen = fio::parse(&printed.out, names)?;
        let [reads, writes] = seen.latencies;
        Ok(Measurement {
            figures: seen.figures,
            reads,
            writes,
            classic: seen.classic,
            elapsed_s: seen.elapsed_s,
            ..Measurement::default()
        })
    }

    fn dd_once(&self, skip: u64, count: u64) -> Result<program::Printed, LabError> {
        let folder = self.place.folder();
        let path = folder.map_or_else(|| PathBuf::from(self.on), |folder| folder.join("data"));
        let path = path.display();
        let mut command = Command::new("dd");
        command.args([
            format!("bs={}", self.work.block_bytes),
            format!("count={count}"),
        ]);
        let mut flags = Vec::new();
        if folder.is_none() && self.place.notes.is_empty() {
            flags.push("direct");
        }
        if self.work.kind == "dd-write" {
            flags.extend(self.work.is_sync.then_some("dsync"));
            command.args(["if=/dev/zero", "conv=notrunc"]);
            command.arg(format!("of={path}"));
        } else {
            command.args(["of=/dev/null".to_owned(), format!("if={path}")]);
            command.arg(format!("skip={skip}"));
        }
        if !flags.is_empty() {
            let side = if self.work.kind == "dd-write" {
                "oflag"
            } else {
                "iflag"
            };
            command.arg(format!("{side}={}", flags.join(",")));
        }
        program::run(&mut command)
    }

    fn dd(&self) -> Result<Measurement, LabError> {
        let work = self.work;
        let (block, count) = (work.block_bytes, work.requests);
        let (bytes, seconds, classic);
        if work.kind == "random-dd" {
            if count > PROCESSES_MAX {
                return Err(LabError::Usage(format!(
                    "random-dd: {count} processes; at most {PROCESSES_MAX} are started"
                )));
            }
            let started = Instant::now();
            let mut sum = 0;
            let mut last = String::new();
            for request in requests::random(block, count, self.used_bytes, self.seed)? {
                last = self.dd_once(request.offset_bytes / block, 1)?.err;
                sum += dd::parse(&last)?.0;
            }
            (bytes, seconds, classic) = (sum, started.elapsed().as_secs_f64(), last);
        } else {
            let operation = crate::workload::Operation::Read;
            drop(requests::sequential(
                operation,
                block,
                count,
                self.used_bytes,
            )?);
            let printed = self.dd_once(0, count)?;
            (bytes, seconds) = dd::parse(&printed.err)?;
            classic = printed.err;
        }
        let rate = |amount: f64| amount / seconds.max(1e-9);
        Ok(Measurement {
            figures: vec![
                Figure::new("requests", rate(bytes as f64 / block as f64), "1/s"),
                Figure::new("rate", rate(bytes as f64 / 1024.0), "KiB/s"),
            ],
            classic,
            elapsed_s: seconds,
            ..Measurement::default()
        })
    }

    fn bonnie(&self) -> Result<Measurement, LabError> {
        let folder = self.folder()?;
        let mib = file_bytes(self.work, self.used_bytes)? >> 20;
        if mib == 0 {
            return Err(LabError::Usage(
                "bonnie++ takes a file of at least 1M".to_owned(),
            ));
        }
        let told = |error: std::io::Error| LabError::Io(format!("{}: {error}", folder.display()));
        let mut command = Command::new("bonnie++");
        let work = self.work;
        let files = match (work.files, work.files_bytes, work.file_folders) {
            (count, 0, 0 | 1) => count.to_string(),
            (count, bytes, folders) => {
                let least = work.files_bytes_min.min(bytes); // the program refuses one above the largest
                format!("{count}:{bytes}:{least}:{}", folders.max(1))
            }
        };
        command.args(["-q", "-n", &files, "-m", "plexum", "-s"]);
        command.arg(mib.to_string());
        // Told nothing of the memory: or it refuses a file that fits there, and many files where there seems to be
        // little.
        command.args(["-r", "0"]);
        command.arg("-d").arg(folder);
        if std::fs::metadata(folder).map_err(told)?.uid() == 0 {
            command.args(["-u", "root"]);
        }
        let started = Instant::now();
        let printed = program::run(&mut command)?;
        let figures = bonnie::parse(&printed.out)?;
        let phases = if self.work.files == 0 { 6 } else { 12 };
        let is_short = figures.len() < phases;
        Ok(Measurement {
            figures,
            classic: printed.err,
            elapsed_s: started.elapsed().as_secs_f64(),
            notes: is_short
                .then(|| {
                    "bonnie++ prints +++++ for phases that were too short: take a larger --range, or more --files"
                        .to_owned()
                })
                .into_iter()
                .collect(),
            ..Measurement::default()
        })
    }

    fn iozone(&self) -> Result<Measurement, LabError> {
        let runs = iozone_runs(self.work, self.used_bytes)?;
        let (file, record) = runs[runs.len() - 1];
        let mut command = Command::new("iozone");
        if self.work.is_auto {
            command.args(["-a", "-g"]).arg(format!("{}k", file >> 10));
        } else {
            command.arg("-s").arg(format!("{}k", file >> 10));
            command.arg("-r").arg(format!("{}k", record >> 10));
        }
        command.arg("-f").arg(self.folder()?.join("iozone"));
        command.args(iozone::CHOICE);
        let started = Instant::now();
        let printed = program::run(&mut command)?;
        let rates = iozone::parse(&printed.out, &runs)?;
        let named = tests::named(&runs).into_iter().zip(&rates);
        Ok(Measurement {
            figures: named
                .map(|(test, rate)| Figure::new(&test, *rate, "KiB/s"))
                .collect(),
            classic: tests::classic(&runs, &rates),
            elapsed_s: started.elapsed().as_secs_f64(),
            ..Measurement::default()
        })
    }
}
