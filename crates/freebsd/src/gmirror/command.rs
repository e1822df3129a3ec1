//! What the operator asks for.
//!
//! Source: freebsd-geom.md section 1.13.

use plexum_format::gmirror::{Balance, MirrorLabel, NewMirrorLabel};

use super::{Component, ComponentState, Effect, Key, Mirror, Outcome, Provider, Refusal};

/// Longest name that a label keeps, in bytes.
const NAME_BYTES_MAX: usize = 15;

/// A provider that is to become a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewComponent {
    /// The caller's number of its provider.
    pub key: Key,
    /// Name of its provider.
    pub provider: String,
    /// Its provider's size.
    pub size_bytes: u64,
    /// Its provider's sector.
    pub sector_bytes: u32,
    /// Its identity, random.
    pub component_id: u32,
    /// Its place in the list, highest first.
    pub priority: u8,
    /// It is not to be used until it is activated.
    pub is_inactive: bool,
    /// The label is bound to the provider's name.
    pub is_bound: bool,
}

/// What `configure` can change; `None` stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// How reads are spread.
    pub balance: Option<Balance>,
    /// Reads above this are split.
    pub slice_bytes: Option<u32>,
    /// Stale components are rebuilt by themselves.
    pub has_autosync: Option<bool>,
    /// Components are marked dirty, and made equal after an unclean stop.
    pub has_failsync: Option<bool>,
    /// Labels are bound to the names of their providers.
    pub is_bound: Option<bool>,
}

/// A command of the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Add a component; it is tasted and rebuilt afterwards.
    Insert(NewComponent),
    /// Take a component out for good.
    Remove(Key),
    /// Put a component aside.
    Deactivate(Key),
    /// Make a component that was put aside usable again: the next taste attaches it.
    Activate(Box<Provider>),
    /// Expect no more components than there are.
    Forget,
    /// Fill a component anew.
    Rebuild(Key),
    /// Change settings.
    Configure(Settings),
    /// Change the place of a component; the order changes at the next start.
    Priority(Key, u8),
    /// Change the size of the volume.
    Resize(u64),
    /// Stop; labels stay, without DIRTY.
    Stop,
    /// Stop and zero all labels.
    Destroy,
}

impl Mirror {
    pub(super) fn command(&mut self, command: Command) -> Outcome {
        match command {
            Command::Insert(new) => self.insert(&new),
            Command::Remove(key) => self.remove(key),
            Command::Deactivate(key) => self.deactivate(key),
            Command::Activate(provider) => self.activate(*provider),
            Command::Forget => self.forget(),
            Command::Rebuild(key) => self.rebuild(key),
            Command::Configure(settings) => self.configure(settings),
            Command::Priority(key, priority) => {
                self.component_mut(key)?.label.priority = priority;
                Ok(self.write_labels(|component| component.key == key))
            }
            Command::Resize(volume_bytes) => self.resize(volume_bytes),
            Command::Stop => Ok(self.stop()),
            Command::Destroy => {
                let keys = self.components.drain(..).map(|component| component.key);
                let mut effects: Vec<Effect> = keys.map(Effect::ClearLabel).collect();
                effects.push(Effect::Destroyed);
                Ok(effects)
            }
        }
    }

    fn is_complete(&self) -> Result<(), Refusal> {
        if self.components.len() == usize::from(self.component_count) {
            Ok(())
        } else {
            Err(Refusal::NotComplete)
        }
    }

    fn check_not_last(&mut self, key: Key) -> Result<(), Refusal> {
        let is_active = self.component_mut(key)?.state == ComponentState::Active;
        if is_active && self.active_count() == 1 {
            return Err(Refusal::LastActive);
        }
        Ok(())
    }

    /// The new label first: a crash between the two leaves a component that nobody expects, and not one that is
    /// missing.
    fn insert(&mut self, new: &NewComponent) -> Outcome {
        self.is_complete()?;
        let usable_bytes = new.size_bytes.saturating_sub(u64::from(new.sector_bytes));
        if usable_bytes < self.volume_bytes {
            return Err(Refusal::TooSmall);
        }
        if new.sector_bytes == 0 || !self.sector_bytes.is_multiple_of(new.sector_bytes) {
            return Err(Refusal::OtherSector {
                mirror_sector_bytes: self.sector_bytes,
            });
        }
        let count = self
            .component_count
            .checked_add(1)
            .ok_or(Refusal::TooMany)?;
        let made = MirrorLabel::create(&NewMirrorLabel {
            name: &self.name,
            mirror_id: self.mirror_id,
            component_id: new.component_id,
            component_count: count,
            priority: new.priority,
            slice_bytes: self.slice_bytes,
            balance: self.balance,
            volume_bytes: self.volume_bytes,
            sector_bytes: self.sector_bytes,
            provider_bytes: new.size_bytes,
        });
        let mut label = made.map_err(|_| Refusal::TooSmall)?;
        label.generation_id = self.generation_id;
        label.sync_id = 0;
        label.has_no_autosync = self.has_no_autosync;
        label.has_no_failsync = self.has_no_failsync;
        label.is_inactive = new.is_inactive;
        // Without it a component that was just inserted would wait for ever under NOAUTOSYNC.
        label.is_rebuild_forced = self.has_no_autosync;
        if new.is_bound {
            label.provider = bound(&new.provider)?;
        }
        self.component_count = count;
        let mut effects = vec![Effect::WriteLabel {
            key: new.key,
            label: Box::new(label),
        }];
        effects.extend(self.write_labels(|_| true));
        Ok(effects)
    }

