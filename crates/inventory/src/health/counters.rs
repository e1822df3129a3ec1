//! The counters that are watched. Whatever a disk's protocol calls them, each has one name here.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Counter {
    /// Sectors that the disk replaced (ATA 5; SCSI's grown defect list).
    ReallocatedSectors,
    /// Sectors that could not be read and wait for a write (ATA 197; SCSI's pending defects).
    PendingSectors,
    /// Sectors that the disk found unreadable by itself (ATA 198).
    OfflineUncorrectableSectors,
    /// Errors that reached the host (ATA 187; SCSI's uncorrected errors).
    ReportedUncorrectableErrors,
    /// Data that an NVMe disk could not give back whole.
    MediaErrors,
    /// Spare blocks that are used up, percent of all.
    SpareUsedPercent,
    /// Lifetime that is used up, as the maker counts it, percent.
    UsedPercent,
    /// Self-tests that failed.
    FailedSelfTests,
    /// Transfers that arrived damaged (ATA 199): the cable or the bay.
    CrcErrors,
    /// Words that a SAS link could not read: the cable or the bay.
    InvalidWords,
}

impl Counter {
    /// All of them, in the order in which they are told.
    pub const ALL: [Counter; 10] = [
        Counter::ReallocatedSectors,
        Counter::PendingSectors,
        Counter::OfflineUncorrectableSectors,
        Counter::ReportedUncorrectableErrors,
        Counter::MediaErrors,
        Counter::SpareUsedPercent,
        Counter::UsedPercent,
        Counter::FailedSelfTests,
        Counter::CrcErrors,
        Counter::InvalidWords,
    ];

    /// Whether it speaks of what is between disk and host, and not of the disk.
    #[must_use]
    pub fn is_of_the_cable(self) -> bool {
        matches!(self, Counter::CrcErrors | Counter::InvalidWords)
    }

    /// Whether it can only rise as long as it is the same disk. Pending sectors go when they are written, logs are
    /// overwritten, links are reset.
    #[must_use]
    pub fn only_rises(self) -> bool {
        matches!(
            self,
            Counter::ReallocatedSectors | Counter::MediaErrors | Counter::UsedPercent
        )
    }
}

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Counter::ReallocatedSectors => "reallocated sectors",
            Counter::PendingSectors => "pending sectors",
            Counter::OfflineUncorrectableSectors => "offline uncorrectable sectors",
            Counter::ReportedUncorrectableErrors => "reported uncorrectable errors",
            Counter::MediaErrors => "media errors",
            Counter::SpareUsedPercent => "percent of spare blocks used",
            Counter::UsedPercent => "percent of lifetime used",
            Counter::FailedSelfTests => "failed self-tests",
            Counter::CrcErrors => "CRC errors",
            Counter::InvalidWords => "invalid words on the link",
        })
    }
}

/// All counters of one reading. What a disk does not count is none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// See [`Counter::ReallocatedSectors`].
    pub reallocated_sectors: Option<u64>,
    /// See [`Counter::PendingSectors`].
    pub pending_sectors: Option<u64>,
    /// See [`Counter::OfflineUncorrectableSectors`].
    pub offline_uncorrectable_sectors: Option<u64>,
    /// See [`Counter::ReportedUncorrectableErrors`].
    pub reported_uncorrectable_errors: Option<u64>,
    /// See [`Counter::MediaErrors`].
    pub media_errors: Option<u64>,
    /// See [`Counter::SpareUsedPercent`].
    pub spare_used_percent: Option<u64>,
    /// See [`Counter::UsedPercent`].
    pub used_percent: Option<u64>,
    /// See [`Counter::FailedSelfTests`].
    pub failed_self_tests: Option<u64>,
    /// See [`Counter::CrcErrors`].
    pub crc_errors: Option<u64>,
    /// See [`Counter::InvalidWords`].
    pub invalid_words: Option<u64>,
}

impl Counters {
    /// The value of one counter.
    #[must_use]
    pub fn get(&self, counter: Counter) -> Option<u64> {
        match counter {
            Counter::ReallocatedSectors => self.reallocated_sectors,
            Counter::PendingSectors => self.pending_sectors,
            Counter::OfflineUncorrectableSectors => self.offline_uncorrectable_sectors,
            Counter::ReportedUncorrectableErrors => self.reported_uncorrectable_errors,
            Counter::MediaErrors => self.media_errors,
            Counter::SpareUsedPercent => self.spare_used_percent,
            Counter::UsedPercent => self.used_percent,
            Counter::FailedSelfTests => self.failed_self_tests,
            Counter::CrcErrors => self.crc_errors,
            Counter::InvalidWords => self.invalid_words,
        }
    }

    /// Those that the disk counts.
    pub fn known(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        let value = |counter: Counter| Some((counter, self.get(counter)?));
        Counter::ALL.into_iter().filter_map(value)
    }
}
