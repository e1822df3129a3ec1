//! One guest run: calls `oracle/md-oracle`, at most two at a time in this process.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Condvar, Mutex, PoisonError};

/// Guests side by side: each keeps one core busy.
const GUESTS_MAX: usize = 2;

/// Members a guest takes.
pub(crate) const MEMBERS_MAX: usize = 16;

static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// A place among the running guests; given back when dropped.
struct Permit;

impl Permit {
    fn take() -> Permit {
        let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut running = ENDED
            .wait_while(running, |running| *running >= GUESTS_MAX)
            .unwrap_or_else(PoisonError::into_inner);
        *running += 1;
        Permit
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        ENDED.notify_one();
    }
}

/// Where the script `md-oracle` is.
fn program() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracle/md-oracle")
}

/// Runs `script` with `members` and copies what it left in `$OUT` to `out`.
///
/// # Errors
/// A sentence when the guest could not be run, died or ran out of time.
pub(crate) fn run(
    script: &Path,
    members: &[PathBuf],
    out: &Path,
    limit_s: u64,
) -> Result<(), String> {
    assert!(members.len() <= MEMBERS_MAX, "a guest takes 16 members");
    let _place = Permit::take();
    let output = Command::new(program())
        .arg("--timeout")
        .arg(limit_s.to_string())
        .arg("run")
        .arg("--out")
        .arg(out)
        .arg(script)
        .args(members)
        .output()
        .map_err(|error| format!("{}: {error}", program().display()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => Ok(()),
        Some(124) => Err(format!("the guest ran out of its {limit_s} s\n{errors}")),
        Some(code) => Err(format!("md-oracle ended with {code}\n{errors}")),
        None => Err(format!("md-oracle was killed\n{errors}")),
    }
}
