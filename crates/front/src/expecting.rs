//! A write whose data are on their way.

use crate::export::Export;

/// A write whose data are being received, as its export knows it. Dropped before it was fulfilled, the export hears
/// that too.
pub struct Expecting<'a, E: Export> {
    export: &'a E,
    /// Offset and length in bytes.
    range: (u64, u64),
    is_fulfilled: bool,
}

impl<'a, E: Export> Expecting<'a, E> {
    /// Tells the export of a write of `range` (offset and length in bytes).
    #[must_use]
    pub fn begin(export: &'a E, range: (u64, u64)) -> Self {
        export.expect_write(range.0, range.1);
        Self {
            export,
            range,
            is_fulfilled: false,
        }
    }

    /// All of it is there: `Export::write` is next to hear of it.
    pub fn fulfil(mut self) {
        self.is_fulfilled = true;
    }
}

impl<E: Export> Drop for Expecting<'_, E> {
    fn drop(&mut self) {
        if !self.is_fulfilled {
            self.export.expect_no_write(self.range.0, self.range.1);
        }
    }
}
