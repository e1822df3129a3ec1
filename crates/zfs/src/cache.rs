//! Blocks that were read a moment ago: indirect blocks, dnodes, directories.
//!
//! Invariant: the blocks kept are never longer than the limit, all together.

use std::collections::BTreeMap;
use std::rc::Rc;

/// What makes a block the same: its first address and its birth.
pub(crate) type Key = (u32, u64, u64);

/// Least recently used blocks go first.
#[derive(Default)]
pub(crate) struct Cache {
    blocks: BTreeMap<Key, (Rc<Vec<u8>>, u64)>,
    order: BTreeMap<u64, Key>,
    tick: u64,
    kept_bytes: usize,
    limit_bytes: usize,
}

impl Cache {
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self {
            limit_bytes,
            ..Self::default()
        }
    }

    pub(crate) fn get(&mut self, key: &Key) -> Option<Rc<Vec<u8>>> {
        let (block, tick) = self.blocks.get_mut(key)?;
        self.order.remove(tick);
        self.tick += 1;
        *tick = self.tick;
        self.order.insert(self.tick, *key);
        Some(Rc::clone(block))
    }

    pub(crate) fn put(&mut self, key: Key, block: &Rc<Vec<u8>>) {
        if block.len() > self.limit_bytes || self.blocks.contains_key(&key) {
            return;
        }
        self.kept_bytes += block.len();
        self.tick += 1;
        self.blocks.insert(key, (Rc::clone(block), self.tick));
        self.order.insert(self.tick, key);
        while self.kept_bytes > self.limit_bytes {
            let (_, oldest) = self.order.pop_first().expect("what is kept has an order");
            let (block, _) = self
                .blocks
                .remove(&oldest)
                .expect("what has an order is kept");
            self.kept_bytes -= block.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_block_goes_first() {
        let mut cache = Cache::new(2048);
        let block: Rc<Vec<u8>> = Rc::new(vec![0; 1024]);
        cache.put((0, 1, 0), &block);
        cache.put((0, 2, 0), &block);
        assert!(cache.get(&(0, 1, 0)).is_some());
        cache.put((0, 3, 0), &block);
        assert!(cache.get(&(0, 2, 0)).is_none());
        assert!(cache.get(&(0, 1, 0)).is_some() && cache.get(&(0, 3, 0)).is_some());
        cache.put((0, 4, 0), &Rc::new(vec![0; 4096]));
        assert!(cache.get(&(0, 4, 0)).is_none(), "longer than the limit");
    }
}
