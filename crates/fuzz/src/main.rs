//! `cargo xtask fuzz [TARGET]... [--seconds N] [--seed S]`.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use plexum_fuzz::driver::{ACCEPTED_PERCENT_MIN, Current, Fault, Run};
use plexum_fuzz::gather::gather;
use plexum_fuzz::targets::{ALL, Target};

const HELP: &str = "\
fuzz [TARGET]... [--seconds N] [--seed S]   each target for N seconds (10)
fuzz --gather                               makes the corpus anew from the recorded images
";

/// A parser that takes so long for one input hangs.
const PATIENCE: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("error: {text}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Result<(), String> {
    let (mut seconds, mut seed, mut targets) = (10, u64::from(std::process::id()), Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut number = || {
            let next = words.next().and_then(|text| text.parse::<u64>().ok());
            next.ok_or(format!("{word} wants a number\n{HELP}"))
        };
        match word.as_str() {
            "--gather" => return gather(),
            "--seconds" => seconds = number()?,
            "--seed" => seed = number()?,
            "--help" | "-h" => {
                print!("{HELP}");
                return Ok(());
            }
            name => {
                let known = ALL.into_iter().find(|target| target.name == name);
                targets.push(known.ok_or_else(|| unknown(name))?);
            }
        }
    }
    if targets.is_empty() {
        targets.extend(ALL);
    }
    let current = Current::default();
    watch(&current);
    println!("seed {seed}");
    for target in targets {
        fuzz(target, seed, Duration::from_secs(seconds), &current)
            .map_err(|fault| keep(target, seed, &fault))?;
    }
    Ok(())
}

fn unknown(name: &str) -> String {
    let names: Vec<&str> = ALL.iter().map(|target| target.name).collect();
    format!("no target {name}; there are {}\n{HELP}", names.join(", "))
}

fn fuzz(target: &Target, seed: u64, time: Duration, current: &Current) -> Result<(), Fault> {
    let begun = Instant::now();
    let mut run = Run::start(target, seed, current.clone())?;
    while begun.elapsed() < time {
        for _ in 0..256 {
            run.step()?;
        }
    }
    let counts = run.counts;
    println!(
        "{:<14} {:>10} inputs  {:>8} a second  {:>3} % accepted  {:>8} bytes at most",
        target.name,
        counts.inputs,
        counts.inputs / begun.elapsed().as_secs().max(1),
        counts.accepted_percent(),
        counts.peak_bytes
    );
    if counts.accepted_percent() < ACCEPTED_PERCENT_MIN {
        return Err(Fault {
            text: format!("fewer than {ACCEPTED_PERCENT_MIN} % were accepted"),
            input: Default::default(),
        });
    }
    Ok(())
}

/// Writes the input down and says where.
fn keep(target: &Target, seed: u64, fault: &Fault) -> String {
    let path = std::env::temp_dir().join(format!("bad-{}-{seed}", target.name));
    let saved = std::fs::write(&path, fault.input.to_file());
    let place = match saved {
        Ok(()) => format!(
            "the input is {}; move it to crates/fuzz/corpus/{} when it is mended",
            path.display(),
            target.name
        ),
        Err(error) => format!("the input cannot be kept: {error}"),
    };
    format!("{} (seed {seed}): {}\n{place}", target.name, fault.text)
}

/// Ends the process, with the input, when a parser hangs.
fn watch(current: &Current) {
    let current = current.clone();
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(PATIENCE / 4);
            let now = current.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((since, input)) = &*now
                && since.elapsed() > PATIENCE
            {
                let path = std::env::temp_dir().join("bad-hang");
                let _ = std::fs::write(&path, input.to_file());
                eprintln!("error: a parser hangs; the input is {}", path.display());
                std::process::exit(1);
            }
        }
    });
}
