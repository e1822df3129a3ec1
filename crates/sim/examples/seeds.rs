//! Runs seeds of the real engine and prints the report: `cargo run -p plexum-sim --example seeds -- FIRST COUNT
//! [LEVEL]`. `minutes=N` ends it after so long, however many seeds there were. A finding is exit code 1. `gmirror` or
//! `gvinum` in place of the level runs arrays of these formats, `reshape` md arrays that get another shape, `pool` ZFS
//! pools.

use std::ops::{ControlFlow, Range};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use plexum_engine::mutant::{ALL, Mutant};
use plexum_pool::mutant::ALL as POOL_BUGS;
use plexum_sim::bsd::{Format, Plan};
use plexum_sim::md::Level;
use plexum_sim::md::drill::Drill;
use plexum_sim::md::scenario::{Options, Scenario};
use plexum_sim::mutants::{MutantResult, options_for};
use plexum_sim::pool::Plan as PoolPlan;
use plexum_sim::reshape::Plan as ReshapePlan;
use plexum_sim::run::Report;
use plexum_sim::seeds::{
    Seeded, hunt_on_pools, hunt_with, run_seeds, run_seeds_of, run_seeds_of_pools,
    run_seeds_of_reshapes,
};
use plexum_sim::world::{Outcome, Tracing};

/// Seeds of reshapes, or the trace of the first one.
fn reshapes(seeds: Range<u64>, arguments: &[String]) -> ExitCode {
    if arguments.iter().any(|word| word == "trace") {
        let plan = ReshapePlan::new(seeds.start);
        let outcome = plan.run(Tracing::Lines, None);
        return show(&plan.to_string(), &outcome);
    }
    let mut teller = teller(minutes(arguments));
    finish(&run_seeds_of_reshapes(seeds, None, &mut teller))
}

/// Seeds of pools, or the trace of the first one.
fn pools(seeds: Range<u64>, arguments: &[String]) -> ExitCode {
    if arguments.iter().any(|word| word == "trace") {
        let plan = PoolPlan::new(seeds.start);
        let outcome = plan.run(Tracing::Lines, None);
        return show(&plan.to_string(), &outcome);
    }
    let mut teller = teller(minutes(arguments));
    finish(&run_seeds_of_pools(seeds, &mut teller))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| {
        arguments
            .get(at)
            .and_then(|text| text.parse().ok())
            .unwrap_or(default)
    };
    let (first, count) = (number(0, 0), number(1, 100));
    let is_traced = arguments.iter().any(|word| word == "trace");
    let is_asked = |format: &&Format| arguments.get(2).is_some_and(|word| word == format.name());
    if let Some(format) = Format::ALL.iter().find(is_asked) {
        if is_traced {
            let plan = Plan::new(first, *format);
            let outcome = plan.run(Tracing::Lines, None);
            return show(&plan.to_string(), &outcome);
        }
        let seeds = first..first + count;
        let mut teller = teller(minutes(&arguments));
        return finish(&run_seeds_of(seeds, *format, None, &mut teller));
    }
    if arguments.get(2).is_some_and(|word| word == "reshape") {
        return reshapes(first..first + count, &arguments);
    }
    if arguments.get(2).is_some_and(|word| word == "pool") {
        return pools(first..first + count, &arguments);
    }
    let mut options = Options::default();
    keep_levels(&mut options, &arguments);
    for word in arguments.iter().skip(3) {
        match word.as_str() {
            "no-crashes" => options.has_crashes = false,
            "no-faults" => options.has_faults = false,
            "no-operations" => options.has_operations = false,
            "beyond" => options.beyond_of_256 = 256,
            "within" => options.beyond_of_256 = 0,
            "logs" => options.logs_of_256 = 256,
            "write-backs" => (options.logs_of_256, options.write_backs_of_256) = (256, 256),
            "write-through" => options.write_backs_of_256 = 0,
            "no-logs" => (options.logs_of_256, options.ppls_of_256) = (0, 0),
            "ppls" => (options.logs_of_256, options.ppls_of_256) = (0, 256),
            "shards" => options.shards_of_256 = 256,
            "no-shards" => options.shards_of_256 = 0,
            "small" => options.small_of_256 = 256,
            "no-small" => options.small_of_256 = 0,
            "trace" | "mutants" => {}
            _ if word.starts_with("minutes=") => {}
            _ if word.starts_with("drill=") => {}
            _ if arguments.iter().any(|word| word == "mutants") => {}
            _ => eprintln!("unknown word {word}"),
        }
    }
    options.drill = drill(&arguments);
    assert!(!options.levels.is_empty(), "levels are {:?}", Level::ALL);
    if arguments.iter().any(|word| word == "mutants") {
        return ExitCode::from(u8::from(hunt_mutants(first, count, &arguments) > 0));
    }
    if is_traced {
        let scenario = Scenario::new(first, &options);
        let outcome = scenario.run(Tracing::Lines, None);
        return show(&scenario.to_string(), &outcome);
    }
    let mut teller = teller(minutes(&arguments));
    finish(&run_seeds(
        first..first + count,
        &options,
        None,
        &mut teller,
    ))
}

