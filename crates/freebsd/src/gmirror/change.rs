//! Writes, quiet times, errors, rebuilds: how DIRTY, syncid and genid move.
//!
//! Source: freebsd-geom.md sections 1.7, 1.10 and 1.11.

use super::{Component, ComponentState, Effect, Key, Mirror, Outcome, Refusal};

/// What an I/O error says.
pub(super) struct Failure {
    /// The component does not answer any more; otherwise a sector of it does not work.
    pub(super) is_gone: bool,
    /// Of a write: what is on the component is behind now.
    pub(super) is_write: bool,
}

impl Mirror {
    /// What has to be durable before the data of a write (W1): the mark, and a syncid that the absent do not have.
    pub(super) fn before_write(&mut self) -> Vec<Effect> {
        if self.raises_sync_id {
            self.mark_dirty();
            return self.raise_sync_id();
        }
        if !self.is_idle {
            return Vec::new();
        }
        self.mark_dirty();
        if self.has_no_failsync {
            return Vec::new();
        }
        self.write_labels(|component| component.state == ComponentState::Active)
    }

    fn mark_dirty(&mut self) {
        self.is_idle = false;
        if self.has_no_failsync {
            return;
        }
        for component in &mut self.components {
            component.label.is_dirty |= component.state == ComponentState::Active;
        }
    }

    pub(super) fn quiet(&mut self) -> Vec<Effect> {
        if self.is_idle {
            return Vec::new();
        }
        self.is_idle = true;
        let is_marked = |component: &Component| {
            component.state == ComponentState::Active && component.label.is_dirty
        };
        let marked: Vec<Key> = self
            .components
            .iter()
            .filter(|component| is_marked(component))
            .map(|component| component.key)
            .collect();
        for component in &mut self.components {
            component.label.is_dirty &= component.state != ComponentState::Active;
        }
        self.write_labels(|component| marked.contains(&component.key))
    }

    /// The absent get behind: everybody who takes part in writes gets the next number.
    pub(super) fn raise_sync_id(&mut self) -> Vec<Effect> {
        self.raises_sync_id = false;
        match self.sync_id.checked_add(1) {
            Some(next) => self.sync_id = next,
            // No number is left: the next generation starts anew.
            None => {
                self.generation_id = self.generation_id.saturating_add(1);
                self.sync_id = 1;
            }
        }
        self.number_writers()
    }

    /// How many components there should be, on all labels.
    pub(super) fn set_count(&mut self, count: u8) -> Vec<Effect> {
        self.component_count = count;
        self.write_labels(|_| true)
    }

    /// Whoever was dropped is broken for good.
    fn raise_generation(&mut self) -> Vec<Effect> {
        self.generation_id = self.generation_id.saturating_add(1);
        self.number_writers()
    }

    fn number_writers(&mut self) -> Vec<Effect> {
        let is_writer = |component: &Component| {
            matches!(
                component.state,
                ComponentState::Active | ComponentState::Synchronizing
            )
        };
        for component in &mut self.components {
            if is_writer(component) {
                component.label.sync_id = self.sync_id;
            }
        }
        self.write_labels(is_writer)
    }

    pub(super) fn detach(&mut self, key: Key, reason: Refusal, effects: &mut Vec<Effect>) {
        let Some(index) = self
            .components
            .iter()
            .position(|component| component.key == key)
        else {
            return;
        };
        let component = self.components.remove(index);
        self.detached.push(component.label.component_id);
        effects.push(Effect::Dropped { key, reason });
        let is_serving = |component: &Component| {
            matches!(
                component.state,
                ComponentState::Active | ComponentState::New
            )
        };
        if !self.components.iter().any(is_serving) {
            self.components.clear();
            effects.push(Effect::Destroyed);
        }
    }

    pub(super) fn unplugged(&mut self, key: Key) -> Outcome {
        self.component_mut(key)?;
        self.raises_sync_id |= self.is_running;
        let mut effects = Vec::new();
        self.detach(key, Refusal::Gone, &mut effects);
        Ok(effects)
    }

    /// An I/O error. The last active component stays: its errors go to the caller.
    pub(super) fn failed(&mut self, key: Key, failure: Failure) -> Outcome {
        let Failure { is_gone, is_write } = failure;
        let component = self.component_mut(key)?;
        if component.state == ComponentState::Active && self.active_count() == 1 {
            return Err(Refusal::LastActive);
        }
        let mut effects = Vec::new();
        let reason = if is_gone {
            Refusal::Gone
        } else {
            Refusal::IoError
        };
        self.detach(key, reason, &mut effects);
        if !is_gone {
            effects.extend(self.raise_generation());
        } else if is_write {
            effects.extend(self.raise_sync_id());
        } else {
            self.raises_sync_id = true;
        }
        Ok(effects)
    }

    pub(super) fn rebuild_at(&mut self, key: Key, offset_bytes: u64) -> Outcome {
        let volume_bytes = self.volume_bytes;
        let component = self.component_mut(key)?;
        if component.state != ComponentState::Synchronizing {
            return Err(Refusal::NothingChanged);
        }
        assert!(
            offset_bytes >= component.label.sync_offset_bytes && offset_bytes <= volume_bytes,
            "a rebuild goes forward inside of the volume"
        );
        component.label.sync_offset_bytes = offset_bytes;
        Ok(self.write_labels(|component| component.key == key))
    }

    pub(super) fn rebuild_done(&mut self, key: Key) -> Outcome {
        let is_dirty = !self.is_idle && !self.has_no_failsync;
        let component = self.component_mut(key)?;
        if component.state != ComponentState::Synchronizing {
            return Err(Refusal::NothingChanged);
        }
        component.state = ComponentState::Active;
        component.label.is_rebuilding = false;
        component.label.is_rebuild_forced = false;
        component.label.is_dirty = is_dirty;
        Ok(self.write_labels(|component| component.key == key))
    }
}
