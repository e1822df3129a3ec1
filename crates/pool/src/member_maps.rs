//! The maps that OpenZFS keeps of each plex and member, in pools that it has had: who comes gets one, and that of one
//! who goes is removed. Pools that it never had have none.
//!
//! Source: zfs-write.md 1.2, `com.delphix:vdev_zap_map`.

use plexum_block::device::Device;

use crate::error::PoolError;
use crate::seed::Seed;
use crate::state::WritablePool;

const OBJECT_DIRECTORY: u64 = 1;

impl<D: Device> WritablePool<D> {
    /// The list of all maps.
    async fn member_maps(&self) -> Result<Option<u64>, PoolError> {
        let name = "com.delphix:vdev_zap_map";
        self.meta
            .zap_number(&self.source, OBJECT_DIRECTORY, name)
            .await
    }

    /// A map for a plex or a member that comes, in the list of all; `None`: the pool has none.
    pub(crate) async fn add_member_map(&mut self) -> Result<Option<u64>, PoolError> {
        let Some(all) = self.member_maps().await? else {
            return Ok(None);
        };
        let mut seed = Seed {
            meta: &mut self.meta,
            source: &self.source,
            wall_s: 0,
        };
        let map = seed.features().await?;
        let name = format!("{map:x}");
        self.meta.zap_put(&self.source, all, &name, map).await?;
        Ok(Some(map))
    }

    /// Removes the map of one that goes.
    pub(crate) async fn remove_member_map(&mut self, map: u64) -> Result<(), PoolError> {
        if let Some(all) = self.member_maps().await? {
            let name = format!("{map:x}");
            self.meta.zap_remove(&self.source, all, &name).await?;
        }
        self.meta.remove(&self.source, map).await
    }
}
