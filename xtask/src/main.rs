//! What the repository checks and makes about itself: `cargo xtask WORD`, or `just WORD` where just is installed.
#![forbid(unsafe_code)]

mod beside_md;
mod cargo;
mod ci;
mod flame;
mod fresh;
mod instructions;
mod layouts;
mod mutants;
mod nightly;
mod package;
mod picture;
mod ratchets;
mod source;
mod suite;
mod tidy;
mod tree;
mod way;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
cargo xtask WORD

  check       formatting, lints and the rules of the house
  tidy        the rules of the house alone
  ratchets [--write|--places]   figures of the house that may only get better, beside the committed ones
  suite [WORD]...   all test programs, some side by side: those whose source's path has a WORD in it
  test [...]  all tests, one program after the other; arguments go to cargo test
  ci          what CI runs, nothing else
  sim [...]   the simulator, optimised: `plexum sim`; --seed S --trace shows one run
  hunt [NAME]  every deliberate bug of the engine, or those whose name begins so: each must be found within 1,000 seeds
  fresh MINUTES   seeds of the simulator that nobody has met before, on every processor
  nightly [STEP]...   what takes minutes to hours, step by step: whole Debian systems, long kills, fuzzing, seeds
  kill [...]  real servers killed, real members cut off: --kills N --cuts M --seed S [--only PART]
  fuzz [...]  damaged input for every parser: [TARGET]... --seconds N --seed S
  bench [...] the benchmark, optimised: `plexum bench`
  mutants [FILE or FOLDER]...   every mutant of state and intent, or of files of one crate, in one build: [--seeds N] [--fresh]
                                [--again] [--tests WORD] [--report]
  instructions [--write]        instructions a request in the engine, counted by callgrind, beside the committed ones
  beside-md [LEVEL]... [WAY]...   instructions a request of block devices (ublk, nbd, fuse) beside the kernel's md, in a guest
  flame PATH  a flame graph of one path of crates/engine/examples/hot.rs: flame raid5 null bitmap write 4096 32 random 3000000 > flame.svg
  way [--write]   the way of one write through the program, recorded by gdb, beside the one in ARCHITECTURE.md
  package [deb] [static] [oci]  what is given to people, optimised, in target/package: a Debian package, a program that
              needs nothing of the system, an image of it
  gen         tables of on-disk layouts in docs/formats.md
  picture     a terminal's lines as an SVG: plexum demo | cargo xtask picture > docs/demo.svg
  docs        documentation of all crates, in target/doc
";

/// The harness is a test that is a program of its own.
const KILL: [&str; 7] = [
    "test",
    "--release",
    "--package",
    "plexum-cli",
    "--test",
    "kill",
    "--",
];

/// The first seed, the most seeds for each bug, and on which levels.
const HUNT: [&str; 12] = [
    "run",
    "--release",
    "--locked",
    "--package",
    "plexum-sim",
    "--example",
    "seeds",
    "--",
    "0",
    "1000",
    "all",
    "mutants",
];

const FUZZ: [&str; 5] = ["run", "--release", "--package", "plexum-fuzz", "--"];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let root = root();
    let outcome = match words.split_first() {
        Some((&"check", [])) => ci::check(&root),
        Some((&"tidy", [])) => tidy::run(&root),
        Some((&"test", rest)) => ci::cargo(&root, &[&["test", "--workspace"], rest].concat()),
        Some((&"suite", rest)) => suite::run(&root, rest),
        Some((&"ci", [])) => ci::run(&root),
        Some((&("sim" | "bench"), _)) => plexum(&root, &words),
        Some((&"hunt", rest)) => ci::cargo(&root, &[&HUNT, rest].concat()),
        Some((&"fresh", rest)) => fresh::run(&root, rest),
        Some((&"nightly", rest)) => nightly::run(&root, rest),
        Some((&"kill", rest)) => ci::cargo(&root, &[&KILL, rest].concat()),
        Some((&"fuzz", rest)) => ci::cargo(&root, &[&FUZZ, rest].concat()),
        Some((&"mutants", rest)) => mutants::run(&root, rest),
        Some((&"instructions", rest)) => instructions::run(&root, rest),
        Some((&"beside-md", rest)) => beside_md::run(&root, rest),
        Some((&"ratchets", rest)) => ratchets::run(&root, rest),
        Some((&"flame", rest)) => flame::run(&root, rest),
        Some((&"way", rest)) => way::run(&root, rest),
        Some((&"package", rest)) => package::run(&root, rest),
        Some((&"gen", [])) => generate(&root),
        Some((&"picture", [])) => picture::run(),
        Some((&"docs", [])) => ci::documentation(&root),
        None | Some((&("help" | "--help" | "-h"), _)) => {
            print!("{HELP}");
            Ok(())
        }
        Some(_) => Err(format!("no such word: {}\n\n{HELP}", words.join(" "))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the command itself, optimised.
fn plexum(root: &Path, words: &[&str]) -> Result<(), String> {
    let run = ["run", "--release", "--package", "plexum-developer", "--"];
    ci::cargo(root, &[&run, words].concat())
}

/// Writes what is made from the code.
fn generate(root: &Path) -> Result<(), String> {
    let page = layouts::page(&tree::Tree::read(root)?);
    std::fs::write(root.join(layouts::PAGE), page)
        .map_err(|error| format!("{}: {error}", layouts::PAGE))
}

/// The repository's root.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent()
        .expect("xtask is a folder of the repository")
        .to_owned()
}
