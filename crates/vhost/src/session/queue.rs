//! A queue: what its guest offers is taken, read, and given to a worker.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use plexum_block::clock::Clock;
use plexum_front::export::Export;
use plexum_front::memory::{Memory, MemoryError, Part, copy_of};

use super::work::{Origin, Task};
use super::{PART_CONTROL, PART_LEAVE, Session};
use crate::ask::{Ask, HEAD_BYTES, Status, identity};
use crate::chain::{Chain, Scattered, length_of};
use crate::peer::{Call, Kick, Peer};
use crate::ring::RingError;

/// Why a queue is looked at.
enum Wake {
    Kicked,
    Changed,
    /// Its event will never tell of anything again.
    Deaf,
}

impl<P: Peer, E: Export, C: Clock> Session<'_, P, E, C> {
    /// The life of a queue.
    pub(super) async fn serve_queue(&self, index: usize) {
        loop {
            loop {
                self.peer.charge(0).await; // a guest that always asks for more has its turn, and no more
                let Some(head) = self.next_head(index) else {
                    break;
                };
                self.begin(Origin { index, head }).await;
            }
            let (kick, changes) = {
                let machine = self.machine.borrow();
                match machine.queues.get(index) {
                    Some(queue) if queue.is_running() => (queue.kick.clone(), Some(queue.changes)),
                    queue => (None, queue.map(|queue| queue.changes)),
                }
            };
            if let Wake::Deaf = self.next_wake(index, kick, changes).await {
                (self.tell)(format!("queue {index} tells of no work any more"));
                self.next_wake(index, None, changes).await;
            }
        }
    }

    async fn next_wake(
        &self,
        index: usize,
        kick: Option<Rc<P::Kick>>,
        changes: Option<u64>,
    ) -> Wake {
        let mut kicked = pin!(async {
            match &kick {
                Some(kick) => kick.wait().await,
                None => std::future::pending().await,
            }
        });
        poll_fn(|cx| {
            let machine = self.machine.borrow();
            let now = machine.queues.get(index).map(|queue| queue.changes);
            if now != changes {
                return Poll::Ready(Wake::Changed); // who changes it wakes this part
            }
            drop(machine);
            match kicked.as_mut().poll(cx) {
                Poll::Ready(Ok(())) => Poll::Ready(Wake::Kicked),
                Poll::Ready(Err(_)) => Poll::Ready(Wake::Deaf),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    /// The next head, when there is one and it may be begun.
    fn next_head(&self, index: usize) -> Option<u16> {
        if self.is_cut.get() {
            return None;
        }
        let machine = &mut *self.machine.borrow_mut();
        let queue = machine.queues.get_mut(index)?;
        // What an earlier session has left is also done for a ring that is to be stopped.
        let may_go_on = queue.ring.is_some() && !queue.is_broken;
        if let (Some(head), true) = (queue.left.front().copied(), may_go_on) {
            queue.left.pop_front();
            self.under_way.set(self.under_way.get() + 1);
            return Some(head);
        }
        if !queue.is_running() || self.is_leaving.get() {
            return None;
        }
        let (ring, table) = (queue.ring.as_mut()?, &machine.table);
        let taken = ring.want_no_kicks(table).and_then(|()| {
            loop {
                match ring.take(table) {
                    Ok(None) if ring.want_kicks(table)? => {}
                    other => break other,
                }
            }
        });
        let head = match taken {
            Ok(head) => head?,
            Err(error) => {
                queue.break_off();
                self.tell_broken(index, &error);
                return None;
            }
        };
        self.under_way.set(self.under_way.get() + 1);
        let turn = queue.next_turn;
        queue.next_turn = turn.wrapping_add(1);
        if let Some(record) = machine.record(index) {
            let _ = record.mark(index, head, turn); // a record that is gone is of no use to anybody
        }
        Some(head)
    }

    fn tell_broken(&self, index: usize, error: &RingError) {
        (self.tell)(format!("queue {index} is no longer worked on: {error}"));
    }

    /// Reads a request and gives it to a worker, or answers it at once.
    async fn begin(&self, origin: Origin) {
        let read = self.read(origin);
        let (chain, ask) = match read {
            Ok(read) => read,
            Err(error) => {
                let machine = &mut *self.machine.borrow_mut();
                let queue = &mut machine.queues[origin.index];
                if let Some(ring) = &mut queue.ring {
                    ring.abandon(origin.head);
                }
                queue.break_off();
                self.forget_head();
                self.tell_broken(origin.index, &error);
                return;
            }
        };
        let ask = match ask {
            Ok(Ask::Identity) => return self.tell_identity(origin, &chain),
            Ok(ask) => ask,
            Err(status) => return self.answer(origin, &chain, status, 0),
        };
        let tag = {
            let _turn = self.admission.lock().await;
            self.client.requests().admit(ask.data_bytes()).await
        };
        if self.is_cut.get() {
            return; // the next session does it
        }
        let data = match &ask {
            Ask::Write(range) => {
                let count = range.length_bytes as usize; // at most a largest request
                self.peer.charge(count).await;
                let machine = self.machine.borrow();
                let part = Part {
                    offset_bytes: HEAD_BYTES,
                    count,
                };
                let memory = Scattered::new(&machine.table, &chain.readable, part);
                let copied = memory.ok_or(MemoryError::Gone);
                copied
                    .and_then(|memory| copy_of(&memory, self.pool))
                    .map(Some)
            }
            _ => Ok(None),
        };
        let writes_through = self.machine.borrow().writes_through();
        match data {
            Ok(data) => self.start(Task {
                origin,
                chain,
                ask,
                data,
                tag: Some(tag),
                writes_through,
            }),
            Err(_) => self.answer(origin, &chain, Status::Failed, 0),
        }
    }

    /// The chain of a head, and what it asks for.
    #[allow(clippy::type_complexity)] // an error of the ring, or one that the guest is told
    fn read(&self, origin: Origin) -> Result<(Chain, Result<Ask, Status>), RingError> {
        let machine = self.machine.borrow();
        let ring = machine.queues[origin.index].ring.as_ref();
        let ring = ring.expect("a ring with a head under way is there");
        let chain = Chain::collect(ring, &machine.table, origin.head)?;
        if length_of(&chain.writable) == 0 {
            let (head, what) = (origin.head, "there is no room for its answer");
            return Err(RingError::BadChain { head, what });
        }
        if length_of(&chain.readable) < HEAD_BYTES as u64 {
            let (head, what) = (origin.head, "it is shorter than a request");
            return Err(RingError::BadChain { head, what });
        }
        let ask = Ask::parse(&chain, &machine.table, &self.export.info());
        Ok((chain, ask))
    }

    fn tell_identity(&self, origin: Origin, chain: &Chain) {
        let bytes = identity(&self.export.info().name);
        let part = Part {
            offset_bytes: 0,
            count: bytes.len(),
        };
        let is_stored = {
            let machine = self.machine.borrow();
            let memory = Scattered::new(&machine.table, &chain.writable, part);
            memory.is_some_and(|memory| memory.store(0, &bytes).is_ok())
        };
        match is_stored {
            true => self.answer(origin, chain, Status::Ok, bytes.len() as u32),
            false => self.answer(origin, chain, Status::Failed, 0),
        }
    }

    /// Gives a request back to its guest, of whose buffers `filled_bytes` were written.
    pub(super) fn answer(&self, origin: Origin, chain: &Chain, status: Status, filled_bytes: u32) {
        if self.is_cut.get() {
            return; // the next session does it again
        }
        let Origin { index, head } = origin;
        let machine = &mut *self.machine.borrow_mut();
        let place = length_of(&chain.writable) - 1;
        let part = Part {
            offset_bytes: usize::try_from(place).unwrap_or(usize::MAX),
            count: 1,
        };
        let memory = Scattered::new(&machine.table, &chain.writable, part);
        // A guest whose memory is not there gets its head back, and nothing in it.
        let is_told = memory.is_some_and(|memory| memory.store(0, &[status.byte()]).is_ok());
        let written_bytes = if is_told { filled_bytes + 1 } else { 0 };
        if let Some(record) = machine.record(index) {
            let _ = record.announce(index, head);
        }
        let queue = &mut machine.queues[index];
        let ring = queue.ring.as_mut();
        let ring = ring.expect("a ring with a head under way is there");
        let given = ring.give_back(&machine.table, head, written_bytes);
        let used = ring.next_used();
        if let Err(error) = given {
            queue.break_off();
            self.tell_broken(index, &error);
        } else if let Some(record) = machine.record(index) {
            let _ = record.unmark(index, (head, used));
        }
        self.forget_head();
        let mut given_back = self.given_back.borrow_mut();
        if !given_back.contains(&index) {
            given_back.push(index);
        }
    }

    /// A head is under way no more.
    fn forget_head(&self) {
        self.under_way.set(self.under_way.get() - 1);
        self.parts.wake(PART_CONTROL); // which may wait for the last one of a ring
        if self.is_leaving.get() {
            self.parts.wake(PART_LEAVE);
        }
    }

    /// Tells guests of what was given back since, as far as they want to know.
    pub(super) fn tell_guests(&self) {
        let touched = self.given_back.take();
        if touched.is_empty() || self.is_cut.get() {
            return;
        }
        let machine = &mut *self.machine.borrow_mut();
        for index in touched {
            let Some(queue) = machine.queues.get_mut(index) else {
                continue;
            };
            let Some(ring) = &mut queue.ring else {
                continue;
            };
            let wants = ring.wants_event(&machine.table).unwrap_or(true);
            if let (Some(call), true) = (&queue.call, wants) {
                call.signal();
            }
        }
    }
}
