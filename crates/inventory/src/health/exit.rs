//! The exit status of smartctl: eight bits. Source: smartctl(8), EXIT STATUS.

use serde::{Deserialize, Serialize};

/// The exit status of smartctl.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ExitStatus(pub u8);

impl ExitStatus {
    fn has(self, bit: u8) -> bool {
        self.0 >> bit & 1 == 1
    }

    /// The command line was not understood: an old smartctl, or a device type that it does not know.
    #[must_use]
    pub fn is_usage_error(self) -> bool {
        self.has(0)
    }

    /// The device could not be opened or did not say what it is; or it sleeps.
    #[must_use]
    pub fn is_open_failure_or_sleep(self) -> bool {
        self.has(1)
    }

    /// Some command failed, or a checksum was wrong: what is in the document holds, but something is missing.
    #[must_use]
    pub fn is_incomplete(self) -> bool {
        self.has(2)
    }

    /// The disk says that it is failing.
    #[must_use]
    pub fn is_failing(self) -> bool {
        self.has(3)
    }

    /// An attribute that foretells failure is at its threshold now.
    #[must_use]
    pub fn is_at_threshold(self) -> bool {
        self.has(4)
    }

    /// An attribute was at its threshold some time: the past.
    #[must_use]
    pub fn was_at_threshold(self) -> bool {
        self.has(5)
    }

    /// The error log has entries: the past.
    #[must_use]
    pub fn has_error_log(self) -> bool {
        self.has(6)
    }

    /// A self-test has failed, and none has succeeded since.
    #[must_use]
    pub fn has_failed_self_test(self) -> bool {
        self.has(7)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bit_has_one_meaning() {
        let meanings = [
            ExitStatus::is_usage_error,
            ExitStatus::is_open_failure_or_sleep,
            ExitStatus::is_incomplete,
            ExitStatus::is_failing,
            ExitStatus::is_at_threshold,
            ExitStatus::was_at_threshold,
            ExitStatus::has_error_log,
            ExitStatus::has_failed_self_test,
        ];
        for bit in 0..8 {
            let status = ExitStatus(1 << bit);
            let said: Vec<usize> = (0..8).filter(|index| meanings[*index](status)).collect();
            assert_eq!(said, [bit]);
        }
    }
}
