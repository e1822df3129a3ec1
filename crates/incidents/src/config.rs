//! The part `[alarm]` of `/etc/plexum/plexum.toml`.
//!
//! ```toml
//! [alarm]
//! hold = "10s"
//! quiet = "1m"
//! heartbeat = { url = "https://example.com/ping/nas", every = "5m" }
//!
//! [[alarm.channel]]
//! name = "phone"
//! kind = "ntfy"
//! url = "https://example.com/nas"
//! token-file = "/etc/plexum/ntfy.token"
//! least = "critical"
//!
//! [alarm.expect-missing]
//! system = 20
//! ```
//!
//! Without any of it the journal is told everything. What is wrong with it is one line with the key and where it is.

mod smtp;

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;

use crate::channel::smtp::MailServer;
use crate::channel::webhook::Service;
use crate::finding::Severity;
use crate::incident::{Delays, QUIET_S_MAX};
use crate::outbox::Subscription;
use crate::time::{DAY_S, HOUR_S, MINUTE_S};

/// A sign of life is not given more often.
pub const HEARTBEAT_S_MIN: u64 = 10;
/// The channel that is there without being configured.
pub const JOURNAL: &str = "journal";

/// What is configured of alarms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlarmConfig {
    /// Where messages go. The journal is always among them.
    pub channels: Vec<Channel>,
    /// The sign of life.
    pub heartbeat: Option<HeartbeatConfig>,
    /// Slots that are meant to be without a member, by name or `uuid` of the volume.
    pub expected_missing: BTreeMap<String, usize>,
    /// How long something has to hold before it is told.
    pub delays: Delays,
}

/// What one of several files says of alarms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlarmPart {
    channels: Vec<Channel>,
    heartbeat: Option<HeartbeatConfig>,
    expected_missing: BTreeMap<String, usize>,
    hold_s: Option<u64>,
    quiet_s: Option<u64>,
}

impl Default for AlarmConfig {
    fn default() -> Self {
        Self {
            channels: vec![journal()],
            heartbeat: None,
            expected_missing: BTreeMap::new(),
            delays: Delays::default(),
        }
    }
}

/// Where messages go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Its name, for people.
    pub name: String,
    /// Incidents that were never as bad are not sent.
    pub least: Severity,
    /// How.
    pub transport: Transport,
}

/// How a message gets there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A line in the journal.
    Journal,
    /// A program: see [`crate::channel::program`].
    Program {
        /// The program and its arguments.
        command: Vec<String>,
    },
    /// A mail: see [`crate::channel::mail`].
    Sendmail {
        /// Who gets it.
        to: String,
        /// Who sends it.
        from: Option<String>,
        /// What takes it on standard input.
        command: Vec<String>,
    },
    /// A mail that a mail server gets from us: see [`crate::channel::smtp`].
    Smtp(MailServer),
    /// A request: see [`crate::channel::webhook`].
    Webhook {
        /// Who takes it.
        service: Service,
        /// Where.
        url: String,
        /// The file that the token is in.
        token_file: Option<String>,
    },
}

/// The sign of life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeartbeatConfig {
    /// How often, in seconds.
    pub every_s: u64,
    /// How it is given.
    pub by: HeartbeatBy,
}

/// How a sign of life is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeartbeatBy {
    /// This address is asked for.
    Url(String),
    /// This program is started.
    Program(Vec<String>),
}

/// What is wrong with the configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {key}: {reason}")]
pub struct ConfigError {
    /// Which line, counted from 1.
    pub line: usize,
    /// Which key.
    pub key: String,
    /// What is wrong with it, and what it should be.
    pub reason: String,
}

impl AlarmConfig {
    /// The part `[alarm]` of a whole file. What else is in it is for others.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line and key. The caller puts the file's name in front.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        AlarmPart::parse(text).map(Self::of)
    }

    /// What all files say together.
    #[must_use]
    pub fn of(part: AlarmPart) -> Self {
        let mut channels = part.channels;
        if !channels
            .iter()
            .any(|channel| channel.transport == Transport::Journal)
        {
            channels.insert(0, journal());
        }
        let usual = Delays::default();
        Self {
            channels,
            heartbeat: part.heartbeat,
            expected_missing: part.expected_missing,
            delays: Delays {
                hold_s: part.hold_s.unwrap_or(usual.hold_s),
                quiet_s: part.quiet_s.unwrap_or(usual.quiet_s),
            },
        }
    }

    /// Who is told what.
    #[must_use]
    pub fn subscriptions(&self) -> Vec<Subscription> {
        let channels = self.channels.iter().map(|channel| Subscription {
            channel: channel.name.clone(),
            least: channel.least,
        });
        channels.collect()
    }

    /// Slots that are meant to be without a member in the volume of this name and `uuid`.
    #[must_use]
    pub fn expected_missing_of(&self, name: &str, uuid: &str) -> usize {
        let by = |key: &str| self.expected_missing.get(key).copied();
        by(uuid).or_else(|| by(name)).unwrap_or(0)
    }
}

