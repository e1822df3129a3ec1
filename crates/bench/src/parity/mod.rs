//! Group `parity`: the kernels that run here beside ISA-L and SnapRAID, on the same shapes.
//!
//! GB/s of data by the thread's CPU time. Warm: one stripe again and again; cold: 256 MiB of stripes in turn. Blocks
//! lie at page offsets; those of 256 KiB lie as in SnapRAID's own speed test, 1,792 bytes further. ISA-L is measured by
//! a small C program that is compiled here (`isa_l.c`), SnapRAID, which has nothing wider than AVX2, by its own speed
//! test.

mod shapes;

use std::path::{Path, PathBuf};
use std::process::Command;

use plexum_parity::{Kernel, Kernels, chosen};

use crate::compare::{Probe, Reading, Role, Samples, take_turns};
use crate::folder::TemporaryFolder;
use crate::process::{need_program, output};
use crate::{BenchError, BenchOptions, Progress};
use shapes::{SHAPES, Shape};

const ISA_L: &str = "isa-l";
const ISA_L_PROGRAM: &str = include_str!("isa_l.c");

/// Milliseconds of each of the many measurements of a round.
const MILLIS_MAX: u64 = 40;

/// Measures everybody by turns.
pub(crate) fn measure(
    options: &BenchOptions,
    samples: &mut Samples,
    progress: &mut Progress<'_>,
) -> Result<(), BenchError> {
    let place = TemporaryFolder::make(options)?;
    let millis = options.millis.min(MILLIS_MAX);
    let mut probes: Vec<Probe<'_>> = Vec::new();
    for shape in &SHAPES {
        let kernels = if shape.is_avx2 {
            Kernels::of(Kernel::Avx2)
        } else {
            Some(chosen())
        };
        let Some(kernels) = kernels else {
            samples.skip("plexum", &shape.name("XOR"), "no AVX2 here");
            continue;
        };
        probes.push(probe("plexum", Role::Plexum, move || {
            Ok(shapes::measure(kernels, shape, millis))
        }));
    }
    match compile(&place.folder("isa-l")?) {
        Ok(program) => probes.push(probe(ISA_L, Role::Peer, move || {
            let text = output(Command::new(&program).arg(millis.to_string()))?;
            Ok(read_isa_l(&text))
        })),
        Err(error) => samples.skip(ISA_L, "parity", error.to_string()),
    }
    match need_program("snapraid") {
        Ok(program) => probes.push(probe("snapraid", Role::Peer, move || {
            let text = output(Command::new(&program).arg("-T"))?;
            let readings = read_snapraid(&text);
            let held = readings
                .iter()
                .map(|(metric, unit, figure)| (format!("{metric}, AVX2"), *unit, *figure));
            Ok(held.chain(readings.iter().cloned()).collect())
        })),
        Err(error) => samples.skip("snapraid", "parity", error.to_string()),
    }
    let mut all = Samples::default();
    take_turns("parity", probes, options.rounds, &mut all, progress);
    all.split_limits(samples, "read only", |limit| {
        let operations = [
            "XOR",
            "P+Q",
            "P+Q+R",
            "recover 1",
            "recover 2",
            "recover data and P",
        ];
        operations
            .map(|operation| limit.replace("read only", operation))
            .to_vec()
    });
    Ok(())
}

fn probe<'a>(
    name: &str,
    role: Role,
    measure: impl FnMut() -> Result<Vec<Reading>, BenchError> + 'a,
) -> Probe<'a> {
    Probe {
        name: name.to_owned(),
        role,
        task: "parity".to_owned(),
        measure: Box::new(measure),
    }
}

/// The program that measures ISA-L.
fn compile(folder: &Path) -> Result<PathBuf, BenchError> {
    let compiler = need_program("cc")?;
    let (source, program) = (folder.join("isa_l.c"), folder.join("isa_l"));
    std::fs::write(&source, ISA_L_PROGRAM)
        .map_err(|error| BenchError(format!("{}: {error}", source.display())))?;
    let mut compile = Command::new(compiler);
    compile.args(["-O3", "-march=native", "-o"]).arg(&program);
    output(compile.arg(&source).arg("-lisal"))
        .map_err(|_| BenchError("libisal-dev is not installed".to_owned()))?;
    Ok(program)
}

/// Lines of a name, a tab and a figure.
fn read_isa_l(text: &str) -> Vec<Reading> {
    text.lines()
        .filter_map(|line| {
            let (metric, figure) = line.split_once('\t')?;
            Some((metric.to_owned(), "GB/s", figure.parse().ok()?))
        })
        .collect()
}

/// The best figure of each generator in SnapRAID's own speed test: MB/s of data, 8 blocks of 256 KiB, warm.
fn read_snapraid(text: &str) -> Vec<Reading> {
    let generators = [("gen1", "XOR"), ("gen2", "P+Q"), ("gen3", "P+Q+R")];
    generators
        .iter()
        .filter_map(|(word, operation)| {
            let line = text
                .lines()
                .find(|line| line.trim_start().starts_with(word))?;
            let figures = line
                .split_whitespace()
                .filter_map(|word| word.parse::<f64>().ok());
            let best = figures.max_by(f64::total_cmp)?;
            Some((format!("{operation} of 8, 256K warm"), "GB/s", best / 1e3))
        })
        .collect()
}

/// What a shape is called beside the operation.
impl Shape {
    fn name(&self, operation: &str) -> String {
        let (kib, heat) = (
            self.block_bytes >> 10,
            if self.is_cold { "cold" } else { "warm" },
        );
        let end = if self.is_avx2 { ", AVX2" } else { "" };
        format!("{operation} of {}, {kib}K {heat}{end}", self.blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_figure_of_a_line_of_snapraid_counts() {
        let text = "RAID functions\n    gen1    avx2           11764   17593   32182\n    gen2   avx2   3320\n";
        let readings = read_snapraid(text);
        assert_eq!(
            readings[0],
            ("XOR of 8, 256K warm".to_owned(), "GB/s", 32.182)
        );
        assert_eq!(readings.len(), 2);
    }

    #[test]
    fn goals_of_this_group_name_what_is_measured_here() {
        let is_measured = |metric: &str| {
            SHAPES.iter().any(|shape| {
                let mut operations = shapes::OPERATIONS.iter();
                operations.any(|operation| shape.name(operation) == metric)
            })
        };
        for goal in crate::goals::GOALS
            .iter()
            .filter(|goal| goal.group == "parity")
        {
            assert!(is_measured(goal.metric), "{}", goal.metric);
        }
    }
}
