//! Pools of sparse files, and OpenZFS itself as their judge.

pub mod memory;
pub mod world;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use plexum_block::buf::{Buf, BufMut, BufPool};
use plexum_block::device::{Device, DeviceInfo, Fua, IoError, check_range};
use plexum_disks::rng::Rng;
use plexum_pool::{
    CheckReport, GroupKind, NewGroup, NewMember, NewPool, NewVolume, PoolError, WritablePool,
    WriteOptions, check_pool,
};
pub use plexum_testkit::block_on;
use plexum_zfs::{NamedDevice, OpenOptions as OpenPool, Pool, find_members};

/// A member: a file that is read and written in place.
pub struct FileDevice {
    file: File,
    size_bytes: u64,
}

impl FileDevice {
    pub fn open(path: &Path) -> Self {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .unwrap();
        let size_bytes = file.metadata().unwrap().len();
        Self { file, size_bytes }
    }
}

impl Device for FileDevice {
    fn info(&self) -> DeviceInfo {
        DeviceInfo::plain(self.size_bytes)
    }
    async fn read(&self, offset_bytes: u64, mut buf: BufMut) -> Result<BufMut, IoError> {
        check_range(&self.info(), offset_bytes, buf.len() as u64)?;
        self.file
            .read_exact_at(&mut buf, offset_bytes)
            .map_err(|_| IoError::Medium)?;
        Ok(buf)
    }
    async fn write(&self, offset_bytes: u64, data: Buf, _: Fua) -> Result<(), IoError> {
        check_range(&self.info(), offset_bytes, data.len() as u64)?;
        self.file
            .write_all_at(&data, offset_bytes)
            .map_err(|_| IoError::Medium)
    }
    async fn flush(&self) -> Result<(), IoError> {
        Ok(())
    }
}

/// A folder with the members of one pool, removed at the end.
pub struct Folder {
    folder: tempfile::TempDir,
    pub groups: Vec<(GroupKind, usize)>,
}

/// `raidz2:5`, `mirror:2`, `single`: as zfs-oracle writes layouts.
pub fn group(text: &str) -> (GroupKind, usize) {
    let (word, count) = text.split_once(':').unwrap_or((text, "1"));
    let kind = match word {
        "single" => GroupKind::Single,
        "mirror" => GroupKind::Mirror,
        raidz => GroupKind::RaidZ(raidz.strip_prefix("raidz").unwrap().parse().unwrap()),
    };
    (kind, count.parse().unwrap())
}

impl Folder {
    pub fn new(layout: &[&str]) -> Self {
        let folder = match Path::new("/dev/shm").is_dir() {
            true => tempfile::tempdir_in("/dev/shm"),
            false => tempfile::tempdir(),
        };
        Self {
            folder: folder.unwrap(),
            groups: layout.iter().map(|text| group(text)).collect(),
        }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn members(&self) -> Vec<PathBuf> {
        let count = self.groups.iter().map(|(_, count)| count).sum::<usize>();
        (0..count)
            .map(|n| self.path().join(format!("m{n:02}")))
            .collect()
    }

    /// Makes a pool `tank` on new members.
    pub fn create(&self, member_bytes: u64, ashift: u32) -> Result<(), PoolError> {
        let members = self.members();
        for member in &members {
            File::create(member).unwrap().set_len(member_bytes).unwrap();
        }
        let mut left = members.into_iter();
        let groups = self.groups.iter().map(|(kind, count)| NewGroup {
            kind: *kind,
            members: left
                .by_ref()
                .take(*count)
                .map(|path| NewMember {
                    name: path.display().to_string(),
                    path: path.display().to_string(),
                    is_disk: false,
                    device: Rc::new(FileDevice::open(&path)),
                })
                .collect(),
        });
        let new = NewPool {
            name: "tank".into(),
            ashift,
            wall_s: 1_700_000_000,
            seed: 99,
            host: "test".into(),
        };
        block_on(WritablePool::create(
            groups.collect(),
            &new,
            &BufPool::new(1 << 20),
        ))
    }
}

/// Opens the pool for writing.
pub fn open(folder: &Folder) -> Result<WritablePool<FileDevice>, PoolError> {
    open_with(folder, WriteOptions::default())
}

/// Opens the pool of the members that are there.
pub fn open_with(
    folder: &Folder,
    options: WriteOptions,
) -> Result<WritablePool<FileDevice>, PoolError> {
    let members = folder.members().into_iter().filter(|path| path.exists());
    let devices = members.map(|path| NamedDevice {
        name: path.display().to_string(),
        device: FileDevice::open(&path),
    });
    let buffers = BufPool::new(1 << 20);
    block_on(async {
        let (members, _) = find_members(devices.collect(), &buffers).await;
        WritablePool::open(members, options, &buffers).await
    })
}

/// Opens the pool as a reader does.
pub fn open_reader(folder: &Folder) -> Pool<FileDevice> {
    let devices = folder.members().into_iter().map(|path| NamedDevice {
        name: path.display().to_string(),
        device: FileDevice::open(&path),
    });
    block_on(async {
        let (members, _) = find_members(devices.collect(), &BufPool::new(1 << 20)).await;
        Pool::open(members, &OpenPool::default()).await.unwrap()
    })
}

/// What the checker says of members.
pub fn check(members: &[PathBuf]) -> Result<CheckReport, PoolError> {
    let devices = members.iter().map(|path| NamedDevice {
        name: path.display().to_string(),
        device: FileDevice::open(path),
    });
    let buffers = BufPool::new(1 << 20);
    block_on(async {
        let (members, _) = find_members(devices.collect(), &buffers).await;
        check_pool(Pool::open(members, &OpenPool::default()).await?).await
    })
}

/// The checker finds nothing.
#[track_caller]
pub fn assert_checked(folder: &Folder) {
    let report = check(&folder.members()).unwrap();
    let findings: Vec<String> = report
        .findings
        .iter()
        .take(20)
        .map(ToString::to_string)
        .collect();
    assert!(
        report.is_clean(),
        "{:?}: {findings:#?} {:?}",
        folder.groups,
        report.notes
    );
    assert!(
        report.blocks > 20 && report.notes.is_empty(),
        "{:?}",
        report.notes
    );
}

/// A volume `tank/vol` with what it should hold.
pub struct Shadow {
    pub bytes: Vec<u8>,
    rng: Rng,
}

pub const VOLUME: &str = "tank/vol";
pub const VOLUME_BYTES: u64 = 8 << 20;

impl Shadow {
    pub fn new(seed: u64) -> Self {
        Self {
            bytes: vec![0; VOLUME_BYTES as usize],
            rng: Rng::new(seed),
        }
    }