impl AlarmPart {
    /// The part `[alarm]` of one file.
    ///
    /// # Errors
    /// As [`AlarmConfig::parse`].
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let file: RawFile =
            toml::from_str(text).map_err(|error| ConfigError::of_toml(text, &error))?;
        let Some(raw) = file.alarm else {
            return Ok(Self::default());
        };
        let source = Source { text };
        let mut channels: Vec<Channel> = Vec::new();
        for raw in &raw.channel {
            let channel = source.channel(raw)?;
            if channels.iter().any(|other| other.name == channel.name) {
                let reason = two_of(&channel.name);
                return Err(source.error(raw.get_ref().name.span(), "name", &reason));
            }
            channels.push(channel);
        }
        let heartbeat = raw.heartbeat.as_ref();
        let delay = |key: &str, raw: &Option<Spanned<String>>| {
            let delay_s = raw.as_ref().map(|raw| source.delay(key, raw));
            delay_s.transpose()
        };
        Ok(Self {
            channels,
            heartbeat: heartbeat.map(|raw| source.heartbeat(raw)).transpose()?,
            hold_s: delay("hold", &raw.hold)?,
            quiet_s: delay("quiet", &raw.quiet)?,
            expected_missing: raw.expect_missing,
        })
    }

    /// Adds what a later file says, which counts where both say something.
    ///
    /// # Errors
    /// Two channels have one name; nothing of the later file is added then.
    pub fn add(&mut self, later: Self) -> Result<(), String> {
        let known = |channel: &&Channel| self.channels.iter().any(|one| one.name == channel.name);
        if let Some(channel) = later.channels.iter().find(known) {
            return Err(two_of(&channel.name));
        }
        self.channels.extend(later.channels);
        self.heartbeat = later.heartbeat.or(self.heartbeat.take());
        self.expected_missing.extend(later.expected_missing);
        self.hold_s = later.hold_s.or(self.hold_s);
        self.quiet_s = later.quiet_s.or(self.quiet_s);
        Ok(())
    }

    /// In the volume of this name as many slots are meant to be without a member.
    pub fn expect_missing(&mut self, volume: &str, slots: usize) {
        self.expected_missing.insert(volume.to_owned(), slots);
    }
}

fn two_of(name: &str) -> String {
    format!("two channels are called \"{name}\"")
}

fn journal() -> Channel {
    Channel {
        name: JOURNAL.to_owned(),
        least: Severity::Warning,
        transport: Transport::Journal,
    }
}

