//! Which way long answers take to a client: the pages of a file themselves (`pipes.rs`), or a copy of them.
//!
//! Passing pages on spares two of three copies, and the third one, by the client out of those pages, is then the whole of the work. How fast that one is
//! depends on where the client's buffer lies: on some processors a copy between places that are a few bytes apart modulo a page is four times
//! as slow, and pages always begin at one, while `malloc` gives places 16 bytes behind one. The server cannot know that; it can measure, once for each
//! connection and again after a while. Figures: docs/performance.md.
//!
//! Pure: the caller says what time it is.

use std::cell::Cell;

/// Bytes after a change of the way that still belong to the one before: answers on their way, and what waits in the socket.
const SETTLE_BYTES: u64 = 4 << 20;
/// Bytes that are measured then.
const MEASURE_BYTES: u64 = 12 << 20;
/// Times that each way is measured; the better one counts, since whatever disturbs only makes it slower.
const ROUNDS: usize = 2;
/// Bytes until both are measured again: a client may do something else by then.
const KEEP_BYTES: u64 = 4 << 30;
/// A client that asks for nothing for so long was not waiting for us: what was begun to be measured is begun anew.
const REST_NS: u64 = 20_000_000;
/// How much faster copies have to be: pages cost this side less.
const COPIES_AHEAD: f64 = 1.15;
/// So much faster, and the last round is not needed.
const CLEARLY_AHEAD: f64 = 1.5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Pages,
    Copies,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// What comes now still belongs to the way before.
    Settle,
    /// Since when it counts.
    Measure { since_ns: u64 },
    /// The better way is known.
    Keep,
}

/// The choice of one connection.
pub(crate) struct Ways {
    way: Cell<Way>,
    stage: Cell<Stage>,
    /// Bytes of this stage.
    bytes: Cell<u64>,
    /// When the last answer was asked about.
    last_ns: Cell<u64>,
    /// Best rates of this trial so far, in bytes per nanosecond, and how many were measured: pages, copies.
    rates: Cell<[(f64, usize); 2]>,
}

impl Ways {
    /// Begins with pages.
    pub(crate) fn new() -> Self {
        Self {
            way: Cell::new(Way::Pages),
            stage: Cell::new(Stage::Settle),
            bytes: Cell::new(0),
            last_ns: Cell::new(0),
            rates: Cell::default(),
        }
    }

    /// Whether the next long answer is to be passed on in pages. Called once for each, when its request is carried out.
    pub(crate) fn is_for_pages(&self, length_bytes: usize, now_ns: u64) -> bool {
        let last_ns = self.last_ns.replace(now_ns);
        let has_rested = now_ns.saturating_sub(last_ns) > REST_NS;
        if has_rested && !matches!(self.stage.get(), Stage::Keep) {
            self.enter(Stage::Settle);
        }
        // Before this one is counted: it belongs to the time that begins now.
        let bytes = self.bytes.get();
        match self.stage.get() {
            Stage::Settle if bytes >= SETTLE_BYTES => {
                self.enter(Stage::Measure { since_ns: now_ns })
            }
            Stage::Measure { since_ns } if bytes >= MEASURE_BYTES => {
                let rate = bytes as f64 / now_ns.saturating_sub(since_ns).max(1) as f64;
                self.note(rate);
            }
            Stage::Keep if bytes >= KEEP_BYTES => {
                self.rates.set(Default::default());
                self.enter(Stage::Settle);
            }
            _ => {}
        }
        self.bytes.set(self.bytes.get() + length_bytes as u64);
        self.way.get() == Way::Pages
    }

    fn enter(&self, stage: Stage) {
        self.stage.set(stage);
        self.bytes.set(0);
    }

    /// The rate of the present way was measured: now the other one, or the better one for long.
    fn note(&self, rate: f64) {
        let mut rates = self.rates.get();
        let (best, count) = &mut rates[self.way.get() as usize];
        (*best, *count) = (best.max(rate), *count + 1);
        self.rates.set(rates);
        let [(pages, pages_count), (copies, copies_count)] = rates;
        let is_complete = pages_count.min(copies_count) >= ROUNDS;
        let is_clear = copies_count > 0
            && (pages > CLEARLY_AHEAD * copies
                || pages_count > copies_count && copies > CLEARLY_AHEAD * pages);
        if is_complete || is_clear {
            let is_for_copies = copies > COPIES_AHEAD * pages;
            self.way.set(if is_for_copies {
                Way::Copies
            } else {
                Way::Pages
            });
            self.enter(Stage::Keep);
            return;
        }
        self.way.set(match self.way.get() {
            Way::Pages => Way::Copies,
            Way::Copies => Way::Pages,
        });
        self.enter(Stage::Settle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A client that takes answers of 1 MiB at these rates, in MiB a second: pages, copies.
    struct Client {
        ways: Ways,
        now_ns: u64,
        rates: [u64; 2],
    }

    impl Client {
        fn new(rates: [u64; 2]) -> Self {
            Self {
                ways: Ways::new(),
                now_ns: 5,
                rates,
            }
        }

        /// The share of so many answers that were passed on in pages, in percent.
        fn reads(&mut self, count: u64) -> u64 {
            let mut pages = 0;
            for _ in 0..count {
                let is_pages = self.ways.is_for_pages(1 << 20, self.now_ns);
                pages += u64::from(is_pages);
                self.now_ns += 1_000_000_000 / self.rates[usize::from(!is_pages)];
            }
            100 * pages / count
        }
    }

    #[test]
    fn a_client_gets_what_it_takes_faster() {
        for (rates, expected) in [([1300, 2800], 0), ([6000, 3000], 100), ([2000, 2600], 0)] {
            let mut client = Client::new(rates);
            client.reads(200);
            assert_eq!(client.reads(1000), expected, "{rates:?}");
        }
    }

    #[test]
    fn pages_are_kept_where_copies_gain_little() {
        let mut client = Client::new([2000, 2200]);
        client.reads(200);
        assert_eq!(client.reads(1000), 100);
    }

    #[test]
    fn a_clear_difference_needs_no_second_round_of_copies() {
        let mut client = Client::new([1000, 3000]);
        client.reads(3 * (SETTLE_BYTES + MEASURE_BYTES) / MIB);
        assert_eq!(client.reads(1000), 0);
    }

    #[test]
    fn few_reads_are_not_worth_a_trial() {
        let mut client = Client::new([1000, 3000]);
        assert_eq!(client.reads((SETTLE_BYTES + MEASURE_BYTES) / MIB), 100);
    }

    #[test]
    fn what_a_client_does_later_is_noticed_after_a_while() {
        let mut client = Client::new([1300, 2800]);
        client.reads(200);
        client.rates = [6000, 3000];
        client.reads(KEEP_BYTES / MIB);
        assert_eq!(client.reads(1000), 100);
    }

    #[test]
    fn one_disturbance_does_not_decide() {
        let mut client = Client::new([6000, 5000]);
        client.reads(6);
        client.now_ns += 15_000_000; // in the middle of the first measurement: it looks three times as slow
        client.reads(200);
        assert_eq!(client.reads(1000), 100);
    }

    #[test]
    fn rests_of_the_client_count_for_neither() {
        let mut client = Client::new([6000, 3000]);
        for _ in 0..400 {
            client.reads(20); // too few for a measurement
            client.now_ns += 2 * REST_NS;
        }
        assert_eq!(client.reads(20), 100);
    }
}
