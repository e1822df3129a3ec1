//! The organisations and their layouts: md numbers, names and short forms.
//!
//! Invariant: number -> layout -> number and name -> layout -> name are the identity for every layout.
//! Source: linux-md.md sections 1, 7 and 15.

use std::fmt;
use std::str::FromStr;

use super::GeometryError;

/// What kind of organisation, without its layout; the RAID level of people and of md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Level {
    /// Members one after another (concat, JBOD).
    Linear,
    /// Strips in turn, no redundancy.
    Raid0,
    /// Equal copies.
    Raid1,
    /// One parity member.
    Raid4,
    /// Rotating parity.
    Raid5,
    /// Two rotating parities.
    Raid6,
    /// Strips in turn, each several times.
    Raid10,
}

impl Level {
    /// All levels, in the order of their numbers.
    pub const ALL: [Level; 7] = [
        Level::Linear,
        Level::Raid0,
        Level::Raid1,
        Level::Raid4,
        Level::Raid5,
        Level::Raid6,
        Level::Raid10,
    ];

    /// How a refusal of a layout's name ends: the names that the level knows.
    pub(super) fn told_layouts(self) -> String {
        let names: Vec<&str> = match self {
            Level::Linear | Level::Raid1 | Level::Raid4 => return "; leave the layout out".into(),
            Level::Raid0 => Raid0Layout::ALL.iter().map(|(_, name)| *name).collect(),
            Level::Raid5 => Raid5Layout::ALL.iter().map(|(_, name, _)| *name).collect(),
            Level::Raid6 => Raid6Layout::ALL.iter().map(|(_, name, _)| *name).collect(),
            Level::Raid10 => return ": n2, f2 or o2, with more copies n3, f3, o3 ...".into(),
        };
        format!(": it has {}", names.join(", "))
    }

    /// The level field of an md superblock.
    #[must_use]
    pub fn md_number(self) -> i32 {
        match self {
            Level::Linear => -1,
            Level::Raid0 => 0,
            Level::Raid1 => 1,
            Level::Raid4 => 4,
            Level::Raid5 => 5,
            Level::Raid6 => 6,
            Level::Raid10 => 10,
        }
    }

    /// The level of an md superblock; `None` for multipath, faulty and numbers that mean nothing.
    #[must_use]
    pub fn from_md(number: i32) -> Option<Level> {
        Level::ALL
            .into_iter()
            .find(|level| level.md_number() == number)
    }

    /// Whether a member may be lost without losing data (RAID-1: from two members on).
    #[must_use]
    pub fn has_redundancy(self) -> bool {
        !matches!(self, Level::Linear | Level::Raid0)
    }

    /// Whether redundancy is computed (P, Q) instead of copied.
    #[must_use]
    pub fn has_parity(self) -> bool {
        matches!(self, Level::Raid4 | Level::Raid5 | Level::Raid6)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Level::Linear => "linear",
            Level::Raid0 => "raid0",
            Level::Raid1 => "raid1",
            Level::Raid4 => "raid4",
            Level::Raid5 => "raid5",
            Level::Raid6 => "raid6",
            Level::Raid10 => "raid10",
        })
    }
}

impl FromStr for Level {
    type Err = GeometryError;

    /// Understands `linear`, `concat`, `jbod`, `0`, `raid0`, `raid-0`, `stripe`, `1`, `mirror`, ... in any case.
    fn from_str(word: &str) -> Result<Level, GeometryError> {
        let lower = word.to_ascii_lowercase();
        let bare = lower.strip_prefix("raid").unwrap_or(&lower);
        Ok(match bare.strip_prefix('-').unwrap_or(bare) {
            "linear" | "concat" | "jbod" => Level::Linear,
            "0" | "stripe" | "striped" => Level::Raid0,
            "1" | "mirror" => Level::Raid1,
            "4" => Level::Raid4,
            "5" => Level::Raid5,
            "6" => Level::Raid6,
            "10" => Level::Raid10,
            _ => return Err(GeometryError::UnknownLevelWord(word.to_owned())),
        })
    }
}

/// How RAID-0 turns through the members from the second zone on; without effect when all members have one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Raid0Layout {
    /// Turns by the array's strip number (md layout 1; kernels before 3.14).
    Original,
    /// Turns by the zone's strip number (md layout 2; kernels 3.14 to 5.3).
    Alternate,
}

/// Where RAID-5 keeps P and in which order the data follow. The discriminants are md's layout numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)] // the names are md's own; the table is in `parity.rs`
pub enum Raid5Layout {
    LeftAsymmetric = 0,
    RightAsymmetric = 1,
    LeftSymmetric = 2,
    RightSymmetric = 3,
    ParityFirst = 4,
    ParityLast = 5,
}

