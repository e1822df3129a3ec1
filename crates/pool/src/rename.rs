//! Volumes and snapshots under other names, and volumes of other sizes.

use plexum_block::device::Device;

use crate::dsl::{dir, set};
use crate::error::PoolError;
use crate::numbers::PROPERTIES_OBJECT;
use crate::snapshot::check_component;
use crate::state::WritablePool;

/// Whether a volume may become smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shrink {
    /// What is behind its new end must not be lost.
    Refused,
    /// The user said that it is not needed.
    Accepted,
}

impl<D: Device> WritablePool<D> {
    /// Gives a volume another name in the same place, or a snapshot of a volume, and commits that.
    ///
    /// # Errors
    /// `Refused` when there is none of that name, the new one is taken or cannot be, or another place is meant.
    pub async fn rename(&mut self, old: &str, new: &str, wall_s: u64) -> Result<(), PoolError> {
        self.check_frozen()?;
        self.commit(wall_s).await?;
        let (map, old_name, new_name) = match (old.split_once('@'), new.split_once('@')) {
            (Some((volume, old_name)), Some((same, new_name))) if volume == same => {
                let directory = self.directory_of(volume).await?;
                let head = self.word(directory, dir::HEAD).await?;
                check_component(new, new_name)?;
                let names = self.word(head, set::SNAPSHOT_NAMES).await?;
                (names, old_name.to_owned(), new_name.to_owned())
            }
            (None, None) => {
                // A volume, and nothing that has names below it.
                self.open_volume(old).await?;
                let (parent, new_name) = self.new_place(new).await?;
                let (above, old_name) = self.place_of(old).await?;
                if parent != above {
                    return Err(PoolError::Refused(format!(
                        "{old} stays where it is: only its last name is changed here"
                    )));
                }
                let children = self.word(parent, dir::CHILDREN).await?;
                (children, old_name, new_name)
            }
            _ => {
                return Err(PoolError::Refused(format!(
                    "{old} and {new} are not both volumes, or snapshots of one volume"
                )));
            }
        };
        let number = self.meta.zap_number(&self.source, map, &old_name).await?;
        let number =
            number.ok_or_else(|| PoolError::Refused(format!("there is no {old} in the pool")))?;
        let taken = self.meta.zap_number(&self.source, map, &new_name).await?;
        if taken.is_some() {
            return Err(PoolError::Refused(format!("{new} is there already")));
        }
        let result = async {
            self.meta.zap_remove(&self.source, map, &old_name).await?;
            self.meta
                .zap_put(&self.source, map, &new_name, number)
                .await
        };
        let result = result.await;
        self.freeze_after(result)?;
        self.commit(wall_s).await
    }

    /// Makes a volume larger or smaller, and commits that.
    ///
    /// # Errors
    /// `Refused` for sizes that cannot be, and smaller ones without the user's word; those of
    /// [`trim`](Self::trim) and [`commit`](Self::commit).
    pub async fn resize(
        &mut self,
        name: &str,
        size_bytes: u64,
        shrink: Shrink,
        wall_s: u64,
    ) -> Result<(), PoolError> {
        self.check_frozen()?;
        let volume = self.open_volume(name).await?;
        let block = volume.block_bytes;
        if size_bytes == 0 || !size_bytes.is_multiple_of(block) || size_bytes > 1 << 62 {
            return Err(PoolError::Refused(format!(
                "the size of {name} is a multiple of its block ({block} bytes), above 0"
            )));
        }
        if size_bytes < volume.size_bytes {
            if shrink == Shrink::Refused {
                let lost = volume.size_bytes - size_bytes;
                return Err(PoolError::Refused(format!(
                    "{name} would lose its last {lost} bytes"
                )));
            }
            self.trim(&volume, size_bytes..volume.size_bytes).await?;
        }
        let set = self.sets.get_mut(&volume.dataset);
        let set = set.ok_or_else(|| PoolError::Refused(format!("{name} is not open")))?;
        let result = set
            .zap_put(&self.source, PROPERTIES_OBJECT, "size", size_bytes)
            .await;
        self.freeze_after(result)?;
        self.commit(wall_s).await
    }
}
