//! What is known of a volume from its start on, and does not change while it is served.

use std::fmt;

use plexum_format::md::MdVersion;
use plexum_layout::Level;
use plexum_md::assemble::Assembly;

use super::status::Finding;
use crate::owners::Choice;

/// Whose metadata the members of a volume carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeFormat {
    /// Linux md's, of this version.
    Md(MdVersion),
    /// Another system's, by the word for it.
    Other(&'static str),
}

impl fmt::Display for VolumeFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VolumeFormat::Md(version) => write!(f, "md-{version}"),
            VolumeFormat::Other(word) => f.write_str(word),
        }
    }
}

/// What does not change while a volume is served.
#[derive(Clone, Debug)]
pub struct Facts {
    /// What kind of organisation it is.
    pub level: Level,
    /// Layout in words.
    pub layout: Option<String>,
    /// Strip size.
    pub strip_bytes: Option<u64>,
    /// Whose metadata its members carry.
    pub format: VolumeFormat,
    /// Identity of the array.
    pub uuid: String,
    /// Size of each member's part, where all are equal.
    pub member_bytes: Option<u64>,
    /// Number of slots.
    pub slots: u32,
    /// How member I/O is done.
    pub io: String,
    /// What was found at the start and stays so.
    pub findings: Vec<Finding>,
    /// Which set is meant where a member may be of several, as was said at the start.
    pub choice: Choice,
}

impl Facts {
    /// The facts of an assembly.
    #[must_use]
    pub fn of(assembly: &Assembly, io: String) -> Self {
        let geometry = &assembly.geometry;
        let organisation = geometry.organisation();
        Self {
            level: organisation.level(),
            layout: organisation.layout_name(),
            strip_bytes: (geometry.strip_bytes() > 0).then(|| geometry.strip_bytes()),
            format: VolumeFormat::Md(assembly.array.version),
            uuid: plexum_format::uuid::md_uuid_text(&assembly.array.uuid),
            member_bytes: organisation
                .level()
                .has_redundancy()
                .then(|| geometry.component_bytes()),
            slots: assembly.missing().len() as u32, // at most MEMBERS_MAX
            io,
            findings: Vec::new(),
            choice: Choice::Only,
        }
    }

    /// Whether it is an md array: those can be divided among threads, and have a bitmap of what a member missed.
    #[must_use]
    pub fn is_md(&self) -> bool {
        matches!(self.format, VolumeFormat::Md(_))
    }

    /// Whether it has copies that reads can be balanced between.
    #[must_use]
    pub fn has_copies(&self) -> bool {
        matches!(self.level, Level::Raid1 | Level::Raid10)
    }
}