#[derive(Deserialize)]
struct RawFile {
    alarm: Option<RawAlarm>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawAlarm {
    #[serde(default)]
    channel: Vec<Spanned<RawChannel>>,
    heartbeat: Option<Spanned<RawHeartbeat>>,
    hold: Option<Spanned<String>>,
    quiet: Option<Spanned<String>>,
    #[serde(default)]
    expect_missing: BTreeMap<String, usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawChannel {
    name: Spanned<String>,
    kind: Spanned<String>,
    least: Option<Severity>,
    command: Option<Spanned<Vec<String>>>,
    to: Option<Spanned<String>>,
    from: Option<Spanned<String>>,
    url: Option<Spanned<String>>,
    room: Option<Spanned<String>>,
    token_file: Option<Spanned<String>>,
    login_file: Option<Spanned<String>>,
    ca_file: Option<Spanned<String>>,
    tls: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawHeartbeat {
    every: Spanned<String>,
    url: Option<Spanned<String>>,
    command: Option<Spanned<Vec<String>>>,
}

/// The text, to say where something is.
struct Source<'a> {
    text: &'a str,
}

impl Source<'_> {
    fn error(&self, span: Range<usize>, key: &str, reason: &str) -> ConfigError {
        ConfigError {
            line: line_of(self.text, span.start),
            key: key.to_owned(),
            reason: reason.to_owned(),
        }
    }

    fn channel(&self, raw: &Spanned<RawChannel>) -> Result<Channel, ConfigError> {
        let spot = raw.span();
        let raw = raw.get_ref();
        let name = raw.name.get_ref();
        if name.trim().is_empty() || name.contains(char::is_control) {
            return Err(self.error(
                raw.name.span(),
                "name",
                "a channel needs a name of one line",
            ));
        }
        let kind = raw.kind.get_ref().as_str();
        let (transport, used): (_, &[&str]) = match kind {
            "journal" => (Transport::Journal, &[]),
            "program" => (
                Transport::Program {
                    command: self.command(&spot, kind, raw.command.as_ref())?,
                },
                &["command"],
            ),
            "sendmail" => (self.sendmail(&spot, raw)?, &["command", "to", "from"]),
            "smtp" => (smtp::transport(self, &spot, raw)?, &smtp::KEYS),
            "matrix" => (self.webhook(&spot, raw)?, &["url", "token-file", "room"]),
            "ntfy" | "gotify" | "slack" | "webhook" => {
                (self.webhook(&spot, raw)?, &["url", "token-file"])
            }
            _ => {
                let reason = format!(
                    "\"{kind}\" is no kind of channel: journal, program, sendmail, smtp, ntfy, gotify, slack, matrix, webhook"
                );
                return Err(self.error(raw.kind.span(), "kind", &reason));
            }
        };
        for (key, span) in raw.given() {
            if !used.contains(&key) {
                let reason = format!("a channel of kind \"{kind}\" has no such key");
                return Err(self.error(span, key, &reason));
            }
        }
        Ok(Channel {
            name: name.clone(),
            least: raw.least.unwrap_or(Severity::Warning),
            transport,
        })
    }

    fn needed<'b, T>(
        &self,
        spot: &Range<usize>,
        key: &str,
        kind: &str,
        value: Option<&'b Spanned<T>>,
    ) -> Result<&'b Spanned<T>, ConfigError> {
        let reason = format!("missing: \"{kind}\" needs it");
        value.ok_or_else(|| self.error(spot.clone(), key, &reason))
    }

    fn command(
        &self,
        spot: &Range<usize>,
        kind: &str,
        raw: Option<&Spanned<Vec<String>>>,
    ) -> Result<Vec<String>, ConfigError> {
        let raw = self.needed(spot, "command", kind, raw)?;
        let command = raw.get_ref();
        match command.first() {
            Some(program) if program.starts_with('/') => Ok(command.clone()),
            _ => Err(self.error(
                raw.span(),
                "command",
                "a list is needed that begins with the whole path of a program, such as [\"/usr/local/bin/alarm\"]",
            )),
        }
    }

    fn sendmail(&self, spot: &Range<usize>, raw: &RawChannel) -> Result<Transport, ConfigError> {
        let command = match &raw.command {
            Some(_) => self.command(spot, "sendmail", raw.command.as_ref())?,
            None => ["/usr/sbin/sendmail", "-i", "-t"]
                .map(str::to_owned)
                .to_vec(),
        };
        let to = self.needed(spot, "to", "sendmail", raw.to.as_ref())?;
        for (key, address) in [("to", Some(to)), ("from", raw.from.as_ref())] {
            let Some(address) = address else { continue };
            let text = address.get_ref();
            if text.trim().is_empty() || text.contains(char::is_control) {
                return Err(self.error(address.span(), key, "an address of one line is needed"));
            }
        }
        Ok(Transport::Sendmail {
            to: to.get_ref().clone(),
            from: raw.from.as_ref().map(|from| from.get_ref().clone()),
            command,
        })
    }

    fn webhook(&self, spot: &Range<usize>, raw: &RawChannel) -> Result<Transport, ConfigError> {
        let kind = raw.kind.get_ref().as_str();
        let url = self.url(self.needed(spot, "url", kind, raw.url.as_ref())?)?;
        let service = match kind {
            "ntfy" => Service::Ntfy,
            "gotify" => Service::Gotify,
            "slack" => Service::Slack,
            "matrix" => Service::Matrix {
                room: self
                    .needed(spot, "room", kind, raw.room.as_ref())?
                    .get_ref()
                    .clone(),
            },
            _ => Service::Plain,
        };
        if matches!(service, Service::Gotify | Service::Matrix { .. }) {
            self.needed(spot, "token-file", kind, raw.token_file.as_ref())?;
        }
        Ok(Transport::Webhook {
            service,
            url,
            token_file: raw.token_file.as_ref().map(|file| file.get_ref().clone()),
        })
    }

    fn url(&self, raw: &Spanned<String>) -> Result<String, ConfigError> {
        let url = raw.get_ref();
        let rest = url
            .strip_prefix("https://")
            .or_else(|| url.strip_prefix("http://"));
        let is_fine = |rest: &str| !rest.is_empty() && rest.chars().all(|c| c.is_ascii_graphic());
        match rest {
            Some(rest) if is_fine(rest) => Ok(url.clone()),
            _ => Err(self.error(
                raw.span(),
                "url",
                "an address is needed that begins with https:// or http://",
            )),
        }
    }

    fn delay(&self, key: &str, raw: &Spanned<String>) -> Result<u64, ConfigError> {
        let delay_s = duration_s(raw.get_ref()).filter(|delay_s| *delay_s <= QUIET_S_MAX);
        delay_s.ok_or_else(|| {
            let reason = "a time up to 4h is needed, such as \"10s\" (s, m, h)";
            self.error(raw.span(), key, reason)
        })
    }

    fn heartbeat(&self, raw: &Spanned<RawHeartbeat>) -> Result<HeartbeatConfig, ConfigError> {
        let spot = raw.span();
        let raw = raw.get_ref();
        let by = match (&raw.url, &raw.command) {
            (Some(url), None) => HeartbeatBy::Url(self.url(url)?),
            (None, Some(_)) => {
                HeartbeatBy::Program(self.command(&spot, "heartbeat", raw.command.as_ref())?)
            }
            _ => {
                return Err(self.error(spot, "heartbeat", "either url or command is needed"));
            }
        };
        match duration_s(raw.every.get_ref()) {
            Some(every_s) if every_s >= HEARTBEAT_S_MIN => Ok(HeartbeatConfig { every_s, by }),
            _ => Err(self.error(
                raw.every.span(),
                "every",
                "a time of 10s or more is needed, such as \"5m\" (s, m, h, d)",
            )),
        }
    }
}

