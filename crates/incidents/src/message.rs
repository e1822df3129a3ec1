//! What people read: the same first line everywhere, then what it means and what to do.

use serde::{Deserialize, Serialize};

use crate::finding::{Code, Lines, Object, Severity};
use crate::incident::{Acknowledgement, Life, Notice, NoticeKind};
use crate::time::{UnixTime, duration_text};

/// Characters of a line. Names and reasons come from disks and networks, and may be anything.
pub const LINE_CHARS_MAX: usize = 400;
/// Lines of one part of a message.
pub const PART_LINES_MAX: usize = 40;

/// Where a message is from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sender {
    /// Name of the machine.
    pub host: String,
    /// How far east of UTC its clock is shown, in seconds.
    pub utc_offset_s: i32,
}

/// One message. Every channel makes its form from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The same each time it is sent, so that a channel can tell it from a new one.
    pub id: String,
    /// What it is about.
    pub kind: NoticeKind,
    /// Number of the incident.
    pub incident: String,
    /// Name of the machine.
    pub host: String,
    /// How far east of UTC its clock is shown, in seconds.
    pub utc_offset_s: i32,
    /// What was found.
    pub code: Code,
    /// With what.
    pub object: Object,
    /// What that is called.
    pub name: String,
    /// How bad it is, or was last.
    pub severity: Severity,
    /// The worst that was told of this incident.
    pub worst: Severity,
    /// When the incident was opened.
    pub opened: UnixTime,
    /// When this was decided.
    pub decided: UnixTime,
    /// How often it came back.
    pub returns: u32,
    /// Which message of the incident it is.
    pub count: u32,
    /// Who knows of it.
    pub acknowledged: Option<Acknowledgement>,
    /// What is said.
    pub lines: Lines,
}

impl Message {
    /// The message that tells `notice`.
    #[must_use]
    pub fn of(notice: &Notice, sender: &Sender, now: UnixTime) -> Self {
        let Notice {
            kind,
            finding,
            life,
            is_looked_at,
        } = notice;
        let end = match is_looked_at {
            true => finding.code.over(),
            false => "it is not looked at any more; how it is nobody knows",
        };
        let lines = match kind {
            NoticeKind::Closed => over(end, &finding.lines, life),
            _ => finding.lines.clone(),
        };
        Self {
            id: format!(
                "{}-{:x}-{}-{}-{}",
                life.id,
                life.opened.0,
                life.messages,
                kind.name(),
                finding.severity
            ),
            kind: *kind,
            incident: life.id.to_string(),
            host: plain(&sender.host),
            utc_offset_s: sender.utc_offset_s,
            code: finding.code,
            object: finding.object.clone(),
            name: plain(&finding.name),
            severity: finding.severity,
            worst: life.worst,
            opened: life.opened,
            decided: now,
            returns: life.returns,
            count: life.messages,
            acknowledged: life.acknowledged.clone(),
            lines: plain_lines(&lines),
        }
    }

    /// A message that goes the whole way to `channel`, to try it.
    #[must_use]
    pub fn test(number: &str, channel: &str, sender: &Sender, now: UnixTime) -> Self {
        let lines = Lines {
            headline: "TEST - nothing is wrong, this message was asked for".to_owned(),
            advice: vec!["nothing: that you read this is the result".to_owned()],
            ..Lines::default()
        };
        Self {
            id: format!("{number}-{:x}-1-test-warning", now.0),
            kind: NoticeKind::Test,
            incident: number.to_owned(),
            host: plain(&sender.host),
            utc_offset_s: sender.utc_offset_s,
            code: Code::Test,
            object: Object::Channel(channel.to_owned()),
            name: plain(channel),
            severity: Severity::Warning,
            worst: Severity::Warning,
            opened: now,
            decided: now,
            returns: 0,
            count: 1,
            acknowledged: None,
            lines,
        }
    }

