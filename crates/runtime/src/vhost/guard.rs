//! Memory of files that others may cut: an access behind the new end is a signal (SIGBUS), which would end the process.
//!
//! While such memory is mapped it is listed here. The handler of the signal puts memory of zeroes in place of all of a
//! listed range, and notes that it is torn; its owner asks that after each access.
//!
//! Invariants:
//! - the handler touches atomics alone, and makes one system call;
//! - a range is listed as long as it is mapped, and no longer;
//! - a signal for another address goes where it went before.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Most ranges at the same time, of the whole process.
const RANGES_MAX: usize = 1024;

struct Range {
    /// 0: free.
    begin: AtomicUsize,
    end: AtomicUsize,
    is_torn: AtomicBool,
}

static RANGES: [Range; RANGES_MAX] = [const {
    Range {
        begin: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        is_torn: AtomicBool::new(false),
    }
}; RANGES_MAX];

/// What was done at this signal before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();
static IS_INSTALLED: Mutex<bool> = Mutex::new(false);

/// A place in the list, until this is dropped.
pub(super) struct Guarded(&'static Range);

impl Guarded {
    /// Lists a range that was just mapped.
    ///
    /// # Errors
    /// There are too many, or the system takes no handler.
    pub(super) fn new(addresses: std::ops::Range<usize>) -> io::Result<Self> {
        install()?;
        for range in &RANGES {
            let free = range.begin.compare_exchange(
                0,
                addresses.start,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            if free.is_ok() {
                range.is_torn.store(false, Ordering::Relaxed);
                range.end.store(addresses.end, Ordering::Release);
                return Ok(Self(range));
            }
        }
        Err(io::Error::other("too many pieces of memory are shared"))
    }

    /// Whether some of it was taken away.
    pub(super) fn is_torn(&self) -> bool {
        self.0.is_torn.load(Ordering::Acquire)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.0.end.store(0, Ordering::Release);
        self.0.begin.store(0, Ordering::Release);
    }
}

/// Installs the handler, once.
fn install() -> io::Result<()> {
    let mut is_installed = IS_INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if *is_installed {
        return Ok(());
    }
    // SAFETY: all zeroes are an action without flags and with an empty set of signals; its handler is set below.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: as above; the call below fills it.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_signal as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: first only asked: the handler must find what was before it from its first signal on.
    if unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before) } != 0 {
        return Err(io::Error::last_os_error());
    }
    BEFORE.get_or_init(|| before);
    // SAFETY: the handler keeps to what a handler may do: see there.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    *is_installed = true;
    Ok(())
}

/// What was done before is done again at the next signal, which comes at once: the instruction is repeated.
fn restore() {
    if let Some(before) = BEFORE.get() {
        // SAFETY: `before` is what the system had given; the call may be made by a handler.
        let _ = unsafe { libc::sigaction(libc::SIGBUS, before, std::ptr::null_mut()) };
    }
}

extern "C" fn on_signal(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the system gives a handler with SA_SIGINFO a valid structure, which for SIGBUS has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    let holds = |range: &&Range| {
        let begin = range.begin.load(Ordering::Acquire);
        begin != 0 && (begin..range.end.load(Ordering::Acquire)).contains(&address)
    };
    let Some(range) = RANGES.iter().find(holds) else {
        return restore();
    };
    let begin = range.begin.load(Ordering::Acquire);
    let length = range.end.load(Ordering::Acquire).saturating_sub(begin);
    let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the range is one of this module's owners', who has mapped it whole and refers to it by address alone; the
    // call may be made by a handler (it is a bare system call in the C library).
    let mapped = unsafe {
        libc::mmap(
            begin as *mut libc::c_void,
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            -1,
            0,
        )
    };
    match mapped == libc::MAP_FAILED {
        true => restore(),
        false => range.is_torn.store(true, Ordering::Release),
    }
}
