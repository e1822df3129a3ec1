//! The table `[replace]`: which disks take the place of others by themselves.

use serde::Deserialize;
use toml::Spanned;

use super::{ConfigProblem, Source};

/// What becomes of a new, blank disk in the bay of one that is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SameBay {
    /// Nothing: somebody has to say it, with `plexum add`.
    #[default]
    Ask,
    /// It takes the slot of the one that is gone.
    Replace,
}

/// What is configured of replacements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplaceConfig {
    /// New disks in the bays of others.
    pub same_bay: SameBay,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawReplace {
    same_bay: Option<Spanned<String>>,
}

impl ReplaceConfig {
    /// Adds what a later file says.
    pub(super) fn add(
        &mut self,
        raw: &RawReplace,
        source: &Source<'_>,
    ) -> Result<(), ConfigProblem> {
        let Some(word) = &raw.same_bay else {
            return Ok(());
        };
        self.same_bay = match word.get_ref().as_str() {
            "ask" => SameBay::Ask,
            "replace" => SameBay::Replace,
            _ => return Err(source.problem("same-bay", word, "it is \"ask\" or \"replace\"")),
        };
        Ok(())
    }
}