/// Where RAID-6 keeps P and Q, in which order the data follow, and which exponents they have in Q.
/// The discriminants are md's layout numbers; the `...6` ones are RAID-5 plus Q on the last member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)] // the names are md's own; the table is in `parity.rs`
pub enum Raid6Layout {
    LeftAsymmetric = 0,
    RightAsymmetric = 1,
    LeftSymmetric = 2,
    RightSymmetric = 3,
    ParityFirst = 4,
    ParityLast = 5,
    DdfZeroRestart = 8,
    DdfNRestart = 9,
    DdfNContinue = 10,
    LeftAsymmetric6 = 16,
    RightAsymmetric6 = 17,
    LeftSymmetric6 = 18,
    RightSymmetric6 = 19,
    ParityFirst6 = 20,
}

/// How RAID-10 places its `near * far` copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Raid10Layout {
    /// Copies on neighbouring members at (nearly) the same place.
    pub near: u8,
    /// Copies of those, each in another part of other members.
    pub far: u8,
    /// The far copies follow right behind their row instead of in another part of the member.
    pub offset: bool,
    /// Far copies stay within sets of members: 0 no sets, 1 sets of `members / far` (a mistake of old kernels), 2 sets
    /// of `near * far`.
    pub far_set: u8,
}

impl Raid10Layout {
    /// `nN`: `copies` neighbouring copies.
    #[must_use]
    pub fn near(copies: u8) -> Raid10Layout {
        Raid10Layout {
            near: copies,
            far: 1,
            offset: false,
            far_set: 0,
        }
    }

    /// `fN`: `copies` copies, each in its own part of the members.
    #[must_use]
    pub fn far(copies: u8) -> Raid10Layout {
        Raid10Layout {
            near: 1,
            far: copies,
            offset: false,
            far_set: 0,
        }
    }

    /// `oN`: `copies` copies, each one row below and one member further.
    #[must_use]
    pub fn offset(copies: u8) -> Raid10Layout {
        Raid10Layout {
            near: 1,
            far: copies,
            offset: true,
            far_set: 0,
        }
    }

    /// Copies of each byte.
    #[must_use]
    pub fn copies(&self) -> usize {
        usize::from(self.near) * usize::from(self.far)
    }

    fn md_number(self) -> u32 {
        u32::from(self.near)
            | u32::from(self.far) << 8
            | u32::from(self.offset) << 16
            | u32::from(self.far_set) << 17
    }

    fn from_md(number: u32) -> Option<Raid10Layout> {
        let [near, far, flags, top] = number.to_le_bytes();
        let layout = Raid10Layout {
            near,
            far,
            offset: flags & 1 == 1,
            far_set: flags >> 1,
        };
        (top == 0 && layout.far_set <= 2 && near >= 1 && far >= 1).then_some(layout)
    }

    /// `n2`, `f3`, `o2`; both kinds: `n2f2`; far sets: `f2s2`.
    fn parse(word: &str) -> Option<Raid10Layout> {
        let mut layout = Raid10Layout {
            near: 1,
            far: 1,
            offset: false,
            far_set: 0,
        };
        let mut rest = word;
        let mut last_kind = ' ';
        while let Some(kind) = rest.chars().next() {
            let tail = &rest[kind.len_utf8()..];
            let digits = tail
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(tail.len());
            let number: u8 = tail[..digits].parse().ok()?;
            match (last_kind, kind) {
                (' ', 'n') => layout.near = number,
                (' ' | 'n', 'f' | 'o') => (layout.far, layout.offset) = (number, kind == 'o'),
                ('f' | 'o', 's') => layout.far_set = number,
                _ => return None,
            }
            (rest, last_kind) = (&tail[digits..], kind);
        }
        (last_kind != ' ' && layout.near >= 1 && layout.far >= 1 && layout.far_set <= 2)
            .then_some(layout)
    }
}

impl fmt::Display for Raid10Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.near > 1 || (self.far == 1 && !self.offset && self.far_set == 0) {
            write!(f, "n{}", self.near)?;
        }
        if self.far > 1 || self.offset || self.far_set != 0 {
            write!(f, "{}{}", if self.offset { 'o' } else { 'f' }, self.far)?;
        }
        if self.far_set != 0 {
            write!(f, "s{}", self.far_set)?;
        }
        Ok(())
    }
}

