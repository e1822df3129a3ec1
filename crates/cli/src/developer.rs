//! `plexum sim` and `plexum bench`: the program `plexum-developer`, which lies beside this one, carries them out.

use std::os::unix::process::CommandExt;
use std::process::Command;

use plexum_daemon::problem::{Code, Problem};

use crate::errors::Outcome;

/// The other program; the same command line means the same to it.
const PROGRAM: &str = "plexum-developer";

/// Becomes the other program, with the arguments of this one.
///
/// # Errors
/// `NotYet` when it does not lie beside this one.
pub fn run() -> Outcome {
    let own = std::env::current_exe();
    let own = own.map_err(|error| Problem::new(Code::IoError, format!("this program: {error}")))?;
    let other = own.with_file_name(PROGRAM);
    let error = Command::new(&other)
        .args(std::env::args_os().skip(1))
        .exec();
    Err(Problem::new(
        Code::NotYet,
        format!("{}: {error}", other.display()),
    )
    .why("the simulator and the benchmark are a program of their own, beside this one: nobody's disks need them")
    .hint("cargo build --release --package plexum-developer   (in Plexum's sources)"))
}
