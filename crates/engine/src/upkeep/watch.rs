//! The watchman: members that do not answer in time are failed, so that nobody waits for them for ever (W9).
//!
//! Invariants:
//! - it waits for no member itself: whoever waited for the hung one makes the failure durable (W3);
//! - it goes on while anything is under way, also during a stop and after a freeze;
//! - it sleeps while nothing is: no tick, no wake-up.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use crate::state::FailCause;
use crate::upkeep::Upkeep;
use crate::upkeep::nanos;

use plexum_block::clock::Clock;
use plexum_block::device::Device;
use plexum_block::wait::first;

/// Ticks in one time-out at least: how exactly it is kept.
const TICKS_PER_TIMEOUT: u32 = 16;

/// Longest time between two looks.
const PERIOD_MAX: Duration = Duration::from_secs(1);

/// Shortest time between two looks.
const PERIOD_MIN: Duration = Duration::from_millis(1);

/// How long answers are remembered: this, and once more.
const LATENCY_PERIOD: Duration = Duration::from_secs(60);

impl<D: Device, C: Clock> Upkeep<D, C> {
    /// Looks after the members until `is_over`, and then until nothing is under way.
    pub(crate) async fn watch_members(&self, is_over: impl Fn() -> bool) {
        let mut rotated = self.base.clock().now();
        loop {
            let timeout = self.base.options().member_timeout;
            let period = (timeout / TICKS_PER_TIMEOUT).clamp(PERIOD_MIN, PERIOD_MAX);
            let ticks = nanos(timeout).div_ceil(nanos(period));
            if !is_over() {
                let rest = LATENCY_PERIOD.saturating_sub(self.base.clock().now().since(rotated));
                let change = first(self.members_at_work(), self.base.changed().changed());
                first(change, self.base.clock().sleep(rest)).await;
            }
            let due = self.base.clock().now().0 + nanos(period);
            while self.base.clock().now().0 < due {
                if is_over() && self.is_idle() {
                    return;
                }
                let rest = Duration::from_nanos(due.saturating_sub(self.base.clock().now().0));
                // A change may be the end; a member may also have got idle without any: the period bounds the wait.
                first(self.base.clock().sleep(rest), self.base.changed().changed()).await;
            }
            if self.base.clock().now().since(rotated) >= LATENCY_PERIOD {
                rotated = self.base.clock().now();
                self.array.for_each_drive(|drive| drive.rotate_latencies());
            }
            let mut overdue = Vec::new();
            self.array.for_each_drive(|drive| {
                if drive.tick() >= ticks {
                    overdue.push(drive.id);
                }
            });
            for member in overdue {
                self.array.fail_member(member, FailCause::TimedOut);
                if let Some(drive) = self.array.drive(member) {
                    drive.abandon();
                }
            }
        }
    }

    /// Waits until some member has something under way.
    async fn members_at_work(&self) {
        poll_fn(|cx| {
            let mut all_rest = true;
            self.array
                .for_each_drive(|drive| all_rest &= drive.rests(cx.waker()));
            if all_rest {
                Poll::Pending
            } else {
                Poll::Ready(())
            }
        })
        .await;
    }

    fn is_idle(&self) -> bool {
        let mut is_idle = true;
        self.array
            .for_each_drive(|drive| is_idle &= drive.in_flight() == 0);
        is_idle
    }
}
