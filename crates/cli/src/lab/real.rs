//! `plexum lab calibrate` and `plexum lab predict`: a real disk, measured by reads alone, beside its simulated twin.

use std::io::Write;
use std::path::Path;

use plexum_daemon::problem::{Code, Problem};
use plexum_lab::calibrate::{self, PROBES, Probe, RealProbe};
use plexum_lab::error::LabError;
use plexum_lab::predict;
use plexum_lab::real::RealDisk;
use plexum_lab::workload::IoRequest;
use serde_json::json;

use super::{Steps, print, problem, show_band};
use crate::args::Common;
use crate::args::lab::{Calibrate, Predict};
use crate::errors::Outcome;
use crate::output::{Screen, object};

/// A probe that says how far it is.
struct Told {
    inner: RealProbe,
    done: u64,
    steps: Steps,
}

impl Told {
    fn step(&mut self) {
        self.done += 1;
        if self.done.is_multiple_of(8) {
            self.steps.tell(self.done, PROBES);
        }
    }
}

impl Probe for Told {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn read_ns(&mut self, offset_bytes: u64, length_bytes: u64) -> Result<f64, LabError> {
        self.step();
        self.inner.read_ns(offset_bytes, length_bytes)
    }

    fn at_once_ns(&mut self, readers: &[Vec<IoRequest>]) -> Result<f64, LabError> {
        self.step();
        self.inner.at_once_ns(readers)
    }
}

fn open(path: &Path, screen: &Screen) -> Result<RealDisk, Problem> {
    let disk = RealDisk::open(path).map_err(|error| problem(&error))?;
    if !disk.is_direct {
        screen.note(format!(
            "{}: reads go through the page cache here; what is measured is memory as much as the disk",
            path.display()
        ));
    }
    Ok(disk)
}

/// Writes a file that is not there yet.
fn write_new(path: &Path, text: &str) -> Result<(), Problem> {
    let told = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => Problem::new(
            Code::WouldDestroy,
            format!("{} exists already", path.display()),
        )
        .hint("nothing is overwritten: give another name, or move it away"),
        _ => Problem::from_io(&error, "writing", &path.display().to_string()),
    };
    let mut file = std::fs::File::create_new(path).map_err(told)?;
    file.write_all(text.as_bytes()).map_err(told)
}

/// Runs `plexum lab calibrate`.
///
/// # Errors
/// `Usage` for a device that cannot be opened or is too small; an output file that exists; a read that failed.
pub fn calibrate(args: &Calibrate, common: &Common, screen: &Screen) -> Outcome {
    let told = |error: LabError| problem(&error);
    if let Some(out) = &args.out
        && out.exists()
    {
        write_new(out, "")?;
    }
    let inner = RealProbe::new(open(&args.device, screen)?);
    if common.dry_run {
        screen.line(format!("would measure {}", args.device.display()));
        for file in args
            .out
            .iter()
            .flat_map(|out| [out.clone(), out.with_extension("svg")])
        {
            screen.line(format!("would write {}", file.display()));
        }
        return Ok(0);
    }
    let size_bytes = inner.size_bytes();
    let mut device = Told {
        inner,
        done: 0,
        steps: Steps::new("measuring: ", screen),
    };
    let figures = calibrate::probe(&mut device);
    device.steps.end();
    let figures = figures.map_err(told)?;
    let spec = calibrate::fit(&figures, size_bytes);
    let text = calibrate::preset_text(&spec, &args.device.display().to_string()).map_err(told)?;
    let model = calibrate::probe_twin(&spec).map_err(told)?;
    screen.object(&object(
        "lab_preset_measured",
        None,
        json!({"device": args.device, "preset": spec}),
    ));
    let table = calibrate::compare(&figures, &model);
    print(&table, "lab_calibration", "text", screen)?;
    let Some(out) = &args.out else {
        screen.line(format!("\n{}", text.trim_end()));
        return Ok(0);
    };
    write_new(out, &text)?;
    let chart = out.with_extension("svg");
    write_new(&chart, &calibrate::chart(&figures, &model, size_bytes))?;
    screen.note(format!(
        "preset: {} (chart: {}); to use it:   plexum lab work random-read --disk {}",
        out.display(),
        chart.display(),
        out.display()
    ));
    Ok(0)
}

/// Runs `plexum lab predict`.
///
/// # Errors
/// `Usage` for a device or preset that cannot be used; a read that failed.
pub fn predict(args: &Predict, screen: &Screen) -> Outcome {
    let disk = open(&args.device, screen)?;
    let steps = Steps::new("running: ", screen);
    let rounds = usize::from(args.rounds);
    let mut tell = |done: usize, all: usize| steps.tell(done as u64, all as u64);
    let seen = predict::predict(&args.disk, &disk, args.seed, rounds, &mut tell);
    steps.end();
    let seen = seen.map_err(|error| problem(&error))?;
    print(
        &predict::table(&seen),
        "lab_prediction",
        &args.format,
        screen,
    )?;
    screen.line("");
    let band = predict::band(&seen);
    show_band(&band, screen);
    Ok(u8::from(args.check && !band.is_reached()))
}