impl Raid0Layout {
    /// Both layouts with their names.
    pub const ALL: [(Raid0Layout, &'static str); 2] = [
        (Raid0Layout::Original, "original"),
        (Raid0Layout::Alternate, "alternate"),
    ];
}

impl Raid5Layout {
    /// All layouts with their long and short names.
    pub const ALL: [(Raid5Layout, &'static str, &'static str); 6] = [
        (Raid5Layout::LeftAsymmetric, "left-asymmetric", "la"),
        (Raid5Layout::RightAsymmetric, "right-asymmetric", "ra"),
        (Raid5Layout::LeftSymmetric, "left-symmetric", "ls"),
        (Raid5Layout::RightSymmetric, "right-symmetric", "rs"),
        (Raid5Layout::ParityFirst, "parity-first", "pf"),
        (Raid5Layout::ParityLast, "parity-last", "pl"),
    ];
}

impl Raid6Layout {
    /// All layouts with their long and short names.
    pub const ALL: [(Raid6Layout, &'static str, &'static str); 14] = [
        (Raid6Layout::LeftAsymmetric, "left-asymmetric", "la"),
        (Raid6Layout::RightAsymmetric, "right-asymmetric", "ra"),
        (Raid6Layout::LeftSymmetric, "left-symmetric", "ls"),
        (Raid6Layout::RightSymmetric, "right-symmetric", "rs"),
        (Raid6Layout::ParityFirst, "parity-first", "pf"),
        (Raid6Layout::ParityLast, "parity-last", "pl"),
        (
            Raid6Layout::DdfZeroRestart,
            "ddf-zero-restart",
            "ddf-0-restart",
        ),
        (Raid6Layout::DdfNRestart, "ddf-N-restart", "ddf-n-restart"),
        (
            Raid6Layout::DdfNContinue,
            "ddf-N-continue",
            "ddf-n-continue",
        ),
        (Raid6Layout::LeftAsymmetric6, "left-asymmetric-6", "la-6"),
        (Raid6Layout::RightAsymmetric6, "right-asymmetric-6", "ra-6"),
        (Raid6Layout::LeftSymmetric6, "left-symmetric-6", "ls-6"),
        (Raid6Layout::RightSymmetric6, "right-symmetric-6", "rs-6"),
        (Raid6Layout::ParityFirst6, "parity-first-6", "pf-6"),
    ];
}

/// An organisation with its layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Organisation {
    /// Members one after another.
    Linear,
    /// Strips in turn over the members, in zones where the members have different sizes.
    Raid0(Raid0Layout),
    /// The same data at the same place of every member.
    Raid1,
    /// P on the last member.
    Raid4,
    /// Rotating P.
    Raid5(Raid5Layout),
    /// Rotating P and Q.
    Raid6(Raid6Layout),
    /// Strips in turn, each several times.
    Raid10(Raid10Layout),
}

impl Organisation {
    /// The level without the layout.
    #[must_use]
    pub fn level(&self) -> Level {
        match self {
            Organisation::Linear => Level::Linear,
            Organisation::Raid0(_) => Level::Raid0,
            Organisation::Raid1 => Level::Raid1,
            Organisation::Raid4 => Level::Raid4,
            Organisation::Raid5(_) => Level::Raid5,
            Organisation::Raid6(_) => Level::Raid6,
            Organisation::Raid10(_) => Level::Raid10,
        }
    }

    /// The level field of an md superblock.
    #[must_use]
    pub fn md_level(&self) -> i32 {
        self.level().md_number()
    }

    /// The layout field of an md superblock (0 where the level has none).
    #[must_use]
    pub fn md_layout(&self) -> u32 {
        match self {
            Organisation::Linear | Organisation::Raid1 | Organisation::Raid4 => 0,
            Organisation::Raid0(Raid0Layout::Original) => 1,
            Organisation::Raid0(Raid0Layout::Alternate) => 2,
            Organisation::Raid5(layout) => *layout as u32,
            Organisation::Raid6(layout) => *layout as u32,
            Organisation::Raid10(layout) => layout.md_number(),
        }
    }