    /// `[nas] home: ONE MORE FAILURE LOSES IT - ...`, the same in every channel.
    #[must_use]
    pub fn first_line(&self) -> String {
        let head = match self.kind {
            NoticeKind::Repeated => "STILL: ",
            NoticeKind::Worse => "WORSE: ",
            NoticeKind::Opened | NoticeKind::Closed | NoticeKind::Test => "",
        };
        let host = match self.host.is_empty() {
            true => "plexum",
            false => &self.host,
        };
        plain(&format!(
            "[{host}] {}: {head}{}",
            self.name, self.lines.headline
        ))
    }

    /// Everything behind the first line, as plain text.
    #[must_use]
    pub fn body(&self) -> String {
        let mut text = String::new();
        for line in &self.lines.what {
            text.push_str(line);
            text.push('\n');
        }
        part(&mut text, "Data", &self.lines.data);
        part(&mut text, "You", &self.lines.advice);
        part(&mut text, "Before", &self.lines.before);
        part(&mut text, "This", &self.about());
        text
    }

    /// All of it, as plain text.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{}\n\n{}", self.first_line(), self.body())
    }

    /// All of it, for programs.
    #[must_use]
    pub fn json(&self) -> String {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        if let Some(fields) = value.as_object_mut() {
            fields.insert("first_line".to_owned(), self.first_line().into());
            fields.insert("text".to_owned(), self.text().into());
        }
        value.to_string()
    }

    /// What it says of the incident.
    fn about(&self) -> Vec<String> {
        let opened = self.opened.text(self.utc_offset_s);
        let mut lines = vec![format!(
            "is incident {} ({}), open since {opened}, message {}",
            self.incident, self.severity, self.count
        )];
        if self.returns > 0 {
            lines.push(format!(
                "it came back {} times; while it comes and goes nothing more is sent",
                self.returns
            ));
        }
        match self.kind {
            NoticeKind::Closed => lines.push("the last message of this incident".to_owned()),
            NoticeKind::Test => lines = vec![format!("was sent at {opened}")],
            NoticeKind::Opened | NoticeKind::Worse | NoticeKind::Repeated => {
                lines.push(
                    "the next one only if it gets worse, ends, or lasts another day".to_owned(),
                );
                lines.push(format!("details:   plexum incident {}", self.incident));
                lines.push(format!(
                    "not again until it gets worse or ends:   plexum ack {} --why \"disk is ordered\"",
                    self.incident
                ));
            }
        }
        lines
    }
}

/// What is said when it is over.
fn over(end: &str, was: &Lines, life: &Life) -> Lines {
    let lasted_s = life.closed.map_or(0, |closed| closed.since_s(life.opened));
    Lines {
        headline: format!("OVER - {end}"),
        what: vec![format!("it lasted {}", duration_text(lasted_s))],
        before: vec![was.headline.clone()],
        ..Lines::default()
    }
}

fn part(text: &mut String, name: &str, lines: &[String]) {
    for (index, line) in lines.iter().enumerate() {
        let name = if index == 0 { name } else { "" };
        text.push_str(&format!("{name:<6} {line}\n"));
    }
}

fn plain_lines(lines: &Lines) -> Lines {
    let each = |part: &[String]| -> Vec<String> {
        let lines = part.iter().take(PART_LINES_MAX);
        lines.map(|line| plain(line)).collect()
    };
    Lines {
        headline: plain(&lines.headline),
        what: each(&lines.what),
        data: each(&lines.data),
        advice: each(&lines.advice),
        before: each(&lines.before),
    }
}

/// `text` as one line that does no harm in a header, a terminal or an environment.
pub(crate) fn plain(text: &str) -> String {
    let is_hidden = |c: char| {
        // Directions of writing could make a line read as something else.
        c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut line: String = text
        .chars()
        .take(LINE_CHARS_MAX)
        .map(|c| if is_hidden(c) { ' ' } else { c })
        .collect();
    if text.chars().nth(LINE_CHARS_MAX).is_some() {
        line.push_str("...");
    }
    line
}
