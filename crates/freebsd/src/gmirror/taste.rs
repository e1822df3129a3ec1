//! Providers show up: are they ours, do they fit, may they be used; when does the mirror start, and with whom.
//!
//! Source: freebsd-geom.md sections 1.4 and 1.6.

use super::{Component, ComponentState, Effect, Event, Key, Mirror, Outcome, Provider, Refusal};

impl Provider {
    /// Whether the label may be used on this provider at all.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self) -> Result<(), Refusal> {
        let label = &self.label;
        let name = self.name.strip_prefix("/dev/").unwrap_or(&self.name);
        if !label.provider.is_empty() && label.provider != name {
            return Err(Refusal::OtherProvider {
                bound_to: label.provider.clone(),
            });
        }
        if label.provider_bytes != 0 && label.provider_bytes != self.size_bytes {
            return Err(Refusal::OtherSize {
                recorded_bytes: label.provider_bytes,
            });
        }
        if label.is_inactive {
            return Err(Refusal::Inactive);
        }
        Ok(())
    }
}

/// What becomes of components that are not there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Others {
    /// They may still come.
    Awaited,
    /// The time is over.
    GivenUp,
}

impl Mirror {
    /// A new mirror from the first provider that shows up.
    ///
    /// # Errors
    /// Why the provider is refused: there is no mirror then.
    pub fn start(provider: Provider) -> Result<(Self, Vec<Effect>), Refusal> {
        provider.check()?;
        let label = &provider.label;
        let mut mirror = Self {
            name: label.name.clone(),
            mirror_id: label.mirror_id,
            generation_id: label.generation_id,
            sync_id: label.sync_id,
            component_count: label.component_count,
            balance: label.balance,
            slice_bytes: label.slice_bytes,
            volume_bytes: label.volume_bytes,
            sector_bytes: label.sector_bytes,
            has_no_autosync: label.has_no_autosync,
            has_no_failsync: label.has_no_failsync,
            components: Vec::new(),
            detached: Vec::new(),
            is_running: false,
            raises_sync_id: false,
            has_unequal: false,
            is_idle: true,
            forgotten: Vec::new(),
        };
        let effects = mirror.taste(provider)?;
        Ok((mirror, effects))
    }

    pub(super) fn taste(&mut self, provider: Provider) -> Outcome {
        provider.check()?;
        self.check_fit(&provider)?;
        let label = &provider.label;
        let mut effects = Vec::new();
        if (label.generation_id, label.sync_id) > (self.generation_id, self.sync_id) {
            if self.is_running {
                return Err(Refusal::Newer);
            }
            self.generation_id = label.generation_id;
            self.sync_id = label.sync_id;
            self.slice_bytes = label.slice_bytes;
            self.balance = label.balance;
            self.volume_bytes = label.volume_bytes;
            self.component_count = label.component_count;
            self.has_no_autosync = label.has_no_autosync;
            self.has_no_failsync = label.has_no_failsync;
        }
        let index = self.attach(provider);
        if self.is_running {
            effects.extend(self.decide(index));
        } else {
            effects.extend(self.start_check(Others::Awaited));
        }
        Ok(effects)
    }

    /// Steps 5 to 7 of the taste, and what `forget` gave up (defect 5).
    fn check_fit(&self, provider: &Provider) -> Result<(), Refusal> {
        let label = &provider.label;
        if label.name != self.name || label.mirror_id != self.mirror_id {
            return Err(Refusal::OtherMirror {
                known: self.mirror_id,
            });
        }
        let same = |component: &&Component| component.label.component_id == label.component_id;
        if let Some(other) = self.components.iter().find(same) {
            return Err(Refusal::Duplicate {
                other: other.provider.clone(),
            });
        }
        if self.volume_bytes
            > provider
                .size_bytes
                .saturating_sub(u64::from(provider.sector_bytes))
        {
            return Err(Refusal::TooSmall);
        }
        let fits = provider.sector_bytes != 0
            && label.sector_bytes == self.sector_bytes
            && self.sector_bytes.is_multiple_of(provider.sector_bytes);
        if !fits {
            return Err(Refusal::OtherSector {
                mirror_sector_bytes: self.sector_bytes,
            });
        }
        if label.generation_id < self.generation_id {
            return Err(Refusal::Broken {
                generation_id: label.generation_id,
                newest: self.generation_id,
            });
        }
        if self.forgotten.contains(&label.component_id) {
            return Err(Refusal::Forgotten);
        }
        // A running mirror that has everybody, or expects fewer than this label does, has given this one up.
        let is_full = self.components.len() >= usize::from(self.component_count);
        if self.is_running && (is_full || label.component_count > self.component_count) {
            return Err(Refusal::Forgotten);
        }
        Ok(())
    }

