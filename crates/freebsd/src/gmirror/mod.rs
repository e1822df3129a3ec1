//! FreeBSD's gmirror as a state machine: providers show up and vanish, writes and errors happen, commands are given;
//! what has to be written to whose last sector follows.
//!
//! Invariants:
//! - `apply` does no I/O and knows no clock; every change of a label is an effect, in the order in which it must be
//!   written;
//! - components are in list order: priority descending, a newcomer in front of its equals;
//! - a component is only ever brought in as complete when nothing says otherwise: right genid, newest syncid, not
//!   SYNCHRONIZING, and not DIRTY while a clean one is there;
//! - the last active component is never dropped.
//!
//! Source: freebsd-geom.md sections 1.4 to 1.7, 1.10, 1.11 and 1.13; the defects of 1.15 are not copied, each is a
//! test.

mod adapter;
mod change;
mod command;
mod open;
mod taste;
#[cfg(test)]
mod tests;

use std::fmt;

use plexum_format::gmirror::{Balance, MirrorLabel, NEWEST_VERSION};

use change::Failure;
use taste::Others;

pub use adapter::GmirrorMetadata;
pub use command::{Command, NewComponent, Settings};
pub use open::{MirrorRequest, open_mirror};
pub use taste::{Assembled, assemble};

/// Seconds without a write after which a mirror counts as idle.
pub const IDLE_SECONDS: u64 = 5;
/// Seconds after which a mirror starts without the components that have not shown up.
pub const START_TIMEOUT_SECONDS: u64 = 4;

/// The caller's number of a provider; stable while it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub usize);

/// A provider that showed up, with the label that was read from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    /// The caller's number.
    pub key: Key,
    /// Its name without `/dev/`; of an image file the base name.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// Its sector: where the label was found says so for an image file.
    pub sector_bytes: u32,
    /// Its label, checked.
    pub label: MirrorLabel,
}

/// State of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ComponentState {
    /// Attached, undecided.
    New,
    /// Complete.
    Active,
    /// Missed writes, and nobody has asked to rebuild it: neither read nor written.
    Stale,
    /// Being rebuilt.
    Synchronizing,
}

impl ComponentState {
    /// FreeBSD's word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::New => "NEW",
            Self::Active => "ACTIVE",
            Self::Stale => "STALE",
            Self::Synchronizing => "SYNCHRONIZING",
        }
    }
}

/// State of a mirror as users see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MirrorState {
    /// Waits for components.
    Starting,
    /// As many active components as there should be.
    Complete,
    /// Everything else that serves.
    Degraded,
}

impl MirrorState {
    /// FreeBSD's word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Starting => "STARTING",
            Self::Complete => "COMPLETE",
            Self::Degraded => "DEGRADED",
        }
    }
}

/// An attached component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// The caller's number of its provider.
    pub key: Key,
    /// Name of its provider.
    pub provider: String,
    /// Its provider's size.
    pub size_bytes: u64,
    /// Its provider's sector.
    pub sector_bytes: u32,
    /// Its label as it is, or as it will be with the effects given so far.
    pub label: MirrorLabel,
    /// What it may be used for.
    pub state: ComponentState,
}

/// A mirror with its attached components.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub mirror_id: u32,
    /// Newest generation known.
    pub generation_id: u32,
    /// Newest synchronisation known.
    pub sync_id: u32,
    /// How many components there should be.
    pub component_count: u8,
    /// How reads are spread.
    pub balance: Balance,
    /// Reads above this are split.
    pub slice_bytes: u32,
    /// Size of the volume.
    pub volume_bytes: u64,
    /// Sector of the volume.
    pub sector_bytes: u32,
    /// Stale components wait for the operator.
    pub has_no_autosync: bool,
    /// Nothing is marked dirty.
    pub has_no_failsync: bool,
    /// Attached components, in list order.
    pub components: Vec<Component>,
    /// It has started.
    pub is_running: bool,
    /// The next write raises the syncid before any data.
    pub raises_sync_id: bool,
    /// Components differ, or may: what the start decided about them is durable before anything is read.
    pub has_unequal: bool,
    /// No write since the last quiet time: components are not marked dirty.
    pub is_idle: bool,
    /// Identities of components that were attached once and are not any more.
    pub detached: Vec<u32>,
    /// Identities that `forget` gave up: they never come back by themselves.
    pub forgotten: Vec<u32>,
}

