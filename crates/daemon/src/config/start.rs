//! The table `[start]`: how volumes start.

use std::time::Duration;

use plexum_incidents::config::duration_s;
use serde::Deserialize;
use toml::Spanned;

use super::{ConfigProblem, Source};
use crate::service::{DegradedStart, StartPolicy};

/// The longest wait for a member.
const WAIT_S_MAX: u64 = 3600;

/// What is configured of starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StartConfig {
    /// How long a member is waited for.
    pub wait: Option<Duration>,
    /// What comes then.
    pub degraded: Option<DegradedStart>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawStart {
    wait: Option<Spanned<String>>,
    degraded: Option<Spanned<String>>,
}

/// The policy that is meant by a word.
///
/// # Errors
/// The words that there are.
pub fn degraded_start(word: &str) -> Result<DegradedStart, String> {
    match word {
        "never" => Ok(DegradedStart::Never),
        "if-safe" => Ok(DegradedStart::IfSafe),
        "always" => Ok(DegradedStart::Always),
        other => Err(format!("{other}: it is never, if-safe or always")),
    }
}

impl StartConfig {
    /// The policy, with what is not configured as usual.
    #[must_use]
    pub fn policy(&self) -> StartPolicy {
        let usual = StartPolicy::default();
        StartPolicy {
            wait: self.wait.unwrap_or(usual.wait),
            degraded: self.degraded.unwrap_or(usual.degraded),
        }
    }

    /// Adds what a later file says.
    pub(super) fn add(&mut self, raw: &RawStart, source: &Source<'_>) -> Result<(), ConfigProblem> {
        if let Some(wait) = &raw.wait {
            let wait_s = duration_s(wait.get_ref()).filter(|wait_s| *wait_s <= WAIT_S_MAX);
            let wait_s = wait_s.ok_or_else(|| {
                let reason = "a time up to 1h is needed, such as \"30s\" (s, m, h)";
                source.problem("wait", wait, reason)
            })?;
            self.wait = Some(Duration::from_secs(wait_s));
        }
        if let Some(word) = &raw.degraded {
            let degraded = degraded_start(word.get_ref());
            let degraded = degraded.map_err(|reason| source.problem("degraded", word, &reason))?;
            self.degraded = Some(degraded);
        }
        Ok(())
    }
}
