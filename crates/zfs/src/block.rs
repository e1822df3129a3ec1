//! Blocks: from a pointer to verified, decompressed bytes.
//!
//! Invariants:
//! - nothing is given whose checksum does not match (nothing to compare where checksums are switched off);
//! - all copies are tried before a block counts as lost;
//! - gang blocks are put together with a work list, and never become longer than their pointer says.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use plexum_block::buf::BufPool;
use plexum_block::device::Device;
use plexum_format::zfs::blockptr::Compression;
use plexum_format::zfs::checksum::verify_embedded;
use plexum_format::zfs::{BlockPointer, ChecksumKind, Dva, Payload};

use crate::cache::{Cache, Key};
use crate::damage::Damage;
use crate::decompress::decompress;
use crate::error::ZfsError;
use crate::parts::{Parts, has_checksum};
use crate::plex::{Extent, Plex, Verify, Wanted};

/// Bytes of blocks that are kept.
const CACHE_BYTES: usize = 48 << 20;
/// Most findings that are kept; those after them are counted only.
const DAMAGE_MAX: usize = 100_000;
/// Bytes of a gang header, and the pointers in it.
const GANG_BYTES: usize = 512;
const GANG_POINTERS: usize = 3;
/// Most gang headers of one block.
const GANG_HEADERS_MAX: usize = 1 << 15;

/// All plexes, and what was read of them a moment ago.
pub(crate) struct Blocks<D> {
    pub(crate) plexes: BTreeMap<u32, Plex<D>>,
    /// A RAID-Z plex is being expanded: none of them can be mapped.
    pub(crate) is_expanding: bool,
    cache: RefCell<Cache>,
    damage: RefCell<Vec<Damage>>,
    buffers: BufPool,
}

/// What a pointer leads to.
struct Stored<'a> {
    copies: &'a [Option<Dva>; 3],
    physical_bytes: usize,
    birth_txg: u64,
    verify: Verify<'a>,
    extent: Extent,
}

impl<D: Device> Blocks<D> {
    pub(crate) fn new(plexes: BTreeMap<u32, Plex<D>>) -> Self {
        let mut members = plexes.values().flat_map(|plex| plex.slots.iter().flatten());
        let buffers = members.next().map(|member| member.buffers().clone());
        Self {
            buffers: buffers.unwrap_or_else(|| BufPool::new(0)),
            plexes,
            is_expanding: false,
            cache: RefCell::new(Cache::new(CACHE_BYTES)),
            damage: RefCell::default(),
        }
    }

    /// Everything that was found wrong since the last call, in order of member and offset.
    pub(crate) fn take_damage(&self) -> Vec<Damage> {
        let mut damage = std::mem::take(&mut *self.damage.borrow_mut());
        damage.sort();
        damage.dedup();
        damage
    }

    /// Whether something was found wrong since the findings were taken last.
    pub(crate) fn has_damage(&self) -> bool {
        !self.damage.borrow().is_empty()
    }

    /// The block of a pointer; it is kept for a while.
    pub(crate) async fn cached(
        &self,
        pointer: &BlockPointer,
        what: &str,
    ) -> Result<Rc<Vec<u8>>, ZfsError> {
        let key = key(pointer).filter(|_| !pointer.is_encrypted);
        if let Some(block) = key.and_then(|key| self.cache.borrow_mut().get(&key)) {
            return Ok(block);
        }
        let block = self.read(pointer, what, Extent::Needed).await?;
        let block = Rc::new(block.into_vec());
        if let Some(key) = key {
            self.cache.borrow_mut().put(key, &block);
        }
        Ok(block)
    }