/// Something that happens to a mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A provider with a label of this name showed up.
    Taste(Box<Provider>),
    /// The time for missing components to show up is over.
    StartTimeout,
    /// A write is about to begin: its effects are durable before any data (W1).
    Write,
    /// No write is in flight, and the volume was closed, stopped, or idle long enough.
    Quiet,
    /// The provider vanished.
    Unplugged(Key),
    /// A read failed. `is_gone`: the device is no more.
    ReadFailed {
        /// Which.
        key: Key,
        /// The device is gone.
        is_gone: bool,
    },
    /// A write failed, and others did not.
    WriteFailed {
        /// Which.
        key: Key,
        /// The device is gone.
        is_gone: bool,
    },
    /// The label could not be written.
    LabelFailed(Key),
    /// A rebuild has come so far, durably.
    RebuildAt {
        /// Which.
        key: Key,
        /// Everything below is complete.
        offset_bytes: u64,
    },
    /// A rebuild has ended, durably.
    RebuildDone(Key),
    /// The operator wants something.
    Command(Command),
}

/// What follows from an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Write this label to the provider's last sector.
    WriteLabel {
        /// Whose.
        key: Key,
        /// What.
        label: Box<MirrorLabel>,
    },
    /// Zero the provider's last sector.
    ClearLabel(Key),
    /// The component does not belong to the mirror any more; its label stays unless another effect changes it.
    Dropped {
        /// Which.
        key: Key,
        /// Why.
        reason: Refusal,
    },
    /// Begin to fill this component.
    StartRebuild {
        /// Which.
        key: Key,
        /// From where.
        from_bytes: u64,
    },
    /// A newer component showed up while older ones are being served: what is read is old.
    OldDataServed(Key),
    /// Nothing complete is left: the volume is gone.
    Destroyed,
}

/// Why a component or a command is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The label is bound to another provider.
    OtherProvider {
        /// The provider it names.
        bound_to: String,
    },
    /// The label belongs to a provider of another size.
    OtherSize {
        /// The size it names.
        recorded_bytes: u64,
    },
    /// Taken out by the operator.
    Inactive,
    /// Another mirror of the same name.
    OtherMirror {
        /// Identity of the mirror that is known.
        known: u32,
    },
    /// This component is there already: one of them is a bit copy.
    Duplicate {
        /// The provider that has it.
        other: String,
    },
    /// The provider is smaller than the mirror.
    TooSmall,
    /// The sectors do not fit.
    OtherSector {
        /// Sector of the mirror.
        mirror_sector_bytes: u32,
    },
    /// It was dropped for an error, and others went on without it.
    Broken {
        /// Its genid.
        generation_id: u32,
        /// The mirror's.
        newest: u32,
    },
    /// It is newer than the mirror that runs.
    Newer,
    /// `forget` gave it up.
    Forgotten,
    /// Its settings differ from those of the newest components.
    OtherSettings,
    /// An operation on a component that is not there.
    NotThere,
    /// Components are missing, and the command needs all.
    NotComplete,
    /// It is the last complete component.
    LastActive,
    /// Nothing would change.
    NothingChanged,
    /// As many components as the format can count.
    TooMany,
    /// The name of its provider is longer than a label can keep: bound to it, it would never fit again.
    LongName,
    /// The device vanished.
    Gone,
    /// Reading, writing or rebuilding it failed.
    IoError,
    /// As asked.
    Asked,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherProvider { bound_to } => write!(f, "its label is bound to {bound_to}"),
            Self::OtherSize { recorded_bytes } => {
                write!(
                    f,
                    "its label belongs to a provider of {recorded_bytes} bytes"
                )
            }
            Self::Inactive => f.write_str("it was deactivated"),
            Self::OtherMirror { known } => {
                write!(f, "another mirror of this name is known, with id {known}")
            }
            Self::Duplicate { other } => write!(f, "{other} is the same component: one is a copy"),
            Self::TooSmall => f.write_str("it is smaller than the mirror"),
            Self::OtherSector {
                mirror_sector_bytes,
            } => {
                write!(
                    f,
                    "its sector does not fit the mirror's {mirror_sector_bytes} bytes"
                )
            }
            Self::Broken {
                generation_id,
                newest,
            } => write!(
                f,
                "it was dropped for an error: generation {generation_id}, newest is {newest}"
            ),
            Self::Newer => f.write_str("it is newer than the components that are served"),
            Self::Forgotten => f.write_str("it was forgotten"),
            Self::OtherSettings => f.write_str("its settings differ from the newest components'"),
            Self::NotThere => f.write_str("no such component is attached"),
            Self::NotComplete => f.write_str("components are missing"),
            Self::LastActive => f.write_str("it is the last complete component"),
            Self::NothingChanged => f.write_str("nothing has changed"),
            Self::TooMany => f.write_str("a mirror has at most 255 components"),
            Self::LongName => {
                f.write_str("a label is bound to names of at most 15 bytes, and one is longer")
            }
            Self::Gone => f.write_str("the device is gone"),
            Self::IoError => f.write_str("an I/O error"),
            Self::Asked => f.write_str("as asked"),
        }
    }
}