/// Prints one seed with its trace.
fn show(plan: &str, outcome: &Outcome) -> ExitCode {
    println!("{plan}");
    for line in &outcome.lines {
        println!("{line}");
    }
    for finding in &outcome.findings {
        println!("{finding}");
    }
    ExitCode::from(u8::from(!outcome.findings.is_empty()))
}

/// Prints the report.
fn finish(report: &Report) -> ExitCode {
    println!("{report}");
    ExitCode::from(u8::from(report.violations > 0))
}

/// How long the run may take, as `minutes=N` says.
fn minutes(arguments: &[String]) -> Option<Duration> {
    let minutes = arguments
        .iter()
        .find_map(|word| word.strip_prefix("minutes="))?;
    let minutes: f64 = minutes.parse().expect("minutes are a number");
    Some(Duration::from_secs_f64(minutes * 60.0))
}

/// Says failures as they are found, and when to end.
fn teller(limit: Option<Duration>) -> impl FnMut(&Report) -> ControlFlow<()> {
    let mut told = 0;
    let started = Instant::now();
    move |report| {
        for failure in report.failures.iter().skip(told) {
            eprintln!("seed {}: {}", failure.seed, failure.findings.join("; "));
        }
        told = report.failures.len();
        match limit {
            Some(limit) if started.elapsed() >= limit => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Leaves the levels that the third word names.
fn keep_levels(options: &mut Options, arguments: &[String]) {
    let Some(word) = arguments.get(2) else { return };
    options.levels.retain(|level| match word.as_str() {
        "all" => true,
        "none" => matches!(level, Level::Linear | Level::Raid0),
        "parity" => level.has_parity(),
        "single" => matches!(level, Level::Raid4 | Level::Raid5),
        "copies" => matches!(level, Level::Raid1 | Level::Raid10),
        "redundant" => !matches!(level, Level::Linear | Level::Raid0),
        _ => level.to_string() == *word,
    });
}

/// The drill that is asked for by `drill=NAME`.
fn drill(arguments: &[String]) -> Option<Drill> {
    let name = arguments
        .iter()
        .find_map(|word| word.strip_prefix("drill="))?;
    let drill = Drill::ALL.iter().find(|drill| format!("{drill:?}") == name);
    assert!(drill.is_some(), "drills are {:?}", Drill::ALL);
    drill.copied()
}

/// Hunts all mutants, or those whose names begin with a further word; gives how many survived.
fn hunt_mutants(first: u64, count: u64, arguments: &[String]) -> usize {
    let mut survivors = 0;
    let is_name = |word: &&String| *word != "mutants" && !word.starts_with("drill=");
    let only = arguments.iter().skip(3).find(is_name);
    let unseen = [Mutant::HedgedReadUnproven]; // which has to survive
    for mutant in ALL.iter().chain(&unseen) {
        if only.is_some_and(|name| !format!("{mutant:?}").starts_with(name.as_str())) {
            continue;
        }
        let mut options = options_for(*mutant);
        options.drill = drill(arguments).or(options.drill);
        keep_levels(&mut options, arguments);
        if options.levels.is_empty() {
            continue;
        }
        let result = hunt_with(*mutant, &options, first..first + count);
        survivors += tell(&result);
    }
    for bug in POOL_BUGS {
        if only.is_none_or(|name| format!("{bug:?}").starts_with(name.as_str())) {
            survivors += tell(&hunt_on_pools(*bug, first..first + count));
        }
    }
    survivors
}

/// Says what became of a deliberate bug; 1 when it survived.
fn tell(result: &MutantResult) -> usize {
    let (mutant, seeds, seed) = (&result.mutant, result.seeds, result.seed);
    let finding = result.finding.as_deref().unwrap_or("SURVIVED");
    println!("{mutant:<28} {seeds:>5} seeds {seed:?} {finding}");
    usize::from(seed.is_none())
}