impl RawChannel {
    /// The keys that not every kind has, as far as they are there.
    fn given(&self) -> Vec<(&'static str, Range<usize>)> {
        let texts = [
            ("to", &self.to),
            ("from", &self.from),
            ("url", &self.url),
            ("room", &self.room),
            ("token-file", &self.token_file),
            ("login-file", &self.login_file),
            ("ca-file", &self.ca_file),
            ("tls", &self.tls),
        ];
        let texts = texts
            .into_iter()
            .filter_map(|(key, value)| Some((key, value.as_ref()?.span())));
        let command = self
            .command
            .as_ref()
            .map(|command| ("command", command.span()));
        command.into_iter().chain(texts).collect()
    }
}

/// Seconds of `30s`, `5m`, `1h`, `1d`; none when it is no such time.
#[must_use]
pub fn duration_s(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let unit_s = match unit {
        "s" => 1,
        "m" => MINUTE_S,
        "h" => HOUR_S,
        "d" => DAY_S,
        _ => return None,
    };
    number.trim().parse::<u64>().ok()?.checked_mul(unit_s)
}

impl ConfigError {
    /// What the parser says of `text`, in one line.
    #[must_use]
    pub fn of_toml(text: &str, error: &toml::de::Error) -> Self {
        let start = error.span().map_or(0, |span| span.start);
        let line = line_of(text, start);
        let row = text.lines().nth(line - 1).unwrap_or("").trim();
        let key = match row.split_once('=') {
            Some((key, _)) => key.trim(),
            None if row.starts_with('[') => row,
            None => "syntax",
        };
        let reason = error.message().lines().collect::<Vec<_>>().join(", ");
        Self {
            line,
            key: key.chars().take(60).collect(),
            reason: reason.chars().take(300).collect(),
        }
    }
}

fn line_of(text: &str, at: usize) -> usize {
    let before = text.bytes().take(at);
    before.filter(|byte| *byte == b'\n').count() + 1
}
