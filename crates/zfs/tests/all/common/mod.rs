//! Pools of the fixtures, opened through devices that refuse to be written to.

pub mod tiny;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use plexum_block::buf::{Buf, BufMut, BufPool};
use plexum_block::device::{Device, DeviceInfo, Fua, IoError, check_range};
use plexum_testkit::Unpacked;
pub use plexum_testkit::block_on;
use plexum_zfs::{
    DatasetKind, DatasetName, FileSystem, NamedDevice, Node, OpenOptions, Piece, Pool, ReadAhead,
    ZfsError, find_members,
};
use sha2::{Digest, Sha256};

/// A file that is read in place.
pub struct FileMember {
    file: File,
    size_bytes: u64,
    /// Reads of these ranges fail.
    pub bad: Vec<std::ops::Range<u64>>,
}

impl Device for FileMember {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::plain(self.size_bytes)
    }
    async fn read(&self, offset_bytes: u64, mut buf: BufMut) -> Result<BufMut, IoError> {
        check_range(&self.info(), offset_bytes, buf.len() as u64)?;
        let range = offset_bytes..offset_bytes + buf.len() as u64;
        if self
            .bad
            .iter()
            .any(|bad| bad.start < range.end && range.start < bad.end)
        {
            return Err(IoError::Medium);
        }
        self.file
            .read_exact_at(&mut buf, offset_bytes)
            .map_err(|_| IoError::Medium)?;
        Ok(buf)
    }
    async fn write(&self, _: u64, _: Buf, _: Fua) -> Result<(), IoError> {
        panic!("a member of a pool was written to");
    }
    async fn flush(&self) -> Result<(), IoError> {
        panic!("a member of a pool was flushed");
    }
}

pub fn device(unpacked: &Unpacked, file: &str) -> NamedDevice<FileMember> {
    let path = unpacked.path(file);
    let file_handle = File::open(&path).unwrap();
    let size_bytes = file_handle.metadata().unwrap().len();
    NamedDevice {
        name: file.to_owned(),
        device: FileMember {
            file: file_handle,
            size_bytes,
            bad: Vec::new(),
        },
    }
}

pub type TestPool = Pool<FileMember>;

pub fn open(unpacked: &Unpacked, files: &[&str]) -> Result<TestPool, ZfsError> {
    open_with(
        files.iter().map(|file| device(unpacked, file)).collect(),
        &OpenOptions::default(),
    )
}

pub fn open_with(
    devices: Vec<NamedDevice<FileMember>>,
    options: &OpenOptions,
) -> Result<TestPool, ZfsError> {
    let buffers = BufPool::new(1 << 20);
    block_on(async {
        let (members, _) = find_members(devices, &buffers).await;
        Pool::open(members, options).await
    })
}

/// SHA-256 and length of everything a reader gives.
pub fn hash(mut reader: ReadAhead<FileMember>) -> Result<(String, u64), ZfsError> {
    let mut hash = Sha256::new();
    let mut length = 0;
    while let Some(piece) = block_on(reader.next())? {
        match &piece {
            Piece::Zeroes(count) => {
                length += count;
                let zeroes = [0; 4096];
                let mut left = *count;
                while left > 0 {
                    let step = left.min(4096);
                    hash.update(&zeroes[..step as usize]);
                    left -= step;
                }
            }
            Piece::Data(..) => {
                for bytes in piece.slices() {
                    length += bytes.len() as u64;
                    hash.update(bytes);
                }
            }
        }
    }
    let hex = hash
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    Ok((hex, length))
}

/// What reading one object gave: hash and length, link target, or why not.
pub fn read_object(pool: &TestPool, dataset: &str, path: &str) -> Result<(String, u64), ZfsError> {
    let name = DatasetName::parse(dataset);
    if path.is_empty() {
        return hash(block_on(pool.volume(&name))?.reader());
    }
    let system = block_on(pool.file_system(&name))?;
    let node = block_on(system.lookup(path.as_bytes()))?;
    read_node(&system, &node, path)
}

pub fn read_node(
    system: &FileSystem<FileMember>,
    node: &Node,
    path: &str,
) -> Result<(String, u64), ZfsError> {
    use plexum_format::zfs::znode::FileKind;
    if node.znode.kind() == FileKind::Link {
        let target = block_on(system.link_target(node))?;
        return Ok((String::from_utf8(target).unwrap(), 0));
    }
    hash(system.reader(node, path))
}

pub fn kinds(pool: &TestPool) -> BTreeMap<String, DatasetKind> {
    let datasets = block_on(pool.datasets()).unwrap();
    datasets
        .into_iter()
        .map(|one| (one.name.to_string(), one.kind))
        .collect()
}