/// What an event leads to, or why it is refused; a refusal changes nothing.
pub type Outcome = Result<Vec<Effect>, Refusal>;

impl Mirror {
    /// State for people.
    #[must_use]
    pub fn state(&self) -> MirrorState {
        if !self.is_running {
            return MirrorState::Starting;
        }
        if self.active_count() == usize::from(self.component_count) {
            MirrorState::Complete
        } else {
            MirrorState::Degraded
        }
    }

    /// Number of complete components.
    #[must_use]
    pub fn active_count(&self) -> usize {
        self.count_of(ComponentState::Active)
    }

    fn count_of(&self, state: ComponentState) -> usize {
        let components = self.components.iter();
        components
            .filter(|component| component.state == state)
            .count()
    }

    /// A component by the number of its provider.
    #[must_use]
    pub fn component(&self, key: Key) -> Option<&Component> {
        self.components
            .iter()
            .find(|component| component.key == key)
    }

    fn component_mut(&mut self, key: Key) -> Result<&mut Component, Refusal> {
        let found = self
            .components
            .iter_mut()
            .find(|component| component.key == key);
        found.ok_or(Refusal::NotThere)
    }

    /// Applies one event.
    ///
    /// # Errors
    /// Why it is refused; nothing has changed then.
    pub fn apply(&mut self, event: Event) -> Outcome {
        let effects = match event {
            Event::Taste(provider) => self.taste(*provider)?,
            Event::StartTimeout => self.start_check(Others::GivenUp),
            Event::Write => self.before_write(),
            Event::Quiet => self.quiet(),
            Event::Unplugged(key) => self.unplugged(key)?,
            Event::ReadFailed { key, is_gone } => {
                let is_write = false;
                self.failed(key, Failure { is_gone, is_write })?
            }
            Event::WriteFailed { key, is_gone } => {
                let is_write = true;
                self.failed(key, Failure { is_gone, is_write })?
            }
            Event::LabelFailed(key) => {
                let (is_gone, is_write) = (false, true);
                self.failed(key, Failure { is_gone, is_write })?
            }
            Event::RebuildAt { key, offset_bytes } => self.rebuild_at(key, offset_bytes)?,
            Event::RebuildDone(key) => self.rebuild_done(key)?,
            Event::Command(command) => self.command(command)?,
        };
        self.check();
        Ok(effects)
    }

    /// The label of a component with everything that the mirror says.
    fn write_label(&mut self, index: usize) -> Effect {
        let component = &mut self.components[index];
        let label = &mut component.label;
        label.version = NEWEST_VERSION;
        label.component_count = self.component_count;
        label.generation_id = self.generation_id;
        label.slice_bytes = self.slice_bytes;
        label.balance = self.balance;
        label.volume_bytes = self.volume_bytes;
        label.sector_bytes = self.sector_bytes;
        label.has_no_autosync = self.has_no_autosync;
        label.has_no_failsync = self.has_no_failsync;
        label.provider_bytes = component.size_bytes;
        if !label.is_rebuilding {
            label.sync_offset_bytes = 0;
        }
        Effect::WriteLabel {
            key: component.key,
            label: Box::new(label.clone()),
        }
    }

    /// Writes the labels of all components for which `wanted` holds.
    fn write_labels(&mut self, wanted: impl Fn(&Component) -> bool) -> Vec<Effect> {
        let indices: Vec<usize> = (0..self.components.len())
            .filter(|index| wanted(&self.components[*index]))
            .collect();
        indices
            .into_iter()
            .map(|index| self.write_label(index))
            .collect()
    }

    fn check(&self) {
        assert!(
            self.components
                .is_sorted_by(|a, b| a.label.priority >= b.label.priority)
                || self.is_running,
            "before the start components are in list order"
        );
        for (index, component) in self.components.iter().enumerate() {
            assert!(
                self.components[index + 1..]
                    .iter()
                    .all(|other| other.key != component.key),
                "a provider is attached once"
            );
            assert!(
                component.state != ComponentState::Active || !component.label.is_rebuilding,
                "an active component is complete"
            );
            assert!(
                component.state != ComponentState::New || !self.is_running,
                "a running mirror has decided on everybody"
            );
        }
    }
}