    /// Adds the volume to a pool.
    pub fn add_volume(pool: &mut WritablePool<FileDevice>, block_bytes: u64) {
        let new = NewVolume {
            name: VOLUME.into(),
            size_bytes: VOLUME_BYTES,
            block_bytes,
            wall_s: 1_700_000_001,
            seed: 5,
        };
        block_on(pool.create_volume(&new)).unwrap();
    }

    /// Random writes and trims, and a commit.
    pub fn write(&mut self, pool: &mut WritablePool<FileDevice>, count: usize) {
        self.change(pool, count);
        block_on(pool.commit(1_700_000_002)).unwrap();
    }

    /// Random writes and trims of 512 bytes to 64 KiB.
    pub fn change(&mut self, pool: &mut WritablePool<FileDevice>, count: usize) {
        block_on(async {
            let volume = pool.open_volume(VOLUME).await.unwrap();
            for _ in 0..count {
                let length = 512 * self.rng.between(1, 128);
                let at = 512 * self.rng.below((VOLUME_BYTES - length) / 512);
                let range = at as usize..(at + length) as usize;
                if self.rng.chance(1, 8) {
                    pool.trim(&volume, at..at + length).await.unwrap();
                    self.bytes[range].fill(0);
                    continue;
                }
                let value = self.rng.next_u64();
                let part = &mut self.bytes[range];
                for (n, word) in part.chunks_exact_mut(8).enumerate() {
                    word.copy_from_slice(&(value ^ n as u64).to_le_bytes());
                }
                pool.write(&volume, at, part).await.unwrap();
            }
        });
    }

    /// What the pool holds, as this program reads it, is what it should be.
    #[track_caller]
    pub fn assert_same(&self, pool: &mut WritablePool<FileDevice>) {
        let read = block_on(async {
            let volume = pool.open_volume(VOLUME).await.unwrap();
            pool.read(&volume, 0, VOLUME_BYTES as usize).await.unwrap()
        });
        assert!(read == self.bytes, "the volume holds something else");
    }

    /// OpenZFS reads the same.
    #[track_caller]
    pub fn assert_dumped(&self, folder: &Folder, version: &str) {
        let file = folder.path().join("dump");
        engine(
            folder,
            version,
            &[&format!("dump={VOLUME}:{}", file.display())],
        );
        assert!(
            std::fs::read(&file).unwrap() == self.bytes,
            "OpenZFS reads something else"
        );
        std::fs::remove_file(file).unwrap();
    }
}

/// Runs `oracle/zfs-oracle`; its whole output, and whether the verdict is good.
pub fn oracle(words: &[&str]) -> (bool, String) {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracle/zfs-oracle");
    let output = Command::new("python3")
        .arg(program)
        .args(words)
        .output()
        .unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert_ne!(
        output.status.code(),
        Some(125),
        "the oracle itself failed: {text}"
    );
    (output.status.success(), text)
}

/// zdb reads everything, finds no leak and no error.
#[track_caller]
pub fn assert_sound(folder: &Folder, version: &str) {
    let path = folder.path().display().to_string();
    let (is_good, text) = oracle(&["check", &path, "tank", "--version", version, "--complete"]);
    assert!(is_good, "{:?}: {text}", folder.groups);
}

/// The engine of OpenZFS does this.
#[track_caller]
pub fn engine(folder: &Folder, version: &str, operations: &[&str]) -> String {
    let path = folder.path().display().to_string();
    let mut words = vec!["run", &path, "tank", "--version", version];
    words.extend(operations);
    let (is_good, text) = oracle(&words);
    assert!(is_good, "{:?} {operations:?}: {text}", folder.groups);
    text
}