    fn attach(&mut self, provider: Provider) -> usize {
        let priority = provider.label.priority;
        let behind = |component: &Component| component.label.priority <= priority;
        let index = self.components.iter().position(behind);
        let index = index.unwrap_or(self.components.len());
        let component = Component {
            key: provider.key,
            provider: provider.name,
            size_bytes: provider.size_bytes,
            sector_bytes: provider.sector_bytes,
            label: provider.label,
            state: ComponentState::New,
        };
        self.components.insert(index, component);
        index
    }

    /// Starts when everybody is there, or with those that are when the time is over.
    pub(super) fn start_check(&mut self, others: Others) -> Vec<Effect> {
        let is_timeout = others == Others::GivenUp;
        if self.is_running {
            return Vec::new();
        }
        let mut effects = self.drop_outdated();
        let attached = self.components.len();
        if attached == 0 {
            effects.push(Effect::Destroyed);
            return effects;
        }
        if attached != usize::from(self.component_count) && !is_timeout {
            return effects;
        }
        let half_made = |component: &Component| component.label.is_rebuilding;
        if is_timeout && self.components.iter().all(half_made) {
            self.components.clear();
            effects.push(Effect::Destroyed);
            return effects;
        }
        // One that got behind may be a former component, in the place of one that is missing: whoever is missing gets
        // behind.
        let newest = self.sync_id;
        let is_behind = |component: &Component| component.label.sync_id < newest;
        let has_behind = self.components.iter().any(is_behind);
        self.raises_sync_id |= is_timeout || has_behind;
        self.has_unequal = self.choose_after_crash() || has_behind;
        self.is_running = true;
        // In list order: the first one of equals becomes active before the others are judged.
        let keys: Vec<Key> = self
            .components
            .iter()
            .map(|component| component.key)
            .collect();
        for key in keys {
            let index = self
                .components
                .iter()
                .position(|component| component.key == key);
            effects.extend(self.decide(index.expect("nobody is detached while it starts")));
        }
        self.raises_sync_id |= self.count_of(ComponentState::Stale) > 0;
        if self.active_count() == 0 {
            self.components.clear();
            effects.push(Effect::Destroyed);
        }
        effects
    }

    /// Components that are outdated by what the newest say; each makes the next write raise the syncid.
    fn drop_outdated(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        let (generation, count) = (self.generation_id, self.component_count);
        let (balance, slice, volume) = (self.balance, self.slice_bytes, self.volume_bytes);
        let dropped: Vec<Component> = self
            .components
            .extract_if(.., |component| {
                let label = &component.label;
                label.generation_id < generation
                    || label.component_count != count
                    || label.balance != balance
                    || label.slice_bytes != slice
                    || label.volume_bytes != volume
            })
            .collect();
        for component in dropped {
            let label = &component.label;
            let reason = if label.generation_id < generation {
                Refusal::Broken {
                    generation_id: label.generation_id,
                    newest: generation,
                }
            } else {
                Refusal::OtherSettings
            };
            self.raises_sync_id = true;
            effects.push(Effect::Dropped {
                key: component.key,
                reason,
            });
        }
        effects
    }

