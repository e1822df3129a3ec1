//! What holds for all volumes of a host.

use std::time::Duration;

use plexum_nbd::tls::{TlsMode, TlsServer};
use plexum_runtime::IoChoice;

use crate::disk::DiskSettings;
use crate::memory::StateDir;
use crate::runtime_dir::RuntimeDir;

/// What holds for all volumes of a host.
#[derive(Clone, Debug)]
pub struct HostSettings {
    /// How member I/O is done.
    pub io: IoChoice,
    /// How long a thread looks for a client's next request before it sleeps; zero: not at all.
    pub spin: Duration,
    /// Memory for requests.
    pub memory_bytes: u64,
    /// Threads that serve each volume, the main one included.
    pub cores: usize,
    /// TLS: what is shown and who is let in, and whether TCP clients must use it (others may).
    pub tls: Option<(TlsServer, TlsMode)>,
    /// Where sockets go.
    pub runtime_dir: RuntimeDir,
    /// Where events, results and settings are kept for the next start; nowhere for a trial.
    pub state_dir: Option<StateDir>,
    /// Where disks are looked for.
    pub disks: DiskSettings,
}
