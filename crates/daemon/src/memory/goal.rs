//! What a reshape leads to beyond what the superblocks can say: they name the move that is under way, and nothing of
//! what follows it.

use plexum_layout::Organisation;
use plexum_md::reshape::{Relabel, Shape};
use serde::{Deserialize, Serialize};

/// Where a reshape ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Goal {
    /// The relabel that follows the move, from and to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<(Named, Named)>,
    /// The array had a stripe log, and gets one again.
    #[serde(default)]
    pub has_log: bool,
}

/// A shape in md's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// md's level.
    pub level: i32,
    /// md's layout.
    pub layout: u32,
    /// Slots.
    pub members: u16,
    /// Sectors of a strip.
    pub strip_sectors: u32,
}

impl Named {
    fn of(shape: &Shape) -> Self {
        Self {
            level: shape.organisation.md_level(),
            layout: shape.organisation.md_layout(),
            members: shape.member_count,
            strip_sectors: shape.strip_sectors,
        }
    }

    fn shape(self) -> Option<Shape> {
        Some(Shape {
            organisation: Organisation::from_md(self.level, self.layout).ok()?,
            member_count: self.members,
            strip_sectors: self.strip_sectors,
        })
    }
}

impl Goal {
    /// That of a plan's last station.
    #[must_use]
    pub fn of(last: Option<&Relabel>) -> Self {
        let named = |relabel: &Relabel| (Named::of(&relabel.before), Named::of(&relabel.after));
        Self {
            last: last.map(named),
            has_log: false,
        }
    }

    /// The relabel that follows.
    #[must_use]
    pub fn relabel(&self) -> Option<Relabel> {
        let (before, after) = self.last?;
        Some(Relabel {
            before: before.shape()?,
            after: after.shape()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plexum_layout::{Raid5Layout, Raid6Layout};

    #[test]
    fn a_goal_that_was_kept_is_the_same_when_it_is_read() {
        let shape = |organisation, member_count| Shape {
            organisation,
            member_count,
            strip_sectors: 128,
        };
        let relabel = Relabel {
            before: shape(Organisation::Raid6(Raid6Layout::LeftSymmetric6), 5),
            after: shape(Organisation::Raid5(Raid5Layout::LeftSymmetric), 4),
        };
        let goal = Goal {
            has_log: true,
            ..Goal::of(Some(&relabel))
        };
        let text = serde_json::to_string(&goal).unwrap();
        let read: Goal = serde_json::from_str(&text).unwrap();
        assert_eq!(read.relabel(), Some(relabel));
        assert!(read.has_log);
    }
}
