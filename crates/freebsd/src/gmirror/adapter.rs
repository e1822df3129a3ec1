//! A served mirror's labels: what happens to the engine's array becomes events of the mirror, whose labels are
//! committed.
//!
//! Invariants:
//! - a label is written when it changed, and only then;
//! - a member that failed by an I/O error is broken for good (genid), one that vanished gets behind (syncid), both
//!   before the write that it missed is answered (W3);
//! - a new genid or syncid is durable on complete components before an incomplete one has it: cut off in between, those
//!   that have the newest numbers can always be started.

use std::collections::BTreeMap;

use plexum_format::gmirror::MirrorLabel;

use plexum_block::device::DeviceInfo;
use plexum_block::ranges::RangeSet;
use plexum_engine::metadata::{CommitView, Metadata, MetadataWrite, NewMemberPlace};
use plexum_engine::mutant::{DeliberateBug, Mutant};
use plexum_engine::state::{FailCause, MemberId, MemberRecord, Standing};

use super::{Command, ComponentState, Effect, Event, Key, Mirror, NewComponent, Provider};

/// gmirror's metadata of one served mirror.
pub struct GmirrorMetadata {
    mirror: Mirror,
    /// By `MemberId`.
    members: Vec<Member>,
    /// Labels that are on the disks, and those that are due.
    written: BTreeMap<Key, MirrorLabel>,
    due: BTreeMap<Key, MirrorLabel>,
    /// Labels of incomplete components that go with the next commit: a number that no complete one has makes no mirror.
    later: BTreeMap<Key, MirrorLabel>,
    /// Genid and syncid that the complete components have durably, and the commit that was staged last.
    numbers: (u32, u32),
    staged: Option<u64>,
    bug: DeliberateBug,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    key: Key,
    standing: Standing,
    cause: Option<FailCause>,
    size_bytes: u64,
    sector_bytes: u32,
    component_id: u32,
    is_inserted: bool,
    /// It replaces another one, and there is one component more until that one goes.
    is_one_more: bool,
}

impl GmirrorMetadata {
    /// The metadata of `mirror`; `due` are the labels that its start asks for. `members` are the keys by `MemberId`
    /// with the standing in which they enter.
    #[must_use]
    pub fn new(mirror: Mirror, due: Vec<Effect>, members: &[(Key, Standing)]) -> Self {
        let members = members.iter().map(|(key, standing)| {
            let component = mirror.component(*key);
            Member {
                key: *key,
                standing: *standing,
                cause: None,
                size_bytes: component.map_or(0, |component| component.size_bytes),
                sector_bytes: component.map_or(512, |component| component.sector_bytes),
                component_id: component.map_or(0, |component| component.label.component_id),
                is_inserted: true,
                is_one_more: false,
            }
        });
        let mut metadata = Self {
            members: members.collect(),
            numbers: (mirror.generation_id, mirror.sync_id),
            mirror,
            written: BTreeMap::new(),
            due: BTreeMap::new(),
            later: BTreeMap::new(),
            staged: None,
            bug: DeliberateBug::NONE,
        };
        metadata.take(due);
        // Whoever is missing must not come back as an equal of those that were chosen, or were filled meanwhile.
        if metadata.mirror.has_unequal && metadata.mirror.raises_sync_id {
            let effects = metadata.mirror.raise_sync_id();
            metadata.take(effects);
        }
        metadata
    }

    /// With a deliberate bug.
    #[must_use]
    pub fn with_bug(mut self, bug: DeliberateBug) -> Self {
        self.bug = bug;
        self
    }

    /// What goes to the labels with the commit that begins.
    fn stage(&mut self, view: &CommitView<'_>) {
        if self.staged.replace(view.event_count) == Some(view.event_count) {
            return;
        }
        for (key, label) in std::mem::take(&mut self.later) {
            self.due.entry(key).or_insert(label);
        }
        self.follow(view);
        let numbers = (self.mirror.generation_id, self.mirror.sync_id);
        if self.numbers == numbers {
            return;
        }
        self.numbers = numbers;
        for component in &self.mirror.components {
            if component.state == ComponentState::Synchronizing
                && let Some(label) = self.due.remove(&component.key)
            {
                self.later.insert(component.key, label);
            }
        }
    }

