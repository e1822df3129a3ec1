//! The table `[scrub]`: how volumes are scrubbed by themselves.

use std::str::FromStr;

use plexum_schedule::{Every, Rate, ScrubConfig, Windows};
use serde::Deserialize;
use toml::Spanned;

use super::{ConfigProblem, Source};

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawScrub {
    every: Option<Spanned<String>>,
    within: Option<Spanned<String>>,
    rate: Option<Spanned<String>>,
}

/// What the files say so far.
#[derive(Default)]
pub(super) struct ScrubPart {
    every: Option<Every>,
    within: Option<Windows>,
    rate: Option<Rate>,
}

impl ScrubPart {
    /// Adds what a later file says.
    pub(super) fn add(&mut self, raw: &RawScrub, source: &Source<'_>) -> Result<(), ConfigProblem> {
        take(&mut self.every, "every", raw.every.as_ref(), source)?;
        take(&mut self.within, "within", raw.within.as_ref(), source)?;
        take(&mut self.rate, "rate", raw.rate.as_ref(), source)
    }

    /// The schedule; none where nothing is said of it.
    ///
    /// # Errors
    /// When it is not said how often.
    pub(super) fn config(self) -> Result<Option<ScrubConfig>, String> {
        match self.every {
            Some(every) => Ok(Some(ScrubConfig {
                every,
                within: self.within.unwrap_or_default(),
                rate: self.rate,
            })),
            None if self.within.is_none() && self.rate.is_none() => Ok(None),
            None => Err("[scrub] says not how often: every = \"30d\" is needed".to_owned()),
        }
    }
}

fn take<T: FromStr<Err = plexum_schedule::ConfigError>>(
    value: &mut Option<T>,
    key: &str,
    raw: Option<&Spanned<String>>,
    source: &Source<'_>,
) -> Result<(), ConfigProblem> {
    let Some(raw) = raw else {
        return Ok(());
    };
    let parsed = raw.get_ref().parse();
    let parsed = parsed.map_err(|error: plexum_schedule::ConfigError| {
        source.problem(key, raw, &error.to_string())
    })?;
    *value = Some(parsed);
    Ok(())
}