    /// After an unclean stop: the dirty ones are filled from the clean ones, or all from the first of the list. Whether
    /// it was one.
    fn choose_after_crash(&mut self) -> bool {
        let newest = self.sync_id;
        let complete = |component: &&mut Component| {
            component.label.sync_id == newest && !component.label.is_rebuilding
        };
        let mut complete: Vec<&mut Component> =
            self.components.iter_mut().filter(complete).collect();
        let dirty = complete
            .iter()
            .filter(|component| component.label.is_dirty)
            .count();
        let is_all = dirty == complete.len();
        for (index, component) in complete.iter_mut().enumerate() {
            if component.label.is_dirty && !(is_all && index == 0) {
                component.label.sync_id = 0;
            }
        }
        dirty > 0
    }

    /// What a new component of a running mirror may be used for. Its label is rewritten, as the newest version.
    pub(super) fn decide(&mut self, index: usize) -> Vec<Effect> {
        let has_active = self.active_count() > 0;
        let (newest, idle) = (self.sync_id, self.is_idle);
        let (no_autosync, no_failsync) = (self.has_no_autosync, self.has_no_failsync);
        let component = &mut self.components[index];
        let label = &mut component.label;
        let is_current = label.sync_id == newest;
        let mut effects = Vec::new();
        if is_current && !label.is_rebuilding && !(has_active && label.is_dirty) {
            component.state = ComponentState::Active;
            label.is_rebuild_forced = false;
            label.is_dirty = !idle && !no_failsync;
        } else {
            // Of a dirty one, what was filled counts no more: writes since went to it and to its source, and a crash
            // may have left each of them on one side alone (FreeBSD goes on from the offset). Whether the source is
            // clean says nothing: a start may have marked it so that was cut off before this label was written.
            if !is_current || !label.is_rebuilding || label.is_dirty {
                label.sync_offset_bytes = 0;
            }
            label.is_rebuilding = true;
            label.sync_id = newest;
            if no_autosync && !label.is_rebuild_forced {
                component.state = ComponentState::Stale;
            } else {
                component.state = ComponentState::Synchronizing;
                label.is_dirty = !no_failsync;
                effects.push(Effect::StartRebuild {
                    key: component.key,
                    from_bytes: label.sync_offset_bytes,
                });
            }
        }
        effects.insert(0, self.write_label(index));
        effects
    }
}

/// All providers of one mirror at once, in whatever order: the newest decide, so that no order of arrival brings back
/// old data (defect 3) or somebody who was forgotten (defect 5). Returns the mirror, started as far as it goes, what
/// has to be written, and who is not used and why.
#[must_use]
pub fn assemble(mut providers: Vec<Provider>) -> Assembled {
    providers.sort_by(|a, b| {
        let age = |provider: &Provider| {
            let label = &provider.label;
            (label.generation_id, label.sync_id)
        };
        let tie = a.label.component_count.cmp(&b.label.component_count);
        age(b).cmp(&age(a)).then(tie).then(a.key.cmp(&b.key))
    });
    let mut assembled = Assembled::default();
    for provider in providers {
        let key = provider.key;
        let outcome = match &mut assembled.mirror {
            Some(mirror) => mirror.apply(Event::Taste(Box::new(provider))),
            none => Mirror::start(provider).map(|(mirror, effects)| {
                *none = Some(mirror);
                effects
            }),
        };
        match outcome {
            Ok(effects) => assembled.take(effects),
            Err(reason) => assembled.refused.push((key, reason)),
        }
    }
    assembled
}

/// What came of several providers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assembled {
    /// The mirror; `None` when nobody can be used.
    pub mirror: Option<Mirror>,
    /// Label writes and rebuilds that are due before it is served to writers.
    pub effects: Vec<Effect>,
    /// Who is not used, and why.
    pub refused: Vec<(Key, Refusal)>,
}

impl Assembled {
    fn take(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Dropped { key, reason } => self.refused.push((key, reason)),
                Effect::Destroyed => self.mirror = None,
                effect => self.effects.push(effect),
            }
        }
    }

    /// Starts without those that are missing.
    pub fn start_degraded(&mut self) {
        if let Some(mirror) = &mut self.mirror {
            let effects = mirror.apply(Event::StartTimeout);
            self.take(effects.expect("a time-out is never refused"));
        }
    }
}
