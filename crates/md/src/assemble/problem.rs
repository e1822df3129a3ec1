//! Why members do not make a volume: one code, one sentence, reasons and ways out.

use std::fmt;

use super::Examined;

/// What is wrong, as a closed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AssembleCode {
    /// No member was given.
    NoMetadata,
    /// Members of different arrays.
    ForeignMember,
    /// A member was given twice, or two claim one slot.
    DuplicateMember,
    /// Two parts of the array both went on alone.
    SplitBrain,
    /// A parity array that was not stopped cleanly and lacks a member.
    DirtyDegraded,
    /// A member that took part when the array was last written is missing.
    DegradedStart,
    /// Not enough usable members.
    TooFewMembers,
    /// A feature that must not be started this way.
    UnsupportedFeature,
    /// Answered writes are only in a stripe log that cannot be used.
    LogLost,
    /// A reshape in place was interrupted, and what it was moving may be nowhere but in a backup file.
    ReshapeTorn,
    /// The freshest superblock describes an array that cannot be.
    DamagedMetadata,
}

impl AssembleCode {
    /// The stable name, as in `plexum explain SLUG`.
    #[must_use]
    pub fn slug(self) -> &'static str {
        match self {
            AssembleCode::NoMetadata => "no_metadata",
            AssembleCode::ForeignMember => "foreign_member",
            AssembleCode::DuplicateMember => "duplicate_member",
            AssembleCode::SplitBrain => "split_brain",
            AssembleCode::DirtyDegraded => "dirty_degraded",
            AssembleCode::DegradedStart => "degraded_start",
            AssembleCode::TooFewMembers => "too_few_members",
            AssembleCode::UnsupportedFeature => "unsupported_feature",
            AssembleCode::LogLost => "log_lost",
            AssembleCode::ReshapeTorn => "reshape_torn",
            AssembleCode::DamagedMetadata => "damaged_metadata",
        }
    }

    /// Exit code: 3 refused to protect data (an option overrides), 4 the members don't make a volume.
    #[must_use]
    pub fn exit(self) -> u8 {
        match self {
            AssembleCode::DirtyDegraded
            | AssembleCode::DegradedStart
            | AssembleCode::LogLost
            | AssembleCode::ReshapeTorn => 3,
            _ => 4,
        }
    }
}

/// A refusal. The first line says what and which member, with the values found and expected; then why it matters; then
/// ways out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssembleError {
    /// What is wrong.
    pub code: AssembleCode,
    /// First line, without the leading `error:`.
    pub message: String,
    /// The member concerned: the caller's index.
    pub member: Option<usize>,
    /// Why it matters, one sentence a line.
    pub why: Vec<String>,
    /// Ways out, one a line.
    pub hints: Vec<String>,
}

impl AssembleError {
    /// A partial parity log says that strips of a missing member were being written, or says nothing.
    pub(crate) fn strip_lost(name: &str) -> Self {
        let message = format!(
            "array {name} was not stopped cleanly, and strips of a missing member may have been half written"
        );
        Self::new(AssembleCode::DirtyDegraded, message)
            .why("a partial parity log protects every strip but those that are written together with others")
            .hint("add the missing member if it still exists")
            .hint("or add --force: rows in doubt then answer with errors (with --force-data: with what is there)")
    }

    pub(super) fn new(code: AssembleCode, message: impl Into<String>) -> AssembleError {
        AssembleError {
            code,
            message: message.into(),
            member: None,
            why: Vec::new(),
            hints: Vec::new(),
        }
    }

    pub(super) fn member(mut self, examined: &Examined) -> AssembleError {
        self.member = Some(examined.index);
        self
    }

    pub(super) fn why(mut self, line: impl Into<String>) -> AssembleError {
        self.why.push(line.into());
        self
    }

    pub(super) fn hint(mut self, line: impl Into<String>) -> AssembleError {
        self.hints.push(line.into());
        self
    }
}

impl fmt::Display for AssembleError {
    /// All lines, the later ones indented by two.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.why
            .iter()
            .chain(&self.hints)
            .try_for_each(|line| write!(f, "\n  {line}"))
    }
}

impl std::error::Error for AssembleError {}
