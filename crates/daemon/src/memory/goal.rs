//! Where a change of an array leads, for arrays whose members have no room to say so (md 0.90 and 1.0).

use plexum_layout::Organisation;
use plexum_md::reshape::{Goal, Relabel, Shape, Stand};
use serde::{Deserialize, Serialize};

/// A goal as the folder keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptGoal {
    /// What the array was, and the sectors used of each member.
    pub from: (Named, u64),
    /// What it will be.
    pub to: (Named, u64),
    /// The relabel that went before the move, from and to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<(Named, Named)>,
    /// The relabel that follows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<(Named, Named)>,
    /// The array had a stripe log, and gets one again.
    #[serde(default)]
    pub has_log: bool,
    /// Bytes of a region of the bitmap that it gets again; 0: none.
    #[serde(default)]
    pub bitmap_region_bytes: u32,
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

fn stand((named, component_sectors): (Named, u64)) -> Option<Stand> {
    Some(Stand {
        shape: named.shape()?,
        component_sectors,
    })
}

fn relabel(kept: Option<(Named, Named)>) -> Option<Relabel> {
    let (before, after) = kept?;
    Some(Relabel {
        before: before.shape()?,
        after: after.shape()?,
    })
}

impl KeptGoal {
    /// That of a goal.
    #[must_use]
    pub fn of(goal: &Goal) -> Self {
        let stand = |stand: &Stand| (Named::of(&stand.shape), stand.component_sectors);
        let named = |relabel: &Relabel| (Named::of(&relabel.before), Named::of(&relabel.after));
        Self {
            from: stand(&goal.from),
            to: stand(&goal.to),
            first: goal.first.as_ref().map(named),
            last: goal.last.as_ref().map(named),
            has_log: goal.has_log,
            bitmap_region_bytes: goal.bitmap_region_bytes,
        }
    }

    /// The goal. `None`: its numbers are of no shape.
    #[must_use]
    pub fn goal(&self) -> Option<Goal> {
        Some(Goal {
            from: stand(self.from)?,
            to: stand(self.to)?,
            first: relabel(self.first),
            last: relabel(self.last),
            has_log: self.has_log,
            bitmap_region_bytes: self.bitmap_region_bytes,
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
        let stand = |shape| Stand {
            shape,
            component_sectors: 4096,
        };
        let between = shape(Organisation::Raid6(Raid6Layout::LeftSymmetric6), 5);
        let five = shape(Organisation::Raid5(Raid5Layout::LeftSymmetric), 4);
        let goal = Goal {
            from: stand(shape(Organisation::Raid6(Raid6Layout::LeftSymmetric), 5)),
            to: stand(five),
            first: None,
            last: Some(Relabel {
                before: between,
                after: five,
            }),
            has_log: true,
            bitmap_region_bytes: 65_536,
        };
        let text = serde_json::to_string(&KeptGoal::of(&goal)).unwrap();
        let read: KeptGoal = serde_json::from_str(&text).unwrap();
        assert_eq!(read.goal(), Some(goal));
    }
}