    fn remove(&mut self, key: Key) -> Outcome {
        self.is_complete()?;
        self.check_not_last(key)?;
        let mut effects = Vec::new();
        self.detach(key, Refusal::Asked, &mut effects);
        effects.push(Effect::ClearLabel(key));
        self.component_count -= 1; // there was another one
        effects.extend(self.write_labels(|_| true));
        Ok(effects)
    }

    fn deactivate(&mut self, key: Key) -> Outcome {
        self.check_not_last(key)?;
        let component = self.component_mut(key)?;
        component.label.is_inactive = true;
        component.label.is_rebuild_forced = false;
        let mut effects = self.write_labels(|component| component.key == key);
        self.raises_sync_id = true;
        self.detach(key, Refusal::Asked, &mut effects);
        Ok(effects)
    }

    fn activate(&mut self, mut provider: Provider) -> Outcome {
        if provider.label.mirror_id != self.mirror_id {
            return Err(Refusal::OtherMirror {
                known: self.mirror_id,
            });
        }
        if !provider.label.is_inactive {
            return Err(Refusal::NothingChanged);
        }
        provider.label.is_inactive = false;
        Ok(vec![Effect::WriteLabel {
            key: provider.key,
            label: Box::new(provider.label),
        }])
    }

    fn forget(&mut self) -> Outcome {
        let attached = u8::try_from(self.components.len()).map_err(|_| Refusal::TooMany)?;
        if attached == self.component_count {
            return Err(Refusal::NothingChanged);
        }
        self.component_count = attached;
        let gone = std::mem::take(&mut self.detached);
        let is_gone = |id: &u32| {
            let here = |component: &Component| component.label.component_id == *id;
            !self.components.iter().any(here)
        };
        let gone: Vec<u32> = gone.into_iter().filter(is_gone).collect();
        self.forgotten.extend(gone);
        Ok(self.write_labels(|_| true))
    }

    fn rebuild(&mut self, key: Key) -> Outcome {
        self.check_not_last(key)?;
        let is_forced = self.has_no_autosync;
        let component = self.component_mut(key)?;
        component.label.sync_id = 0;
        component.label.is_rebuilding = false;
        component.label.is_rebuild_forced = is_forced;
        component.state = ComponentState::New;
        let index = self
            .components
            .iter()
            .position(|component| component.key == key);
        let mut effects = Vec::new();
        if let Some(index) = index {
            // With syncid 0 it would count as current where the mirror's is 0 too.
            self.sync_id = self.sync_id.max(1);
            effects = self.decide(index);
        }
        Ok(effects)
    }

    fn configure(&mut self, settings: Settings) -> Outcome {
        self.is_complete()?;
        if settings.is_bound == Some(true) {
            let providers = self.components.iter().map(|one| one.provider.as_str());
            providers
                .map(bound)
                .collect::<Result<Vec<String>, Refusal>>()?;
        }
        let before = self.clone();
        self.balance = settings.balance.unwrap_or(self.balance);
        self.slice_bytes = settings.slice_bytes.unwrap_or(self.slice_bytes);
        self.has_no_autosync = settings.has_autosync.map_or(self.has_no_autosync, |on| !on);
        self.has_no_failsync = settings.has_failsync.map_or(self.has_no_failsync, |on| !on);
        for component in &mut self.components {
            match settings.is_bound {
                Some(true) => component.label.provider = bare(&component.provider).to_owned(),
                Some(false) => component.label.provider = String::new(),
                None => {}
            }
            component.label.is_dirty &= !self.has_no_failsync;
        }
        if *self == before {
            return Err(Refusal::NothingChanged);
        }
        let mut effects = self.write_labels(|_| true);
        if !self.has_no_autosync {
            let stale = |component: &Component| component.state == ComponentState::Stale;
            let indices: Vec<usize> = (0..self.components.len())
                .filter(|index| stale(&self.components[*index]))
                .collect();
            for index in indices {
                effects.extend(self.decide(index));
            }
        }
        Ok(effects)
    }

    fn resize(&mut self, volume_bytes: u64) -> Outcome {
        self.is_complete()?;
        let whole = volume_bytes / u64::from(self.sector_bytes) * u64::from(self.sector_bytes);
        if whole == self.volume_bytes {
            return Err(Refusal::NothingChanged);
        }
        let room = |component: &Component| {
            component
                .size_bytes
                .saturating_sub(u64::from(component.sector_bytes))
        };
        if whole == 0
            || self
                .components
                .iter()
                .any(|component| whole > room(component))
        {
            return Err(Refusal::TooSmall);
        }
        self.volume_bytes = whole;
        for component in &mut self.components {
            let label = &mut component.label;
            label.sync_offset_bytes = label.sync_offset_bytes.min(whole);
        }
        Ok(self.write_labels(|_| true))
    }

    fn stop(&mut self) -> Vec<Effect> {
        self.is_idle = true;
        let marked: Vec<Key> = self
            .components
            .iter()
            .filter(|component| component.label.is_dirty)
            .map(|component| component.key)
            .collect();
        for component in &mut self.components {
            component.label.is_dirty = false;
        }
        self.write_labels(|component| marked.contains(&component.key))
    }
}

/// The name to which a label can be bound.
fn bound(provider: &str) -> Result<String, Refusal> {
    let name = bare(provider);
    if name.len() > NAME_BYTES_MAX {
        return Err(Refusal::LongName);
    }
    Ok(name.to_owned())
}

fn bare(provider: &str) -> &str {
    provider.strip_prefix("/dev/").unwrap_or(provider)
}
