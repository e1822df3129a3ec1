//! What is configured: `plexum.toml`, and the files of `conf.d` beside it.
//!
//! ```toml
//! [start]
//! wait = "1m"
//! degraded = "if-safe"
//!
//! [scrub]
//! every = "30d"
//! within = "01:00-06:00"
//!
//! [replace]
//! same-bay = "replace"
//!
//! [volume.system]
//! expect-missing = 1
//!
//! [[alarm.channel]]
//! name = "root"
//! kind = "sendmail"
//! to = "root"
//! ```
//!
//! Invariants:
//! - a key that nobody knows is refused by name, with file and line: what is misspelled must not be taken for a wish;
//! - what is wrong in one table keeps no other one from counting, least of all that of alarms;
//! - of two files that say something on one key, the later by name counts; `plexum.toml` is the first.

mod files;
mod nvme;
mod page;
mod replace;
mod scrub;
mod start;
mod volume;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use plexum_incidents::config::{AlarmConfig, AlarmPart, ConfigError, HeartbeatBy, Transport};
use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

pub use files::{ConfigFiles, Surroundings};
pub use nvme::NvmeConfig;
pub use page::PageConfig;
pub use replace::{ReplaceConfig, SameBay};
pub use start::{StartConfig, degraded_start};

use nvme::RawNvme;
use page::{PagePart, RawPage, RawRoles};
use plexum_schedule::ScrubConfig;
use replace::RawReplace;
use scrub::{RawScrub, ScrubPart};
use start::RawStart;
use volume::RawVolume;

/// What is configured. Without any file everything is as usual.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Who is told what, and how.
    pub alarm: AlarmConfig,
    /// How volumes start.
    pub start: StartConfig,
    /// How volumes are scrubbed by themselves; none: only when somebody asks for it.
    pub scrub: Option<ScrubConfig>,
    /// Which disks take the place of others by themselves.
    pub replace: ReplaceConfig,
    /// Who may do what, and where the page is.
    pub page: PageConfig,
    /// Where volumes are found over NVMe/TCP.
    pub nvme: NvmeConfig,
}

/// What is wrong with the configuration; as text one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// In which file.
    pub file: PathBuf,
    /// Where in it; none when it is not a matter of a place.
    pub line: Option<usize>,
    /// What, and what it should be.
    pub reason: String,
}

impl ConfigProblem {
    /// The same place and key with this reason: for what is known only when all files were read.
    fn with(mut self, reason: &str) -> Self {
        self.reason.push_str(reason);
        self
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        match self.line {
            Some(line) => write!(f, "{file}: line {line}: {}", self.reason),
            None => write!(f, "{file}: {}", self.reason),
        }
    }
}

/// All tables that there are. Each has a file of its own here that knows its keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    /// Read by itself, by the crate of alarms.
    #[serde(rename = "alarm")]
    _alarm: Option<IgnoredAny>,
    #[serde(default)]
    start: RawStart,
    #[serde(default)]
    scrub: RawScrub,
    #[serde(default)]
    replace: RawReplace,
    #[serde(default)]
    roles: RawRoles,
    #[serde(default)]
    page: RawPage,
    #[serde(default)]
    nvme: RawNvme,
    #[serde(default)]
    volume: BTreeMap<String, RawVolume>,
}

/// A text with its place, to say where something is wrong.
struct Source<'a> {
    file: &'a Path,
    text: &'a str,
}

impl Source<'_> {
    fn problem<T>(&self, key: &str, place: &Spanned<T>, reason: &str) -> ConfigProblem {
        let before = self.text.bytes().take(place.span().start);
        ConfigProblem {
            file: self.file.to_owned(),
            line: Some(before.filter(|byte| *byte == b'\n').count() + 1),
            reason: format!("{key}: {reason}"),
        }
    }

    fn of(&self, error: ConfigError) -> ConfigProblem {
        ConfigProblem {
            file: self.file.to_owned(),
            line: Some(error.line),
            reason: format!("{}: {}", error.key, error.reason),
        }
    }
}

impl Config {
    /// Reads all files. What is wrong does not count, and is told.
    #[must_use]
    pub fn read(files: &ConfigFiles) -> (Self, Vec<ConfigProblem>) {
        let (texts, mut problems) = files.texts();
        let mut alarm = AlarmPart::default();
        let mut start = StartConfig::default();
        let mut scrub = ScrubPart::default();
        let mut replace = ReplaceConfig::default();
        let mut page = PagePart::default();
        let mut nvme = NvmeConfig::default();
        for (file, text) in &texts {
            let source = Source { file, text };
            let found = problems.len();
            problems.extend(add_alarm(&mut alarm, &source).err());
            let rest: Result<RawFile, _> = toml::from_str(text);
            match rest {
                Ok(raw) => {
                    problems.extend(start.add(&raw.start, &source).err());
                    problems.extend(scrub.add(&raw.scrub, &source).err());
                    problems.extend(replace.add(&raw.replace, &source).err());
                    problems.extend(page.add_roles(&raw.roles, &source).err());
                    problems.extend(page.add_page(&raw.page, &source).err());
                    problems.extend(nvme.add(&raw.nvme, &source).err());
                    for (volume, raw) in &raw.volume {
                        raw.add(volume, &mut alarm);
                    }
                }
                Err(error) => {
                    let problem = source.of(ConfigError::of_toml(text, &error));
                    // A text that is no TOML is so for both readers.
                    if !problems[found..].contains(&problem) {
                        problems.push(problem);
                    }
                }
            }
        }
        let alarm = AlarmConfig::of(alarm);
        let scrub = scrub.config().unwrap_or_else(|reason| {
            let last = texts.last().map(|(file, _)| file.clone());
            problems.push(ConfigProblem {
                file: last.unwrap_or_default(),
                line: None,
                reason,
            });
            None
        });
        let (page, problem) = page.config();
        problems.extend(problem);
        let config = Self {
            alarm,
            start,
            scrub,
            replace,
            page,
            nvme,
        };
        (config, problems)
    }

    /// Of each channel whose program is not there, a line. That may change, so it is no mistake in a file.
    #[must_use]
    pub fn lacking_programs(&self) -> Vec<String> {
        let channels = self.alarm.channels.iter().map(|channel| {
            let program = match &channel.transport {
                Transport::Program { command } | Transport::Sendmail { command, .. } => {
                    command.first()
                }
                Transport::Journal | Transport::Smtp(_) | Transport::Webhook { .. } => None,
            };
            (format!("channel {}", channel.name), program)
        });
        let heartbeat = self.alarm.heartbeat.iter().map(|heartbeat| {
            let program = match &heartbeat.by {
                HeartbeatBy::Program(command) => command.first(),
                HeartbeatBy::Url(_) => None,
            };
            ("heartbeat".to_owned(), program)
        });
        let lacking = channels.chain(heartbeat).filter_map(|(what, program)| {
            let program = program.filter(|program| !Path::new(program).exists())?;
            Some(format!(
                "{what}: {program} is not there, so nothing arrives that way"
            ))
        });
        lacking.collect()
    }
}

fn add_alarm(alarm: &mut AlarmPart, source: &Source<'_>) -> Result<(), ConfigProblem> {
    let part = AlarmPart::parse(source.text).map_err(|error| source.of(error))?;
    alarm.add(part).map_err(|reason| ConfigProblem {
        file: source.file.to_owned(),
        line: None,
        reason,
    })
}

#[cfg(test)]
mod tests;