    /// The block of a pointer: verified, decompressed, exactly of its logical length. `what` is for messages.
    pub(crate) async fn read(
        &self,
        pointer: &BlockPointer,
        what: &str,
        extent: Extent,
    ) -> Result<Parts, ZfsError> {
        let unsupported = |reason: String| ZfsError::Unsupported {
            what: what.to_owned(),
            reason,
        };
        if pointer.is_encrypted {
            return Err(unsupported("it is encrypted".into()));
        }
        let logical_bytes = usize::try_from(pointer.logical_bytes).expect("at most 16 MiB");
        let stored = match &pointer.payload {
            Payload::Hole => return Ok(Parts::pooled(self.buffers.take_zeroed(logical_bytes))),
            Payload::Embedded {
                bytes,
                used,
                kind: 0,
            } => Parts::own(bytes[..*used].to_vec()),
            Payload::Embedded { kind, .. } => {
                let kind = if *kind == 2 {
                    "redacted"
                } else {
                    "of an unknown embedded kind"
                };
                return Err(unsupported(format!("its contents are {kind}")));
            }
            Payload::Stored { .. } => self.read_stored(pointer, what, extent).await?,
        };
        if let Compression::Unsupported(number) = pointer.compression {
            return Err(unsupported(format!(
                "its compression (number {number}) is not known"
            )));
        }
        let block = decompress(pointer.compression, stored, logical_bytes, &self.buffers);
        block.ok_or_else(|| ZfsError::Invalid {
            what: what.to_owned(),
            problem: format!(
                "its checksum is right, but it is no {:?} block",
                pointer.compression
            ),
        })
    }

    /// The physical bytes of a stored block.
    pub(crate) async fn read_stored(
        &self,
        pointer: &BlockPointer,
        what: &str,
        extent: Extent,
    ) -> Result<Parts, ZfsError> {
        let Payload::Stored {
            copies,
            physical_bytes,
            checksum,
            digest,
        } = &pointer.payload
        else {
            unreachable!("only stored blocks are asked for");
        };
        if let ChecksumKind::Unsupported(_) | ChecksumKind::Embedded = checksum {
            return Err(ZfsError::Unsupported {
                what: what.to_owned(),
                reason: format!("its checksum {} is not known", checksum.name()),
            });
        }
        let verify = |parts: &[&[u8]]| has_checksum(*checksum, *digest, parts);
        let stored = Stored {
            copies,
            physical_bytes: usize::try_from(*physical_bytes).expect("at most 16 MiB"),
            birth_txg: pointer.physical_birth_txg,
            verify: &verify,
            extent,
        };
        self.read_copies(&stored)
            .await
            .map_err(|copies| ZfsError::Damaged {
                what: what.to_owned(),
                copies,
            })
    }

