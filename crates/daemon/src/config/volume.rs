//! The tables `[volume.NAME]`: what is meant to be so with one volume.

use plexum_incidents::config::AlarmPart;
use serde::Deserialize;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawVolume {
    /// Slots that are meant to be without a member.
    expect_missing: Option<usize>,
}

impl RawVolume {
    /// Adds what is said of `volume`, which is its name or its identity.
    pub(super) fn add(&self, volume: &str, alarm: &mut AlarmPart) {
        if let Some(slots) = self.expect_missing {
            alarm.expect_missing(volume, slots);
        }
    }
}
