//! `plexum sim`: the real engine in a made-up world, seed after seed.

use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use plexum_daemon::problem::{Code, Problem};
use plexum_sim::bsd::{Format, Plan};
use plexum_sim::md::scenario::{Options, Scenario};
use plexum_sim::pool::Plan as PoolPlan;
use plexum_sim::reshape::Plan as ReshapePlan;
use plexum_sim::run::Report;
use plexum_sim::seeds::{
    Seeded, run_seeds, run_seeds_of, run_seeds_of_pools, run_seeds_of_reshapes,
};
use plexum_sim::world::Tracing;
use serde_json::json;

use plexum_cli::{Color, Outcome, Screen, Sim, force_parity, object};

/// Seeds when nothing else is asked for.
const SEEDS_DEFAULT: u64 = 100;
/// Most runs to make a failing plan small.
const MINIMISE_RUNS: usize = 120;
/// Lines of its trace that are printed; the JSON has all.
const TRACE_LINES: usize = 40;
/// Time between two lines of progress.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// What is built of the disks.
#[derive(Clone, Copy)]
enum Built {
    Md,
    Set(Format),
    Reshape,
    Pool,
}

impl Built {
    fn named(word: &str) -> Self {
        let set = Format::ALL.into_iter().find(|format| format.name() == word);
        match (set, word) {
            (Some(format), _) => Self::Set(format),
            (None, "reshape") => Self::Reshape,
            (None, "pool") => Self::Pool,
            (None, _) => Self::Md,
        }
    }

    /// The option that asks for it again.
    fn option(self) -> String {
        match self {
            Self::Md => String::new(),
            Self::Set(format) => format!(" --format {}", format.name()),
            Self::Reshape => " --format reshape".to_owned(),
            Self::Pool => " --format pool".to_owned(),
        }
    }
}

/// Runs the command. Exit code 1 on a violation.
///
/// # Errors
/// `Usage` for options that contradict each other.
pub fn run(args: &Sim, screen: &Screen) -> Outcome {
    if args.trace && args.seed.is_none() {
        return Err(Problem::new(Code::Usage, "--trace goes with --seed")
            .hint("for example:   plexum sim --seed 42 --trace"));
    }
    force_parity(&args.parity)?;
    let built = Built::named(&args.format);
    let tracing = if args.trace {
        Tracing::Lines
    } else {
        Tracing::Hash
    };
    let Some(seed) = args.seed else {
        return many(args, built, screen);
    };
    Ok(match built {
        Built::Md => one(&scenario(seed), tracing, screen),
        Built::Set(format) => one(&Plan::new(seed, format), tracing, screen),
        Built::Reshape => one(&ReshapePlan::new(seed), tracing, screen),
        Built::Pool => one(&PoolPlan::new(seed), tracing, screen),
    })
}

/// The scenario of a seed of md arrays.
fn scenario(seed: u64) -> Scenario {
    Scenario::new(seed, &Options::default())
}

/// What a seed does; the exit code.
fn one(plan: &impl Seeded, tracing: Tracing, screen: &Screen) -> u8 {
    let outcome = plan.run(tracing, None);
    let (seed, plan) = (plan.course().seed, plan.to_string());
    let findings: Vec<String> = outcome.findings.iter().map(ToString::to_string).collect();
    let hash = format!("{:016x}", outcome.hash);
    screen.object(&object(
        "sim_seed",
        None,
        json!({"seed": seed, "plan": plan, "findings": findings, "hash": hash,
            "trace": outcome.lines}),
    ));
    screen.line(&plan);
    for line in &outcome.lines {
        screen.line(line);
    }
    screen.line(format!("trace hash {hash}"));
    for finding in &findings {
        screen.line(format!(
            "{} {finding}",
            screen.paint(Color::Red, "VIOLATION")
        ));
    }
    if findings.is_empty() {
        screen.line(format!("seed {seed}: no violation"));
    }
    u8::from(!findings.is_empty())
}

/// Until the seeds or the minutes are over.
struct Limit {
    until: Option<Instant>,
    last_line: Instant,
    shows: bool,
}

