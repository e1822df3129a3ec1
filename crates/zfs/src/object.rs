//! Objects: dnodes by number, and their data blocks through all levels of pointers.

use std::rc::Rc;

use plexum_block::device::Device;
use plexum_format::zfs::blockptr::POINTER_BYTES;
use plexum_format::zfs::dnode::DNODE_BYTES;
use plexum_format::zfs::{BlockPointer, Dnode, ObjectSetHeader, Payload};

use crate::block::Blocks;
use crate::error::ZfsError;

/// An object set: a data set's, or the pool's own.
#[derive(Clone, Debug)]
pub struct ObjectSet {
    /// What messages call it.
    pub name: String,
    /// Its head.
    pub header: ObjectSetHeader,
}

/// An object of a set.
#[derive(Clone, Debug)]
pub struct Object {
    /// What messages call it.
    pub name: String,
    /// Its number in its set.
    pub number: u64,
    /// Where its blocks are.
    pub dnode: Rc<Dnode>,
}

/// Where a block of an object is.
pub(crate) enum BlockPlace {
    /// The pointer to it, and what messages call it.
    Stored(Box<BlockPointer>, String),
    /// Zeroes up to that block.
    Hole { end_block: u64 },
}

impl Object {
    /// Bytes of its data blocks.
    pub(crate) fn block_bytes(&self) -> u64 {
        self.dnode.block_bytes
    }
}

impl<D: Device> Blocks<D> {
    /// The object set that a pointer leads to.
    pub(crate) async fn object_set(
        &self,
        pointer: &BlockPointer,
        name: &str,
    ) -> Result<ObjectSet, ZfsError> {
        let what = format!("object set of {name}");
        let block = self.cached(pointer, &what).await?;
        let header = ObjectSetHeader::parse(&block).map_err(|error| invalid(&what, error))?;
        Ok(ObjectSet {
            name: name.to_owned(),
            header,
        })
    }

    /// The object of that number.
    pub(crate) async fn object(&self, set: &ObjectSet, number: u64) -> Result<Object, ZfsError> {
        let name = format!("object {number} of {}", set.name);
        let meta = &set.header.meta;
        let per_block = (meta.block_bytes / DNODE_BYTES as u64).max(1);
        let missing = || ZfsError::NotFound(format!("{name} does not exist"));
        let block = self.data_block(meta, number / per_block, &name).await?;
        let Some(block) = block else {
            return Err(missing());
        };
        let at = (number % per_block) as usize * DNODE_BYTES;
        let dnode = Dnode::parse(block.get(at..).unwrap_or_default());
        let dnode = dnode.map_err(|error| invalid(&name, error))?;
        if dnode.is_free() {
            return Err(missing());
        }
        Ok(Object {
            name,
            number,
            dnode: Rc::new(dnode),
        })
    }

    /// A data block of an object, which is kept for a while; `None` where it has a hole.
    pub(crate) async fn data_block(
        &self,
        dnode: &Dnode,
        block_id: u64,
        name: &str,
    ) -> Result<Option<Rc<Vec<u8>>>, ZfsError> {
        match self.place(dnode, block_id, name).await? {
            BlockPlace::Hole { .. } => Ok(None),
            BlockPlace::Stored(pointer, what) => self.cached(&pointer, &what).await.map(Some),
        }
    }

    /// Where a data block of an object is: all pointers above it are followed.
    pub(crate) async fn place(
        &self,
        dnode: &Dnode,
        block_id: u64,
        name: &str,
    ) -> Result<BlockPlace, ZfsError> {
        let beyond = BlockPlace::Hole {
            end_block: u64::MAX,
        };
        if block_id > dnode.block_id_max {
            return Ok(beyond);
        }
        let Some(path) = dnode.path(block_id) else {
            return Ok(beyond);
        };
        let shift = dnode.fanout_shift();
        let mut pointer = dnode.pointers[path[0]].clone();
        for (above, index) in path[1..].iter().enumerate() {
            let level = path.len() - 1 - above;
            if pointer.is_hole() {
                return Ok(hole(block_id, shift, level));
            }
            check_level(&pointer, level, name)?;
            let what = format!("{name}, pointers of level {level} above block {block_id}");
            let block = self.cached(&pointer, &what).await?;
            let bytes = block.get(index * POINTER_BYTES..).unwrap_or_default();
            pointer = BlockPointer::parse(bytes).map_err(|error| invalid(&what, error))?;
        }
        if pointer.is_hole() {
            return Ok(hole(block_id, shift, 0));
        }
        check_level(&pointer, 0, name)?;
        let what = format!("{name}, block {block_id}");
        // Before it is read: nothing is allocated for a block that could not be used.
        if pointer.logical_bytes != dnode.block_bytes {
            let (found, expected) = (pointer.logical_bytes, dnode.block_bytes);
            let problem = format!("it has {found} bytes, not {expected}");
            return Err(ZfsError::Invalid { what, problem });
        }
        Ok(BlockPlace::Stored(Box::new(pointer), what))
    }

    /// The bytes of a range; what is beyond the object's blocks is zero. For small ranges of metadata.
    pub(crate) async fn read_range(
        &self,
        object: &Object,
        offset_bytes: u64,
        length_bytes: usize,
    ) -> Result<Vec<u8>, ZfsError> {
        let block_bytes = object.block_bytes();
        let mut out = vec![0; length_bytes];
        let mut done = 0;
        while done < length_bytes {
            let at = offset_bytes.saturating_add(done as u64);
            let (block_id, inside) = (at / block_bytes, (at % block_bytes) as usize);
            let step = (block_bytes as usize - inside).min(length_bytes - done);
            let found = self
                .data_block(&object.dnode, block_id, &object.name)
                .await?;
            if let Some(block) = found {
                out[done..done + step].copy_from_slice(&block[inside..inside + step]);
            }
            done += step;
        }
        Ok(out)
    }
}

/// The hole at a pointer of `level` above (or at) `block_id`.
fn hole(block_id: u64, shift: u32, level: usize) -> BlockPlace {
    // Cannot overflow: below 2^64 + 2^63.
    let bits = shift.saturating_mul(level as u32).min(63);
    let end = ((u128::from(block_id) >> bits) + 1) << bits;
    BlockPlace::Hole {
        end_block: u64::try_from(end).unwrap_or(u64::MAX),
    }
}

/// Refuses a pointer whose own level is another one: a loop would come to nothing anyway, but must not look like data.
fn check_level(pointer: &BlockPointer, level: usize, name: &str) -> Result<(), ZfsError> {
    let is_stored = matches!(pointer.payload, Payload::Stored { .. });
    if !is_stored || usize::from(pointer.level) == level {
        return Ok(());
    }
    Err(ZfsError::Invalid {
        what: name.to_owned(),
        problem: format!(
            "a pointer of level {} stands where one of level {level} should",
            pointer.level
        ),
    })
}

pub(crate) fn invalid(what: &str, error: plexum_format::FormatError) -> ZfsError {
    match error.problem {
        plexum_format::Problem::Unsupported => ZfsError::Unsupported {
            what: what.to_owned(),
            reason: error.to_string(),
        },
        _ => ZfsError::Invalid {
            what: what.to_owned(),
            problem: error.to_string(),
        },
    }
}
