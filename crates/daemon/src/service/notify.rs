//! What the service manager hears of the daemon: that it is ready, what it serves, that it lives, that it ends.
//!
//! Invariants:
//! - the sign of life comes from the thread that owns the volumes, in a turn of its own: a thread that hangs falls
//!   silent, a disk that does not answer silences nobody;
//! - without a service manager nothing is sent, and one that does not read is not waited for.
//!
//! Source: sd_notify(3), systemd.service(5) `WatchdogSec=`.

use std::cell::Cell;
use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::rc::{Rc, Weak};
use std::time::Duration;

use plexum_block::clock::Clock;
use plexum_runtime::Handle;

use super::Service;
use crate::expected::Wanted;

/// The longest time between signs of life.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Signs of life in the time after which the service manager gives up: one that comes late is not missed.
const SIGNS_IN_TIME: u32 = 4;

/// Tells the service manager. Belongs to the daemon's thread.
pub(super) struct Notifier {
    line: Rc<Line>,
    is_ending: Rc<Cell<bool>>,
}

/// The way to the service manager, if there is one.
struct Line(Option<UnixDatagram>);

impl Notifier {
    /// Tells that every volume was tried, and from now on what is served and that the daemon lives.
    pub(super) fn start(handle: &Handle, service: &Rc<Service>) -> Self {
        let notifier = Self {
            line: Rc::new(Line::find()),
            is_ending: Rc::default(),
        };
        if notifier.line.0.is_some() {
            let counts = service.counts();
            notifier.line.tell(&format!("READY=1\n{}", counts.state()));
            let telling = Telling {
                line: Rc::clone(&notifier.line),
                is_ending: Rc::clone(&notifier.is_ending),
                told: counts,
            };
            let _detached = handle.spawn(telling.go_on(handle.clone(), Rc::downgrade(service)));
        }
        notifier
    }

    /// Tells that the daemon is about to end; its state is told no more.
    pub(super) fn stopping(&self) {
        self.is_ending.set(true);
        self.line.tell("STOPPING=1\nSTATUS=stopping all volumes");
    }
}

/// What is told while the daemon runs.
struct Telling {
    line: Rc<Line>,
    is_ending: Rc<Cell<bool>>,
    told: Counts,
}

impl Telling {
    /// A sign of life now and then, and the state when it has changed.
    async fn go_on(mut self, handle: Handle, service: Weak<Service>) {
        let every = sign_every(watchdog());
        loop {
            handle.clock().sleep(every).await;
            if self.is_ending.get() {
                return;
            }
            let Some(counts) = service.upgrade().map(|service| service.counts()) else {
                return;
            };
            self.line.tell("WATCHDOG=1");
            if counts != self.told {
                self.line.tell(&counts.state());
                self.told = counts;
            }
        }
    }
}

/// The time after which the service manager takes this process for dead.
fn watchdog() -> Option<Duration> {
    let limit_us = std::env::var("WATCHDOG_USEC").ok()?.parse().ok()?;
    let is_for_us =
        std::env::var("WATCHDOG_PID").map_or(true, |pid| pid == std::process::id().to_string());
    is_for_us.then_some(Duration::from_micros(limit_us))
}

/// The time between signs of life.
fn sign_every(limit: Option<Duration>) -> Duration {
    limit.map_or(LOOK_EVERY, |limit| LOOK_EVERY.min(limit / SIGNS_IN_TIME))
}

impl Line {
    fn find() -> Self {
        let address = std::env::var_os("NOTIFY_SOCKET");
        Self(address.and_then(|address| connect(&address).ok()))
    }

    /// What cannot be sent at once is dropped: the next sign of life comes soon, and volumes wait for nobody.
    fn tell(&self, states: &str) {
        if let Some(socket) = &self.0 {
            let _ = socket.send(states.as_bytes());
        }
    }
}

/// A path, or with `@` in front a name without a file.
fn connect(address: &OsStr) -> std::io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    match address.as_bytes() {
        [b'@', name @ ..] => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        _ => socket.connect(address)?,
    }
    Ok(socket)
}

/// How many volumes are how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    served: usize,
    waiting: usize,
    stopped: usize,
}

impl Counts {
    fn state(self) -> String {
        let Self {
            served,
            waiting,
            stopped,
        } = self;
        format!("STATUS=volumes: {served} served, {waiting} waiting, {stopped} stopped")
    }
}

impl Service {
    fn counts(&self) -> Counts {
        let absent = self.waiting();
        let stopped = absent.iter().filter(|one| one.wanted == Wanted::Stopped);
        let stopped = stopped.count();
        Counts {
            served: self.served_count(),
            waiting: absent.len() - stopped,
            stopped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_arrives_by_either_kind_of_address_and_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("plexum-notify-{}", std::process::id());
        let by_name = SocketAddr::from_abstract_name(&name).unwrap();
        let managers = [
            UnixDatagram::bind(&path).unwrap(),
            UnixDatagram::bind_addr(&by_name).unwrap(),
        ];
        let addresses = [path.into_os_string(), format!("@{name}").into()];
        for (manager, address) in managers.iter().zip(addresses) {
            let line = Line(Some(connect(&address).unwrap()));
            line.tell("READY=1");
            let mut words = [0; 16];
            let count = manager.recv(&mut words).unwrap();
            assert_eq!(&words[..count], b"READY=1");
            // Nobody reads: the queue fills, and nobody is held up by that.
            for _ in 0..10_000 {
                line.tell("WATCHDOG=1");
            }
        }
    }

    #[test]
    fn several_signs_of_life_come_in_the_time_that_is_given() {
        let s = Duration::from_secs;
        assert_eq!(sign_every(None), LOOK_EVERY);
        assert_eq!(sign_every(Some(s(600))), LOOK_EVERY);
        assert_eq!(sign_every(Some(s(2))), Duration::from_millis(500));
    }

    #[test]
    fn the_state_says_how_many_volumes_are_how() {
        let counts = Counts {
            served: 3,
            waiting: 1,
            stopped: 2,
        };
        let words = "STATUS=volumes: 3 served, 1 waiting, 2 stopped";
        assert_eq!(counts.state(), words);
    }
}