    /// The physical bytes of a stored block that `verify` accepts; what is wrong with others counts as no damage.
    pub(crate) async fn read_verified(
        &self,
        pointer: &BlockPointer,
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Option<Vec<u8>> {
        let verify = |parts: &[&[u8]]| verify(&parts.concat());
        let Payload::Stored {
            copies,
            physical_bytes,
            ..
        } = &pointer.payload
        else {
            return None;
        };
        let stored = Stored {
            copies,
            physical_bytes: usize::try_from(*physical_bytes).expect("at most 16 MiB"),
            birth_txg: pointer.physical_birth_txg,
            verify: &verify,
            extent: Extent::Needed,
        };
        let before = self.damage.borrow().clone();
        let result = self.read_copies(&stored).await.ok();
        *self.damage.borrow_mut() = before;
        result.map(Parts::into_vec)
    }

    /// The first copy that is right, all others looked at as well when asked for; or what is wrong with each.
    async fn read_copies(&self, stored: &Stored<'_>) -> Result<Parts, String> {
        let mut good = None;
        let mut reasons = Vec::new();
        for copy in stored.copies.iter().flatten() {
            let result = if copy.is_gang {
                self.read_gang(copy, stored).await
            } else {
                self.read_plain(copy, stored).await
            };
            match result {
                Ok(bytes) => {
                    good.get_or_insert(bytes);
                    if stored.extent == Extent::Needed {
                        break;
                    }
                }
                Err(reason) => reasons.push(reason),
            }
        }
        good.ok_or_else(|| reasons.join("; "))
    }

    /// One copy that is not a gang.
    async fn read_plain(&self, copy: &Dva, stored: &Stored<'_>) -> Result<Parts, String> {
        let plex = self.plexes.get(&copy.plex_id);
        let plex = plex.ok_or_else(|| format!("no member of plex {} is there", copy.plex_id))?;
        if let Some(reason) = plex.config.refusal() {
            return Err(format!("plex {} cannot be read: {reason}", copy.plex_id));
        }
        if self.is_expanding && plex.geometry.is_some() {
            return Err(format!(
                "plex {} is RAID-Z that is being expanded",
                copy.plex_id
            ));
        }
        let wanted = Wanted {
            offset_bytes: copy.offset_bytes,
            length_bytes: stored.physical_bytes,
            birth_txg: stored.birth_txg,
            verify: stored.verify,
            extent: stored.extent,
        };
        let mut damage = Vec::new();
        let result = plex.read(&wanted, &mut damage).await;
        let mut kept = self.damage.borrow_mut();
        let room = DAMAGE_MAX - kept.len().min(DAMAGE_MAX);
        kept.extend(damage.into_iter().take(room));
        result
    }

    /// A block in parts: a header with pointers to them, which may be headers again.
    async fn read_gang(&self, copy: &Dva, stored: &Stored<'_>) -> Result<Parts, String> {
        let mut bytes = Vec::new();
        let mut headers = 0;
        let mut work = vec![([Some(*copy), None, None], stored.birth_txg, None)];
        while let Some((copies, birth_txg, part)) = work.pop() {
            let is_header = copies[0].is_some_and(|copy| copy.is_gang);
            if is_header {
                headers += 1;
                if headers > GANG_HEADERS_MAX {
                    return Err("a gang block has too many headers".into());
                }
                let pointers = self.read_gang_header(&copies, birth_txg).await?;
                for pointer in pointers.into_iter().rev() {
                    if let Payload::Stored { copies, .. } = pointer.payload {
                        work.push((copies, pointer.physical_birth_txg, Some(pointer)));
                    }
                }
                continue;
            }
            let Some(BlockPointer {
                payload:
                    Payload::Stored {
                        physical_bytes,
                        checksum,
                        digest,
                        ..
                    },
                ..
            }) = part
            else {
                return Err("a gang block has no address".into());
            };
            let verify = |parts: &[&[u8]]| has_checksum(checksum, digest, parts);
            let child = Stored {
                copies: &copies,
                physical_bytes: usize::try_from(physical_bytes).expect("at most 16 MiB"),
                birth_txg,
                verify: &verify,
                extent: stored.extent,
            };
            let mut reasons = String::from("a part of a gang block has no address");
            let mut found = None;
            for copy in copies.iter().flatten() {
                match self.read_plain(copy, &child).await {
                    Ok(bytes) => found = found.or(Some(bytes)),
                    Err(reason) => reasons = reason,
                }
                if found.is_some() && stored.extent == Extent::Needed {
                    break;
                }
            }
            bytes.extend(found.ok_or(reasons)?.into_vec());
            if bytes.len() > stored.physical_bytes {
                return Err("the parts of a gang block are longer than the block".into());
            }
        }
        let is_right = bytes.len() == stored.physical_bytes && (stored.verify)(&[&bytes]);
        is_right
            .then_some(Parts::own(bytes))
            .ok_or_else(|| "the parts of a gang block do not make it".into())
    }

    async fn read_gang_header(
        &self,
        copies: &[Option<Dva>; 3],
        birth_txg: u64,
    ) -> Result<Vec<BlockPointer>, String> {
        let mut reason = String::from("a gang block has no address");
        for copy in copies.iter().flatten() {
            let verifier = [u64::from(copy.plex_id), copy.offset_bytes, birth_txg, 0];
            let verify = |parts: &[&[u8]]| verify_embedded(&parts.concat(), verifier);
            let header = Stored {
                copies,
                physical_bytes: GANG_BYTES,
                birth_txg,
                verify: &verify,
                extent: Extent::Needed,
            };
            match self.read_plain(copy, &header).await {
                Ok(bytes) => {
                    let bytes = bytes.whole();
                    let pointers = bytes.chunks_exact(128).take(GANG_POINTERS);
                    let pointers = pointers.map(BlockPointer::parse).collect::<Result<_, _>>();
                    return pointers.map_err(|error| error.to_string());
                }
                Err(error) => reason = format!("gang header: {error}"),
            }
        }
        Err(reason)
    }
}

/// What makes a stored block the same as another; none for holes and embedded ones.
pub(crate) fn key(pointer: &BlockPointer) -> Option<Key> {
    let Payload::Stored { copies, .. } = &pointer.payload else {
        return None;
    };
    let copy = copies[0]?;
    Some((copy.plex_id, copy.offset_bytes, pointer.physical_birth_txg))
}