    /// The organisation that an md superblock means. The layout of levels without layouts is ignored, as the kernel
    /// does.
    ///
    /// # Errors
    /// `UnknownLevel`, `UnknownLayout`; `Raid0LayoutUnknown` for RAID-0 with layout 0: the caller may take either when
    /// there is one zone only.
    pub fn from_md(level: i32, layout: u32) -> Result<Organisation, GeometryError> {
        let unknown = GeometryError::UnknownLayout { level, layout };
        Ok(
            match Level::from_md(level).ok_or(GeometryError::UnknownLevel(level))? {
                Level::Linear => Organisation::Linear,
                Level::Raid0 => match layout {
                    0 => return Err(GeometryError::Raid0LayoutUnknown),
                    1 => Organisation::Raid0(Raid0Layout::Original),
                    2 => Organisation::Raid0(Raid0Layout::Alternate),
                    _ => return Err(unknown),
                },
                Level::Raid1 => Organisation::Raid1,
                Level::Raid4 => Organisation::Raid4,
                Level::Raid5 => {
                    let found = Raid5Layout::ALL.iter().find(|(l, ..)| *l as u32 == layout);
                    Organisation::Raid5(found.ok_or(unknown)?.0)
                }
                Level::Raid6 => {
                    let found = Raid6Layout::ALL.iter().find(|(l, ..)| *l as u32 == layout);
                    Organisation::Raid6(found.ok_or(unknown)?.0)
                }
                Level::Raid10 => {
                    Organisation::Raid10(Raid10Layout::from_md(layout).ok_or(unknown)?)
                }
            },
        )
    }

    /// The organisation that a user names by level and layout word; without a word mdadm's default (left-symmetric, n2,
    /// original).
    ///
    /// Understands long and short words in any case, and for RAID-5 the DDF words as mdadm does.
    /// # Errors
    /// `UnknownLayoutWord` when the level has no such layout.
    pub fn from_words(level: Level, layout: Option<&str>) -> Result<Organisation, GeometryError> {
        let word = layout.map_or_else(|| "default".to_owned(), str::to_ascii_lowercase);
        let is_default = word == "default";
        let found = match level {
            Level::Linear => is_default.then_some(Organisation::Linear),
            Level::Raid1 => is_default.then_some(Organisation::Raid1),
            Level::Raid4 => is_default.then_some(Organisation::Raid4),
            Level::Raid0 if is_default => Some(Organisation::Raid0(Raid0Layout::Original)),
            Level::Raid0 => Raid0Layout::ALL
                .iter()
                .find(|(_, name)| *name == word)
                .map(|(l, _)| Organisation::Raid0(*l)),
            Level::Raid5 => parse_raid5(&word).map(Organisation::Raid5),
            Level::Raid6 => parse_raid6(&word).map(Organisation::Raid6),
            Level::Raid10 if is_default => Some(Organisation::Raid10(Raid10Layout::near(2))),
            Level::Raid10 => Raid10Layout::parse(&word).map(Organisation::Raid10),
        };
        found.ok_or_else(|| GeometryError::UnknownLayoutWord {
            level,
            word: layout.unwrap_or_default().to_owned(),
        })
    }

    /// The long name of the layout alone; `None` where the level has none.
    #[must_use]
    pub fn layout_name(&self) -> Option<String> {
        match self {
            Organisation::Linear | Organisation::Raid1 | Organisation::Raid4 => None,
            Organisation::Raid0(layout) => Raid0Layout::ALL
                .iter()
                .find(|(l, _)| l == layout)
                .map(|(_, name)| (*name).to_owned()),
            Organisation::Raid5(layout) => Raid5Layout::ALL
                .iter()
                .find(|(l, ..)| l == layout)
                .map(|(_, name, _)| (*name).to_owned()),
            Organisation::Raid6(layout) => Raid6Layout::ALL
                .iter()
                .find(|(l, ..)| l == layout)
                .map(|(_, name, _)| (*name).to_owned()),
            Organisation::Raid10(layout) => Some(layout.to_string()),
        }
    }
}

fn parse_raid5(word: &str) -> Option<Raid5Layout> {
    match word {
        "default" => return Some(Raid5Layout::LeftSymmetric),
        "ddf-zero-restart" => return Some(Raid5Layout::RightAsymmetric),
        "ddf-n-restart" => return Some(Raid5Layout::LeftAsymmetric),
        "ddf-n-continue" => return Some(Raid5Layout::LeftSymmetric),
        _ => {}
    }
    let named = |(_, long, short): &&(_, &str, &str)| *long == word || *short == word;
    Raid5Layout::ALL
        .iter()
        .find(named)
        .map(|(layout, ..)| *layout)
}

fn parse_raid6(word: &str) -> Option<Raid6Layout> {
    if word == "default" {
        return Some(Raid6Layout::LeftSymmetric);
    }
    let named =
        |(_, long, short): &&(_, &str, &str)| long.eq_ignore_ascii_case(word) || *short == word;
    Raid6Layout::ALL
        .iter()
        .find(named)
        .map(|(layout, ..)| *layout)
}

impl fmt::Display for Organisation {
    /// `raid6 left-symmetric`, `raid10 f2`, `raid1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.level())?;
        match self.layout_name() {
            Some(name) => write!(f, " {name}"),
            None => Ok(()),
        }
    }
}
