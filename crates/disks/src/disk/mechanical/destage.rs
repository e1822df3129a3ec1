//! Writing out the cache of a disk with moving parts, a batch at a time.

use std::rc::Rc;

use super::super::timed::{TimedDisk, TimedHardware};

use super::{BATCH_NS, CACHED_RANGES_MAX, CANDIDATES, Machine, State, is_under_head};

impl Machine {
    /// Writes a batch of the cache out.
    pub(super) fn destage(&self, inner: &Rc<TimedHardware>, state: &mut State) {
        let now = inner.clock.now_ns();
        let mut at = now as f64;
        self.stop_stream(state, at);
        state.is_destaging = true;
        let until = at + BATCH_NS * self.spec.slow_factor;
        let mut taken = 0;
        while at < until
            && let Some((start, end)) = self.next_range(state, at)
        {
            at = self.destage_range(inner, state, (start, end), at, until, &mut taken);
        }
        state.destaging_bytes += taken;
        if state.dirty.is_empty() {
            state.dirty_since_ns = None;
        }
        self.watch_pressure(state);
        state.is_busy = true;
        let shared = Rc::clone(inner);
        let end_ns = at.ceil() as u64;
        inner.clock.call_after(end_ns.max(now) - now, move || {
            TimedDisk::machine(&shared).destaged(&shared, taken);
        });
    }

    /// Writes the beginning of one range, up to what time is left of the batch; returns when it ends.
    fn destage_range(
        &self,
        inner: &Rc<TimedHardware>,
        state: &mut State,
        (start, end): (u64, u64),
        now_ns: f64,
        until_ns: f64,
        taken: &mut u64,
    ) -> f64 {
        let mut at = now_ns;
        if !is_under_head(state, start, at) {
            at += self.spec.range_overhead_us * 1e3 * self.spec.slow_factor;
            at = self.position(inner, state, start, at, true);
        }
        let share = self.spec.write_efficiency / self.spec.slow_factor;
        let room_ns = (until_ns - at).max(0.0) * share;
        let room = self.geometry.advance(start, room_ns) - start;
        // At least a little of it, so that a batch never ends with nothing done.
        let cut = state.dirty.take(start, room.max(64 << 10).min(end - start));
        let transfer = self.geometry.transfer_ns(start, cut - start) / share;
        at += transfer;
        *taken += cut - start;
        self.leave_head(state, cut, at);
        let mut figures = inner.figures.borrow_mut();
        figures.transfer_ns += transfer as u64;
        figures.destaged_ranges += 1;
        figures.destaged_bytes += cut - start;
        at
    }

    /// The range that costs least to get to.
    fn next_range(&self, state: &State, now_ns: f64) -> Option<(u64, u64)> {
        if let Some(range) = state.dirty.starting_at(state.head_bytes)
            && is_under_head(state, range.0, now_ns)
        {
            return Some(range);
        }
        let at = now_ns + self.spec.range_overhead_us * 1e3 * self.spec.slow_factor;
        let mut best: Option<((u64, u64), f64)> = None;
        for range in state.dirty.near(state.head_bytes, CANDIDATES) {
            let way = self.positioning(state, range.0, at, true);
            let cost = way.seek_ns + way.rotation_ns;
            if best.is_none_or(|(_, least)| cost < least) {
                best = Some((range, cost));
            }
        }
        best.map(|(range, _)| range)
    }

    pub(super) fn watch_pressure(&self, state: &mut State) {
        let (cached, cache) = (state.cached_bytes(), self.spec.write_cache_bytes);
        let ranges = state.cached_ranges();
        if cached > cache / 4 * 3 || ranges > CACHED_RANGES_MAX / 4 * 3 {
            state.is_pressed = true;
        } else if cached <= cache / 2 && ranges <= CACHED_RANGES_MAX / 2 {
            state.is_pressed = false;
        }
    }

    /// A batch is on the platter: there is room again, and flushes may be done.
    fn destaged(&self, inner: &Rc<TimedHardware>, bytes: u64) {
        let mut done = Vec::new();
        {
            let mut state = self.state.borrow_mut();
            state.is_busy = false;
            state.destaging_bytes -= bytes;
            let is_empty = state.cached_bytes() == 0;
            for mut flush in std::mem::take(&mut state.flushes) {
                flush.left_bytes = flush.left_bytes.saturating_sub(bytes);
                if flush.left_bytes == 0 || is_empty {
                    done.push(flush.job);
                } else {
                    state.flushes.push(flush);
                }
            }
            while let Some(job) = state.blocked.front()
                && state.has_room(job.length_bytes, self.spec.write_cache_bytes)
            {
                let job = state.blocked.pop_front().expect("one is at the front");
                self.accept(inner, &mut state, job);
            }
            self.watch_pressure(&mut state);
        }
        for job in done {
            self.answer(inner, job);
        }
        self.pump(inner);
    }
}