    fn take(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            if let Effect::WriteLabel { key, label } = effect {
                self.due.insert(key, *label);
            }
        }
    }

    /// An event that the engine has already seen: what the mirror refuses (the last active component) needs no label.
    fn apply(&mut self, event: Event) {
        if let Ok(effects) = self.mirror.apply(event) {
            self.take(effects);
        }
    }

    /// Brings the mirror up to the engine's state: first who came up, then who was lost, so that a member which was
    /// replaced goes when its heir is complete.
    fn follow(&mut self, view: &CommitView<'_>) {
        let count = self.members.len().min(view.state.members.len());
        let mut lost = Vec::new();
        for index in 0..count {
            let before = self.members[index];
            let now = view.state.members[index].standing;
            self.members[index].standing = now;
            let is_out = |standing| matches!(standing, Standing::Faulty | Standing::Removed);
            if is_out(now) && !is_out(before.standing) {
                lost.push(before);
            } else {
                self.came_up(index, before, &view.state.members[index]);
            }
        }
        for member in lost {
            self.lost(member);
        }
        if view.state.is_dirty && (self.mirror.is_idle || self.mirror.raises_sync_id) {
            self.apply(Event::Write);
        } else if !view.state.is_dirty {
            self.apply(Event::Quiet);
        }
    }

    fn came_up(&mut self, index: usize, before: Member, record: &MemberRecord) {
        let now = record.standing;
        let is_filling = matches!(now, Standing::Rebuilding { .. });
        if before.standing == Standing::Spare && (is_filling || now == Standing::Active) {
            self.insert(index, record.is_replacement);
        }
        let known = self.mirror.component(before.key);
        let Some(known) = known.filter(|known| known.state == ComponentState::Synchronizing) else {
            return;
        };
        let key = before.key;
        match now {
            Standing::Active => self.apply(Event::RebuildDone(key)),
            Standing::Rebuilding {
                valid_below_bytes, ..
            } => {
                let offset_bytes = valid_below_bytes.min(self.mirror.volume_bytes);
                if known.label.sync_offset_bytes < offset_bytes {
                    self.apply(Event::RebuildAt { key, offset_bytes });
                }
            }
            _ => {}
        }
    }

    fn lost(&mut self, member: Member) {
        let key = member.key;
        let is_gone = matches!(member.cause, Some(FailCause::Gone | FailCause::TimedOut));
        match member.cause {
            Some(FailCause::Asked) => {
                self.apply(Event::Command(Command::Deactivate(key)));
                // Not with the next write: it may come after a stop and `forget`, when nobody knows that one is
                // missing.
                let effects = self.mirror.raise_sync_id();
                self.take(effects);
            }
            Some(_) if self.loses_quietly(is_gone) => {
                self.apply(Event::Unplugged(key));
                self.mirror.raises_sync_id = false;
            }
            Some(_) => self.apply(Event::WriteFailed { key, is_gone }),
            // It was replaced: the mirror goes on without it.
            None => {
                self.apply(Event::Unplugged(key));
                let is_heir = |member: &&mut Member| {
                    member.is_one_more && member.standing == Standing::Active
                };
                let heir = self.members.iter_mut().find(is_heir);
                let is_one_more = heir.is_some_and(|heir| std::mem::take(&mut heir.is_one_more));
                self.set_count(
                    self.mirror
                        .component_count
                        .saturating_sub(u8::from(is_one_more)),
                );
            }
        }
        if member.is_one_more && !matches!(member.cause, None | Some(FailCause::Asked)) {
            self.set_count(self.mirror.component_count.saturating_sub(1)); // the one to be replaced stays
        }
        self.due.remove(&key);
        self.later.remove(&key);
    }

    /// `SyncIdNotRaised`, `GenerationNotRaised`.
    fn loses_quietly(&self, is_gone: bool) -> bool {
        match is_gone {
            true => self.bug.is(Mutant::SyncIdNotRaised),
            false => self.bug.is(Mutant::GenerationNotRaised),
        }
    }

    /// How many components there should be. Those that are not attached get behind at once: a former one must never
    /// pass for one that is missing later.
    fn set_count(&mut self, count: u8) {
        let effects = self.mirror.set_count(count);
        self.take(effects);
        let effects = self.mirror.raise_sync_id();
        self.take(effects);
    }

    /// A new member is inserted and tasted. It takes the place of a missing one, if there is one; the others that are
    /// missing stay expected. When nobody is missing there is one component more, for good or until the one that it
    /// replaces goes.
    fn insert(&mut self, index: usize, is_replacement: bool) {
        let member = self.members[index];
        if member.is_inserted {
            return;
        }
        self.members[index].is_inserted = true;
        let count = self.mirror.component_count;
        let attached = u8::try_from(self.mirror.components.len()).unwrap_or(u8::MAX);
        self.apply(Event::Command(Command::Forget)); // `insert` needs all that are expected
        let new = NewComponent {
            key: member.key,
            provider: String::new(),
            size_bytes: member.size_bytes,
            sector_bytes: member.sector_bytes,
            component_id: member.component_id,
            priority: 0,
            is_inactive: false,
            is_bound: false,
        };
        self.apply(Event::Command(Command::Insert(new)));
        if let Some(label) = self.due.get(&member.key).cloned() {
            self.apply(Event::Taste(Box::new(Provider {
                key: member.key,
                name: String::new(),
                size_bytes: member.size_bytes,
                sector_bytes: member.sector_bytes,
                label,
            })));
        }
        if attached < count {
            self.set_count(count);
        } else {
            self.members[index].is_one_more = is_replacement && count < u8::MAX;
        }
    }

    /// The mirror as it is now.
    #[must_use]
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }
}

