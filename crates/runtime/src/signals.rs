//! SIGTERM and SIGINT as a future.
//!
//! SIGPIPE needs nothing: Rust programs start with it ignored, and sockets send with `NOSIGNAL`.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::PollFlags;
use rustix::net::RecvFlags;
use signal_hook::SigId;
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::low_level::{pipe, unregister};

use crate::lock::OpenFile;
use crate::{Core, Handle};

/// A request to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSignal {
    /// SIGINT: somebody typed Ctrl-C.
    Interrupt,
    /// SIGTERM: a service manager or `kill`.
    Terminate,
}

/// Catches SIGTERM and SIGINT as long as it lives. The second signal ends the process at once (exit code 128 + its
/// number), so that a clean stop that hangs can be ended by hand.
///
/// One for each process: signals belong to the process, not to the thread.
pub struct StopSignals {
    core: Rc<Core>,
    bell: Arc<OpenFile>,
    was_interrupted: Arc<AtomicBool>,
    ids: Vec<SigId>,
}

impl StopSignals {
    /// Starts catching.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn new(handle: &Handle) -> io::Result<Self> {
        let (bell, ringer) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        let mut signals = Self {
            core: Rc::clone(&handle.core),
            bell: Arc::new(OwnedFd::from(bell).into()),
            was_interrupted: Arc::default(),
            ids: Vec::new(),
        };
        let is_second = Arc::new(AtomicBool::new(false));
        let interrupted = Arc::clone(&signals.was_interrupted);
        // Actions of one signal run in the order of their registration: end if it is the second, note that there
        // was one, note which, ring.
        for signal in [SIGINT, SIGTERM] {
            let (code, flag) = (128 + signal, Arc::clone(&is_second));
            let shutdown = signal_hook::flag::register_conditional_shutdown(signal, code, flag)?;
            let note = signal_hook::flag::register(signal, Arc::clone(&is_second))?;
            signals.ids.extend([shutdown, note]);
            if signal == SIGINT {
                let which = signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
                signals.ids.push(which);
            }
            signals
                .ids
                .push(pipe::register(signal, ringer.try_clone()?)?);
        }
        Ok(signals)
    }

    /// Waits for the first signal.
    pub async fn next(&self) -> StopSignal {
        while rustix::net::recv(&self.bell, &mut [0_u8; 8], RecvFlags::empty()).is_err() {
            self.core.ready(&self.bell, PollFlags::IN).await;
        }
        if self.was_interrupted.load(Ordering::SeqCst) {
            StopSignal::Interrupt
        } else {
            StopSignal::Terminate
        }
    }
}

impl Drop for StopSignals {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            unregister(id);
        }
    }
}

/// A write beyond the process's limit of file sizes shall be an error, not the end of the process (SIGXFSZ).
pub(crate) fn survive_file_size_limit() {
    // Without descriptors or memory this fails; then the limit kills as it does by default.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
}
