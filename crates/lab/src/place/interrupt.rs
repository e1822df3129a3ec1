//! Ctrl-C and SIGTERM: the workload ends, and what was made for it is removed. The second one ends the process at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::error::LabError;

static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Catches the signals from now on; as often as one likes.
///
/// # Errors
/// The system refuses.
pub fn catch() -> Result<(), LabError> {
    if ASKED.get().is_some() {
        return Ok(());
    }
    let asked: Arc<AtomicBool> = Arc::default();
    let told = |error: std::io::Error| LabError::Io(format!("signals: {error}"));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the second one ends the process, the first one is noted.
        let (code, flag) = (128 + signal, Arc::clone(&asked));
        signal_hook::flag::register_conditional_shutdown(signal, code, flag).map_err(told)?;
        signal_hook::flag::register(signal, Arc::clone(&asked)).map_err(told)?;
    }
    let _ = ASKED.set(asked);
    Ok(())
}

/// Whether the end was asked for.
#[must_use]
pub fn was_asked() -> bool {
    ASKED
        .get()
        .is_some_and(|asked| asked.load(Ordering::Relaxed))
}

/// An error once the end was asked for.
///
/// # Errors
/// `Interrupted`.
pub fn check() -> Result<(), LabError> {
    if was_asked() {
        return Err(LabError::Interrupted);
    }
    Ok(())
}
