//! Connections of a server: how many there may be, and what has to be done before its time is over.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use plexum_block::clock::Clock;

use crate::flag::Flag;
use crate::transport::Transport;

/// How many connections there may be at the same time.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Of all addresses.
    pub all_max: usize,
    /// Of one address.
    pub per_address_max: usize,
}

/// The connections of a server.
pub struct Connections {
    limits: ConnectionLimits,
    all: Cell<usize>,
    /// Addresses with connections, and how many.
    addresses: RefCell<BTreeMap<IpAddr, usize>>,
}

/// A connection, counted until this is dropped.
pub struct Connected<'a> {
    connections: &'a Connections,
    address: Option<IpAddr>,
}

impl Connections {
    /// None yet.
    #[must_use]
    pub fn new(limits: ConnectionLimits) -> Self {
        Self {
            limits,
            all: Cell::new(0),
            addresses: RefCell::default(),
        }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.all.get()
    }

    /// Counts one more, of an address when it has one.
    ///
    /// # Errors
    /// The limit that is reached.
    pub fn enter(&self, address: Option<IpAddr>) -> Result<Connected<'_>, usize> {
        if self.all.get() >= self.limits.all_max {
            return Err(self.limits.all_max);
        }
        if let Some(address) = address {
            let mut addresses = self.addresses.borrow_mut();
            let count = addresses.entry(address).or_default();
            if *count >= self.limits.per_address_max {
                return Err(self.limits.per_address_max);
            }
            *count += 1;
        }
        self.all.set(self.all.get() + 1);
        Ok(Connected {
            connections: self,
            address,
        })
    }
}

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        let Connections { all, addresses, .. } = self.connections;
        all.set(all.get() - 1);
        let Some(address) = self.address else {
            return;
        };
        let mut addresses = addresses.borrow_mut();
        if let Some(count) = addresses.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                addresses.remove(&address);
            }
        }
    }
}

/// What became of something that had a time limit.
#[derive(Debug)]
pub enum InTime<R> {
    /// It has ended.
    Done(R),
    /// Its time was over, and the stream was closed.
    Late,
    /// The server stops, and the stream was closed.
    Stopped,
}

/// Waits for `work` on a stream, which is closed when it takes too long or the server stops: nothing is dropped while
/// the transport works on it.
pub async fn in_time<T: Transport, R>(
    transport: &T,
    clock: &impl Clock,
    limit: Duration,
    stopped: &Flag,
    work: impl Future<Output = R>,
) -> InTime<R> {
    let mut limit = pin!(clock.sleep(limit));
    let mut stopped = pin!(stopped.wait());
    let mut work = pin!(work);
    let (mut is_late, mut is_closed) = (false, false);
    poll_fn(|cx| {
        if !is_closed {
            is_late = limit.as_mut().poll(cx).is_ready();
            is_closed = is_late || stopped.as_mut().poll(cx).is_ready();
            if is_closed {
                transport.close();
            }
        }
        match work.as_mut().poll(cx) {
            Poll::Ready(_) if is_late => Poll::Ready(InTime::Late),
            Poll::Ready(_) if is_closed => Poll::Ready(InTime::Stopped),
            Poll::Ready(result) => Poll::Ready(InTime::Done(result)),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
