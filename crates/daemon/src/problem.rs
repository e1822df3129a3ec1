//! What is told to a user when something cannot be done: one slug, one exit code, three parts of text.
//!
//! Invariants:
//! - a slug and its exit code never change once released; slugs are only added;
//! - the first line says what, which member, the value found and the value expected; `why` says why it matters; `hints`
//!   are ways out.
//!
//! The same struct crosses the control socket as JSON, so that a refusal by the server reads like one by the command.

use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $slug:literal, $exit:literal;)*) => {
        /// What went wrong, as a closed list. `slug` is its stable name, `exit` the exit code of the command.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Code { $($(#[$doc])* #[serde(rename = $slug)] $name,)* }

        impl Code {
            /// Every code, in the order of the table.
            pub const ALL: &'static [Code] = &[$(Code::$name,)*];

            /// The stable name, as in `plexum explain SLUG`.
            #[must_use]
            pub fn slug(self) -> &'static str {
                match self { $(Code::$name => $slug,)* }
            }

            /// The exit code of a command that ends with it.
            #[must_use]
            pub fn exit(self) -> u8 {
                match self { $(Code::$name => $exit,)* }
            }
        }
    };
}

codes! {
    /// The command line is not understood or contradicts itself.
    Usage = "usage", 2;
    /// Understood, but this version cannot do it.
    NotYet = "not_yet", 2;
    /// Several volumes run and none was named.
    AmbiguousVolume = "ambiguous_volume", 2;
    /// Something was found on a member that would be overwritten.
    WouldDestroy = "would_destroy", 3;
    /// A destructive plan was not agreed to.
    NotConfirmed = "not_confirmed", 3;
    /// `--assume-clean` on members that are not proven to be all zero.
    NotProvenZero = "not_proven_zero", 3;
    /// A parity volume that was not stopped cleanly and lacks a member.
    DirtyDegraded = "dirty_degraded", 3;
    /// Several sets claim the bytes of a member, and nobody has said which is meant.
    SeveralOwners = "several_owners", 3;
    /// Answered writes are only in a stripe log that cannot be used.
    LogLost = "log_lost", 3;
    /// A reshape in place was interrupted, and what it was moving is whole only in mdadm's backup file.
    ReshapeTorn = "reshape_torn", 3;
    /// A member that was there at the last stop is missing now.
    DegradedStart = "degraded_start", 3;
    /// The step would take away the last redundancy and with it data.
    WouldLoseData = "would_lose_data", 3;
    /// The volume is served read-only.
    ReadOnly = "read_only", 3;
    /// A member that was to be written is write-protected.
    MemberReadOnly = "member_read_only", 3;
    /// An address that others can reach, without TLS.
    InsecureListen = "insecure_listen", 3;
    /// Too few usable members to start.
    TooFewMembers = "too_few_members", 4;
    /// A member missed writes.
    StaleMember = "stale_member", 4;
    /// A member belongs to another array.
    ForeignMember = "foreign_member", 4;
    /// A member was given twice, or two members claim the same slot.
    DuplicateMember = "duplicate_member", 4;
    /// Two halves of an array both went on alone.
    SplitBrain = "split_brain", 4;
    /// Nothing that Plexum knows is on the member.
    NoMetadata = "no_metadata", 4;
    /// Metadata is there, but damaged.
    DamagedMetadata = "damaged_metadata", 4;
    /// Metadata uses a feature that this version must not touch.
    UnsupportedFeature = "unsupported_feature", 4;
    /// The member is smaller than its metadata says or than the volume needs.
    MemberTooSmall = "member_too_small", 4;
    /// The volume has no such member.
    NoSuchMember = "no_such_member", 4;
    /// The member is in a state that does not allow the step.
    WrongState = "wrong_state", 4;
    /// The path of a member does not exist.
    NoSuchFile = "no_such_file", 4;
    /// Reading or writing a member failed.
    IoError = "io_error", 5;
    /// No space is left under a file.
    NoSpace = "no_space", 5;
    /// A member vanished.
    DeviceGone = "device_gone", 5;
    /// Access to a file, device or socket is not allowed.
    NotPermitted = "not_permitted", 5;
    /// Who asks has no role that allows it.
    RoleMissing = "role_missing", 5;
    /// Nobody knows the token that was shown.
    UnknownToken = "unknown_token", 5;
    /// From an address too many tokens were shown that nobody knows.
    TooManyGuesses = "too_many_guesses", 5;
    /// A message did not arrive.
    NotDelivered = "not_delivered", 5;
    /// In use by another process.
    Busy = "busy", 6;
    /// A live server already uses the name or the socket.
    SocketInUse = "socket_in_use", 6;
    /// The same kind of work runs already.
    JobRunning = "job_running", 6;
    /// No volume of that name is served.
    NoSuchVolume = "no_such_volume", 7;
    /// No incident of that number is open.
    NoSuchIncident = "no_such_incident", 7;
    /// The server did not answer.
    NoServer = "no_server", 7;
    /// A bug in Plexum.
    Bug = "bug", 70;
}

