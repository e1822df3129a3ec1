//! The real server and its real members are ended at random under a load that knows what every sector may hold.
//!
//! `cargo xtask kill --kills N --cuts M --seed S` runs it at length. For each of RAID-1, 10, 5 and 6, with and
//! without lost members, for arrays whose rows move all the time, and for volumes of ZFS pools: N times SIGKILL to
//! the server on files, M times a power cut to members with a volatile cache. The seed decides organisation, losses,
//! requests and coin tosses; the instant of the end is the machine's.

#![allow(clippy::unwrap_used)] // in what the tests share

mod array;
mod book;
mod client;
#[path = "../common/mod.rs"]
mod common;
mod course;
mod dice;
mod load;
mod moving;
mod pooled;
mod service;
mod volatile;

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use array::{Array, Kind, ORGANISATIONS, POOLS, RESHAPED};
use course::{Counts, Course, End, Plan};
use load::open;
use moving::Moving;
use plexum_oracle::{Batch, Expected, Job, Judge};
use pooled::Pooled;
use serde_json::{Value, json};

/// Volumes at the same time.
const COURSES_AT_ONCE: usize = 2;

/// Crashes of each kind and volume without further words.
const KILLS: u64 = 3;
const CUTS: u64 = 2;

/// Kills of each pool, and of each volume whose rows move, without further words; power cuts there take their time, and
/// are asked for.
const LONG_KILLS: u64 = 2;

/// Cuts of members that lie, at most.
const SABOTAGED_CUTS: u64 = 10;

/// Rounds between two lines of progress.
const TELL_EVERY: u64 = 20;

struct Options {
    kills: u64,
    cuts: u64,
    /// Nothing was asked for.
    is_short: bool,
    seed: u64,
    only: String,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "volatile-member") {
        return match volatile::serve(&words[1..]) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        };
    }
    run(&options(&words))
}

/// Words that are not known are those of the test command, which go to all tests.
fn options(words: &[String]) -> Options {
    let value = |name: &str| {
        let at = words.iter().position(|word| word == name)?;
        words.get(at + 1).cloned()
    };
    let number = |name: &str| value(name)?.parse().ok();
    Options {
        kills: number("--kills").unwrap_or(KILLS),
        cuts: number("--cuts").unwrap_or(CUTS),
        is_short: number("--kills").or(number("--cuts")).is_none(),
        seed: number("--seed").unwrap_or_else(|| u64::from(std::process::id())),
        only: value("--only").unwrap_or_default(),
    }
}

fn plans(options: &Options) -> Vec<Plan> {
    let mut plans = Vec::new();
    for (end, rounds) in [(End::Kill, options.kills), (End::Cut, options.cuts)] {
        for organisation in ORGANISATIONS.into_iter().chain(RESHAPED).chain(POOLS) {
            let is_quick = organisation.changes.is_empty() && organisation.kind == Kind::Array;
            let rounds = match end {
                End::Kill if options.is_short && !is_quick => LONG_KILLS,
                End::Cut if options.is_short && !is_quick => 0,
                _ => rounds,
            };
            for loses in [false, true] {
                plans.push(Plan {
                    organisation,
                    end,
                    loses,
                    rounds,
                    seed: options.seed,
                    is_sabotaged: false,
                });
            }
        }
    }
    plans.retain(|plan| plan.rounds > 0 && plan.name().contains(&options.only));
    plans
}

fn run(options: &Options) -> ExitCode {
    let began = Instant::now();
    let plans = plans(options);
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    println!("seed {}", options.seed);
    std::thread::scope(|scope| {
        for _ in 0..COURSES_AT_ONCE {
            scope.spawn(|| {
                while let Some(&plan) = plans.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let result = one(plan);
                    if let Err(text) = &result {
                        println!("{}: VIOLATION: {text}", plan.name());
                    }
                    open(&results).push((plan, result));
                }
            });
        }
    });
    let results = results.into_inner().expect("no thread has panicked");
    let (mut arrays, mut courses, mut wrong) = (Vec::new(), Vec::new(), Vec::new());
    for (plan, result) in results {
        match result {
            Ok((array, counts)) => {
                arrays.push((plan, array));
                courses.push(as_json(&plan, &counts));
            }
            Err(text) => wrong.push(format!("{}: {text}", plan.name())),
        }
    }
    wrong.extend(kernel_faults(&arrays));
    wrong.extend(sabotage_unnoticed(options));
    let report = json!({
        "kind": "kill", "version": 1, "seed": options.seed, "seconds": began.elapsed().as_secs(),
        "courses": courses, "violations": wrong,
    });
    println!("{report}");
    for text in &wrong {
        eprintln!("VIOLATION (seed {}): {text}", options.seed);
    }
    ExitCode::from(u8::from(!wrong.is_empty()))
}

fn one(plan: Plan) -> Result<(Array, Counts), String> {
    let mut tell = |round: u64| {
        if round.is_multiple_of(TELL_EVERY) || round == plan.rounds {
            println!("{}: {round} of {} crashes", plan.name(), plan.rounds);
        }
    };
    match (plan.organisation.kind, plan.organisation.changes) {
        (Kind::Pool, _) => Pooled::start(plan)?.run(&mut tell),
        (Kind::Array, []) => Course::start(plan)?.run(&mut tell),
        (Kind::Array, _) => Moving::start(plan)?.run(&mut tell),
    }
}

/// Members that lie about flushes must be found out, or this program finds nothing at all.
fn sabotage_unnoticed(options: &Options) -> Option<String> {
    let plan = Plan {
        organisation: ORGANISATIONS[0],
        end: End::Cut,
        loses: false,
        rounds: SABOTAGED_CUTS,
        seed: options.seed,
        is_sabotaged: true,
    };
    match one(plan) {
        Ok(_) => Some(format!("{}: nobody noticed", plan.name())),
        Err(text) => {
            println!("{}: noticed, {text}", plan.name());
            None
        }
    }
}

fn as_json(plan: &Plan, counts: &Counts) -> Value {
    json!({
        "organisation": plan.organisation.name,
        "end": plan.name(),
        "loses_members": plan.loses,
        "crashes": counts.crashes,
        "nested": counts.nested,
        "requests": counts.requests,
        "sectors_judged": counts.sectors,
        "losses": counts.losses,
        "refused": counts.refused,
        "forced": counts.forced,
        "in_doubt_bytes": counts.in_doubt_bytes,
    })
}

/// At last the kernel's driver looks at what is left: clean, no bits, its own check finds nothing.
fn kernel_faults(arrays: &[(Plan, Array)]) -> Vec<String> {
    let mut batch = Batch::new();
    let of_md = |(plan, _): &&(Plan, Array)| plan.organisation.kind == Kind::Array;
    for (plan, array) in arrays.iter().filter(of_md) {
        let judge = Judge::new(Expected::Anything);
        batch.add(Job::judge(&plan.name(), &Course::files(array), &judge));
    }
    batch
        .run()
        .iter()
        .flat_map(|report| report.faults())
        .collect()
}