impl Metadata for GmirrorMetadata {
    fn format_name(&self) -> String {
        "gmirror".to_owned()
    }

    fn superblock(
        &mut self,
        member: MemberId,
        view: &CommitView<'_>,
        _bad: &RangeSet,
        _info: &DeviceInfo,
    ) -> Vec<MetadataWrite> {
        self.stage(view);
        let Some(member) = self.members.get(usize::from(member.0)).copied() else {
            return Vec::new();
        };
        let Some(label) = self.due.remove(&member.key) else {
            return Vec::new();
        };
        if self.written.get(&member.key) == Some(&label) {
            return Vec::new();
        }
        let mut bytes = label.encode().to_vec();
        bytes.resize(member.sector_bytes as usize, 0);
        self.written.insert(member.key, label);
        vec![MetadataWrite {
            at_bytes: member.size_bytes - u64::from(member.sector_bytes),
            bytes,
        }]
    }

    fn has_commits(&self) -> bool {
        true
    }

    fn is_commit_due(&self) -> bool {
        self.mirror.has_unequal
    }

    fn note_failure(&mut self, member: MemberId, cause: FailCause) {
        if let Some(member) = self.members.get_mut(usize::from(member.0)) {
            member.cause = Some(cause);
        }
    }

    fn add_member(
        &mut self,
        member: MemberId,
        identity: [u8; 16],
        info: &DeviceInfo,
    ) -> Result<NewMemberPlace, String> {
        assert_eq!(
            usize::from(member.0),
            self.members.len(),
            "ids are given in order"
        );
        if !self.mirror.sector_bytes.is_multiple_of(info.sector_bytes) {
            return Err(format!(
                "its sectors of {} bytes do not fit the mirror's {}",
                info.sector_bytes, self.mirror.sector_bytes
            ));
        }
        let used: Vec<u32> = self
            .members
            .iter()
            .map(|member| member.component_id)
            .collect();
        let wanted = u32::from_le_bytes([identity[0], identity[1], identity[2], identity[3]]);
        let component_id = (0..=u32::MAX)
            .map(|step| wanted.wrapping_add(step))
            .find(|id| !used.contains(id));
        let key = Key(usize::MAX - usize::from(member.0)); // apart from the numbers of devices at the start
        self.members.push(Member {
            key,
            standing: Standing::Spare,
            cause: None,
            size_bytes: info.size_bytes,
            sector_bytes: info.sector_bytes,
            component_id: component_id.unwrap_or(wanted),
            is_inserted: false,
            is_one_more: false,
        });
        let end = info.size_bytes.saturating_sub(u64::from(info.sector_bytes));
        Ok(NewMemberPlace {
            data: 0..end.min(self.mirror.volume_bytes),
        })
    }

    // A removed member keeps its place, whether a label has named it or not: its id is not given again.

    fn withdraw_member(&mut self, member: MemberId) {
        debug_assert_eq!(usize::from(member.0) + 1, self.members.len());
        self.members.pop();
    }
}
