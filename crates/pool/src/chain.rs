//! What is known of the intent log of a volume: where its chain is, and what has to be logged.

use std::ops::Range;

use plexum_format::zfs::PointerImage;

use crate::numbers::Identities;
use crate::spans::Spans;

/// The log of a volume.
pub(crate) struct Log {
    /// The first two words of all pointers of the chain.
    pub words: [u64; 2],
    /// The next block, which is allocated and empty; a hole: the next commit begins a chain.
    pub next: PointerImage,
    /// Number of the last record.
    pub sequence: u64,
    /// Blocks that hold something which is not committed.
    pub used: Vec<PointerImage>,
    pub used_bytes: u64,
    /// What was written and trimmed since the last flush.
    pub written: Spans,
    pub trimmed: Spans,
}

impl Log {
    pub fn new(seed: u64) -> Self {
        let mut identities = Identities(seed);
        Self {
            words: [identities.next(), identities.next()],
            next: PointerImage::HOLE,
            sequence: 0,
            used: Vec::new(),
            used_bytes: 0,
            written: Spans::default(),
            trimmed: Spans::default(),
        }
    }

    /// Notes a write.
    pub fn write(&mut self, range: Range<u64>) {
        cut(&mut self.trimmed, &range);
        cut(&mut self.written, &range);
        let _ = self.written.add(range);
    }

    /// Notes a trim.
    pub fn trim(&mut self, range: Range<u64>) {
        cut(&mut self.written, &range);
        cut(&mut self.trimmed, &range);
        let _ = self.trimmed.add(range);
    }

    /// Whether nothing was noted.
    pub fn is_clean(&self) -> bool {
        self.written.is_empty() && self.trimmed.is_empty()
    }

    /// Everything that was noted is durable.
    pub fn clean(&mut self) {
        (self.written, self.trimmed) = (Spans::default(), Spans::default());
    }
}

fn cut(spans: &mut Spans, range: &Range<u64>) {
    for part in spans.within(range) {
        let _ = spans.take(part);
    }
}
