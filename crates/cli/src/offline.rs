//! Commands that work on members without a server: their runtime, and opening without a change.

use plexum_daemon::open::{AnyDevice, MemberWord};
use plexum_daemon::problem::{Code, Problem};
use plexum_runtime::file::OpenOptions;
use plexum_runtime::{IoChoice, Runtime};

/// A runtime for offline work: a few transfers, so threads are as good as a ring.
///
/// # Errors
/// `IoError` when the process is out of resources.
pub fn runtime() -> Result<Runtime, Problem> {
    Runtime::new(IoChoice::Threads).map_err(|error| Problem::new(Code::IoError, error.to_string()))
}

/// Opens members as for writing, and writes nothing: what a dry run of a change of what is on them is refused for.
///
/// # Errors
/// Of opening; `Busy`.
pub fn rehearse_members(members: &[String]) -> Result<(), Problem> {
    let mut runtime = runtime()?;
    let handle = runtime.handle();
    handle.rehearse();
    runtime.block_on(async {
        let mut open = Vec::new();
        for member in members {
            let word = MemberWord::parse(member);
            open.push(AnyDevice::open(&handle, &word, &OpenOptions::read_write()).await?);
        }
        Ok(())
    })
}