/// One problem as told to a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// What went wrong.
    pub code: Code,
    /// First line, without the leading `error:`.
    pub message: String,
    /// Path, slot or name of the member concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// Why it matters, one sentence a line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub why: Vec<String>,
    /// Ways out, ready to print; a command to copy comes after the words that introduce it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<String>,
}

impl Problem {
    /// A problem with its first line; the rest is added with the methods below.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            member: None,
            why: Vec::new(),
            hints: Vec::new(),
        }
    }

    /// Names the member concerned.
    #[must_use]
    pub fn member(mut self, member: impl Into<String>) -> Self {
        self.member = Some(member.into());
        self
    }

    /// Adds a line that says why it matters.
    #[must_use]
    pub fn why(mut self, line: impl Into<String>) -> Self {
        self.why.push(line.into());
        self
    }

    /// Adds a way out.
    #[must_use]
    pub fn hint(mut self, line: impl Into<String>) -> Self {
        self.hints.push(line.into());
        self
    }

    /// `{"error":{"code","exit","message","member","hint",...}}`, as printed with `--json` and sent over the control
    /// socket.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({"error": {
            "code": self.code.slug(),
            "exit": self.code.exit(),
            "message": self.message,
            "member": self.member,
            "hint": (!self.hints.is_empty()).then(|| self.hints.join("\n")),
            "hints": self.hints,
            "why": self.why,
        }})
    }

    /// The problem inside of `to_json`'s object; `None` when it is none.
    #[must_use]
    pub fn from_json(value: &serde_json::Value) -> Option<Self> {
        serde_json::from_value(value.get("error")?.clone()).ok()
    }

    /// An operating system's error while `doing` something to `path` (`reading`, `opening`, ...).
    ///
    /// ENOSPC, EACCES, EBUSY, ENOENT and ENXIO get codes of their own, because the way out differs.
    #[must_use]
    pub fn from_io(error: &std::io::Error, doing: &str, path: &str) -> Self {
        use std::io::ErrorKind;
        let code = match error.kind() {
            ErrorKind::NotFound => Code::NoSuchFile,
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Code::NotPermitted,
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                Code::NoSpace
            }
            ErrorKind::ResourceBusy => Code::Busy,
            _ => Code::IoError,
        };
        let problem =
            Problem::new(code, format!("{doing} {path}: {}", words_of(error))).member(path);
        let hint = match error.kind() {
            ErrorKind::ReadOnlyFilesystem => "its file system is mounted read-only",
            ErrorKind::PermissionDenied => {
                "run it as a user who may read and write this path (devices: root)"
            }
            ErrorKind::StorageFull => "free some space in the file system that holds it",
            ErrorKind::QuotaExceeded => "the quota is used up: free some space, or have it raised",
            ErrorKind::FileTooLarge => {
                "no file may get so large here: a limit of the file system, or of the process (ulimit -f)"
            }
            _ => return problem,
        };
        problem.hint(hint)
    }
}

/// The system's words without "(os error 2)".
pub(crate) fn words_of(error: &std::io::Error) -> String {
    let text = error.to_string();
    let words = text.split(" (os error").next().unwrap_or(&text);
    words.to_lowercase()
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Problem {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_are_unique_and_made_of_small_letters() {
        let mut seen = std::collections::BTreeSet::new();
        for code in Code::ALL {
            assert!(seen.insert(code.slug()), "{} twice", code.slug());
            assert!(
                code.slug()
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b == b'_')
            );
            assert!(matches!(code.exit(), 2..=7 | 70));
        }
    }

    #[test]
    fn a_problem_survives_the_way_over_the_control_socket() {
        let problem = Problem::new(Code::StaleMember, "member 2 (c.img) is stale")
            .member("c.img")
            .why("it missed writes")
            .hint("to bring it up to date:   plexum re-add pool1 c.img");
        let value = problem.to_json();
        assert_eq!(value["error"]["code"], "stale_member");
        assert_eq!(value["error"]["exit"], 4);
        assert_eq!(Problem::from_json(&value).unwrap(), problem);
    }

    #[test]
    fn system_errors_get_the_exit_code_of_their_kind() {
        for (number, exit) in [(2, 4), (13, 5), (27, 5), (28, 5), (16, 6), (5, 5)] {
            let error = std::io::Error::from_raw_os_error(number);
            let problem = Problem::from_io(&error, "opening", "/x");
            assert_eq!(problem.code.exit(), exit, "{problem}");
            assert!(!problem.message.contains("os error"));
            // Space helps only where there is none, and only members have slots.
            let hints = problem.hints.join(" ");
            assert_eq!(hints.contains("free some space"), number == 28, "{hints}");
            assert!(!hints.contains("missing"), "{hints}");
        }
    }
}