impl Limit {
    fn new(args: &Sim, screen: &Screen) -> Self {
        let minutes = args
            .minutes
            .map(|minutes| Duration::from_secs(minutes.saturating_mul(60)));
        Self {
            until: minutes.and_then(|time| Instant::now().checked_add(time)),
            last_line: Instant::now(),
            shows: !screen.is_quiet && !screen.is_json,
        }
    }

    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    fn tell(&mut self, text: impl FnOnce() -> String) {
        if !self.shows || self.last_line.elapsed() < LINE_EVERY {
            return;
        }
        self.last_line = Instant::now();
        if std::io::stderr().is_terminal() {
            plexum_cli::tell(&format!("\r{}\x1b[K", text()));
        } else {
            plexum_cli::tell(&format!("{}\n", text()));
        }
    }

    fn finish(&self) {
        if self.shows && std::io::stderr().is_terminal() {
            plexum_cli::tell("\r\x1b[K");
        }
    }
}

fn many(args: &Sim, built: Built, screen: &Screen) -> Outcome {
    let mut limit = Limit::new(args, screen);
    // With a time limit alone the seeds go on until it is over.
    let seeds = args.seeds.unwrap_or(match args.minutes {
        Some(_) => u64::MAX,
        None => SEEDS_DEFAULT,
    });
    let mut progress = |report: &Report| {
        limit.tell(|| format!("{} seeds, {} violations", report.seeds, report.violations));
        if limit.is_over() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let first = args.from.unwrap_or(0);
    let seeds = first..first.saturating_add(seeds);
    let report = match built {
        Built::Md => run_seeds(seeds, &Options::default(), None, &mut progress),
        Built::Set(format) => run_seeds_of(seeds, format, None, &mut progress),
        Built::Reshape => run_seeds_of_reshapes(seeds, None, &mut progress),
        Built::Pool => run_seeds_of_pools(seeds, &mut progress),
    };
    limit.finish();
    let mut fields = serde_json::to_value(&report).unwrap_or_default();
    screen.line(report.to_string().trim_end());
    if let Some(failure) = report.failures.first() {
        fields["minimised"] = match built {
            Built::Md => minimised(&scenario(failure.seed), screen),
            Built::Set(format) => minimised(&Plan::new(failure.seed, format), screen),
            Built::Reshape => minimised(&ReshapePlan::new(failure.seed), screen),
            Built::Pool => minimised(&PoolPlan::new(failure.seed), screen),
        };
        let of = built.option();
        screen.line(format!(
            "to see it:   plexum sim --seed {}{of} --trace",
            failure.seed
        ));
    }
    screen.object(&object("sim", None, fields));
    // A time limit alone asks for no number of seeds.
    let is_short = args.seeds.is_some() && report.seeds < report.seeds_asked;
    if is_short {
        screen.line(format!(
            "only {} of {} seeds were run",
            report.seeds, report.seeds_asked
        ));
    }
    Ok(u8::from(
        report.violations > 0 || report.seeds == 0 || is_short,
    ))
}

/// Shrinks a failing seed, prints the smallest plan that fails the same way and the end of its trace.
fn minimised(plan: &impl Seeded, screen: &Screen) -> serde_json::Value {
    let seed = plan.course().seed;
    let Some((small, outcome)) = plan.minimised(Tracing::Lines, MINIMISE_RUNS) else {
        return serde_json::Value::Null;
    };
    let start = outcome.lines.len().saturating_sub(TRACE_LINES);
    screen.line(format!("\nseed {seed}, made as small as it still fails:"));
    screen.line(small.to_string().trim_end());
    for line in &outcome.lines[start..] {
        screen.line(line);
    }
    let findings: Vec<String> = outcome.findings.iter().map(ToString::to_string).collect();
    for finding in &findings {
        screen.line(format!(
            "{} {finding}",
            screen.paint(Color::Red, "VIOLATION")
        ));
    }
    json!({"seed": seed, "plan": small.to_string(), "findings": findings, "trace": outcome.lines})
}
