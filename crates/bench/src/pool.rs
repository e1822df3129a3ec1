//! A file of a healthy RAID-Z2 pool, beside what its members and its checksum allow.
//!
//! The pool is made here, on files: OpenZFS is not needed. Its only data set is a volume of records of 128 KiB.

use std::fs::{File, OpenOptions as FileOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Instant;

use plexum_block::buf::BufPool;
use plexum_block::device::Device;
use plexum_block::wait::join_all;
use plexum_daemon::open::{AnyDevice, MemberWord};
use plexum_daemon::zfs::open_pool;
use plexum_format::zfs::checksum::{fletcher4, seal_embedded};
use plexum_layout::{RaidzGeometry, RaidzPart};
use plexum_parity::Fletcher4;
use plexum_runtime::file::OpenOptions;
use plexum_runtime::{Handle, Runtime};
use plexum_zfs::{DatasetName, OpenOptions as PoolOptions};

use crate::row::{Row, median};
use crate::{BenchError, BenchOptions};

/// Members and parities of the pool, and its sector.
const MEMBERS: usize = 6;
const PARITIES: usize = 2;
const SECTOR_SHIFT: u32 = 12;
/// Records of the volume.
const RECORD_BYTES: usize = 128 << 10;
const RECORDS: usize = 1024;
const MEMBER_BYTES: u64 = 64 << 20;
const DATA_OFFSET_BYTES: u64 = 4 << 20;
const TXG: u64 = 10;
/// Bytes of a column of a record: what one read of a member asks for.
const COLUMN_BYTES: usize = RECORD_BYTES / (MEMBERS - PARITIES);

type Pointer = [u8; 128];

/// Rates of the members, of the checksum, and of the file.
pub(crate) fn measure(options: &BenchOptions) -> Result<Vec<Row>, BenchError> {
    let tell = |error: std::io::Error| BenchError(format!("making a pool: {error}"));
    let mut pool = Maker::new(options).map_err(tell)?;
    let result = pool
        .make()
        .map_err(tell)
        .and_then(|()| rates(&pool, options));
    pool.paths
        .iter()
        .for_each(|path| drop(std::fs::remove_file(path)));
    let [members, checksum, file] = result?;
    let ratio = file / members.min(checksum);
    let row = |what: String, bytes_per_s: f64| Row {
        group: "pool",
        what,
        members: "file".to_owned(),
        request_bytes: RECORD_BYTES as u64,
        depth: 1,
        direction: "read",
        iops: bytes_per_s / RECORD_BYTES as f64,
        bytes_per_s,
        cpu_us_per_io: 0.0,
        rounds: options.rounds,
    };
    Ok(vec![
        row("columns of members".into(), members),
        row("fletcher4".into(), checksum),
        row(format!("raidz2, {ratio:.2} of these"), file),
    ])
}

fn rates(pool: &Maker, options: &BenchOptions) -> Result<[f64; 3], BenchError> {
    let mut rates: [Vec<f64>; 3] = Default::default();
    let block = vec![0x5a; RECORD_BYTES];
    for _ in 0..options.rounds {
        let mut runtime =
            Runtime::new(options.io).map_err(|error| BenchError(error.to_string()))?;
        let handle = runtime.handle();
        rates[0].push(runtime.block_on(members_rate(&handle, pool))?);
        let started = Instant::now();
        let mut sum = 0;
        for _ in 0..RECORDS {
            let mut checksum = Fletcher4::default();
            checksum.add(std::hint::black_box(&block));
            sum ^= checksum.sums()[3];
        }
        std::hint::black_box(sum);
        rates[1].push(per_second(started));
        rates[2].push(runtime.block_on(file_rate(&handle, pool))?);
    }
    Ok(rates.map(|rates| median(rates.into_iter())))
}

fn per_second(started: Instant) -> f64 {
    (RECORDS * RECORD_BYTES) as f64 / started.elapsed().as_secs_f64()
}

/// As many bytes as the file has, in reads as long as columns, from all members at once.
async fn members_rate(handle: &Handle, pool: &Maker) -> Result<f64, BenchError> {
    let mut devices = Vec::new();
    for path in &pool.paths {
        let word = MemberWord::Path(path.clone());
        let device = AnyDevice::open(handle, &word, &OpenOptions::read_only()).await;
        devices.push(device.map_err(|problem| BenchError(problem.message))?);
    }
    let buffers = BufPool::new(16 << 20);
    let started = Instant::now();
    let reads = (RECORDS * RECORD_BYTES / COLUMN_BYTES / MEMBERS) as u64;
    let streams = devices.iter().map(|device| async {
        for n in 0..reads {
            let at = DATA_OFFSET_BYTES + n * COLUMN_BYTES as u64;
            device.read(at, buffers.take(COLUMN_BYTES)).await?;
        }
        Ok::<(), plexum_block::device::IoError>(())
    });
    for result in join_all(streams).await {
        result.map_err(|error| BenchError(error.to_string()))?;
    }
    Ok(per_second(started))
}

async fn file_rate(handle: &Handle, pool: &Maker) -> Result<f64, BenchError> {
    let words: Vec<String> = pool
        .paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let opened = open_pool(handle, &words, &PoolOptions::default()).await;
    let opened = opened.map_err(|problem| BenchError(problem.message))?;
    let volume = opened.volume(&DatasetName::parse("bench")).await;
    let mut reader = volume
        .map_err(|error| BenchError(error.to_string()))?
        .reader();
    let started = Instant::now();
    while let Some(piece) = reader
        .next()
        .await
        .map_err(|error| BenchError(error.to_string()))?
    {
        std::hint::black_box(piece.slices().map(<[u8]>::len).sum::<usize>());
    }
    Ok(per_second(started))
}

/// Writes the pool.
struct Maker {
    paths: Vec<PathBuf>,
    files: Vec<File>,
    geometry: RaidzGeometry,
    used_bytes: u64,
}

impl Maker {
    fn new(options: &BenchOptions) -> std::io::Result<Self> {
        let (mut paths, mut files) = (Vec::new(), Vec::new());
        for n in 0..MEMBERS {
            let path = crate::setup::file_folder(options)
                .join(format!("plexum-bench-pool-{}-{n}", std::process::id()));
            let file = FileOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .open(&path)?;
            file.set_len(MEMBER_BYTES)?;
            paths.push(path);
            files.push(file);
        }
        let geometry = RaidzGeometry::new(MEMBERS as u16, PARITIES as u8, SECTOR_SHIFT)
            .expect("six members with two parities are possible");
        Ok(Self {
            paths,
            files,
            geometry,
            used_bytes: 0,
        })
    }

    fn make(&mut self) -> std::io::Result<()> {
        let mut pointers = Vec::new();
        let mut record = vec![0; RECORD_BYTES];
        for n in 0..RECORDS {
            for (at, byte) in record.iter_mut().enumerate() {
                *byte = (at * 31 + n * 7) as u8;
            }
            pointers.extend(self.block(&record, 0)?);
        }
        let indirect = self.block(&pointers, 1)?;
        let mut data = dnode(23, RECORD_BYTES, indirect, 0, &[]);
        data[2] = 2; // levels
        data[16..24].copy_from_slice(&(RECORDS as u64 - 1).to_le_bytes());
        let size = self.block(&zap("size", (RECORDS * RECORD_BYTES) as u64), 0)?;
        let volume = self.set(3, &[vec![0; 512], data, dnode(24, 4096, size, 0, &[])])?;
        let directory = self.block(&zap("root_dataset", 2), 0)?;
        let mut dir_bonus = [0; 256];
        dir_bonus[8] = 3; // head data set
        let mut dataset_bonus = [0; 320];
        dataset_bonus[128..256].copy_from_slice(&volume);
        let root = self.set(
            1,
            &[
                vec![0; 512],
                dnode(1, 4096, directory, 0, &[]),
                dnode(12, 4096, directory, 12, &dir_bonus),
                dnode(16, 4096, directory, 16, &dataset_bonus),
            ],
        )?;
        self.labels(root)
    }

    /// A block with its parity; the pointer to it.
    fn block(&mut self, bytes: &[u8], level: u64) -> std::io::Result<Pointer> {
        let mut bytes = bytes.to_vec();
        bytes.resize(bytes.len().next_multiple_of(1 << SECTOR_SHIFT), 0);
        let at = self.used_bytes;
        let length = bytes.len() as u64;
        let map = self.geometry.map(at, length).expect("far below the limits");
        let padded = map.parity_bytes() as usize;
        let mut columns: Vec<Vec<u8>> = Vec::new();
        for column in map.columns() {
            let mut data = vec![0; padded];
            if let RaidzPart::Data(_) = column.part {
                let start = column.block_offset_bytes as usize;
                let part = &bytes[start..start + column.length_bytes as usize];
                data[..part.len()].copy_from_slice(part);
            }
            columns.push(data);
        }
        let (parity, data) = columns.split_at_mut(PARITIES);
        let sources: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let exponents: Vec<u8> = (0..map.data_count()).map(|n| map.exponent(n)).collect();
        let [p, q] = parity else {
            unreachable!("two parities")
        };
        plexum_parity::gen_pq(&sources, &exponents, p, q);
        for (column, data) in map.columns().zip(&columns) {
            let offset = DATA_OFFSET_BYTES + column.member_offset_bytes;
            self.files[column.slot].write_all_at(&data[..column.length_bytes as usize], offset)?;
        }
        let space = self
            .geometry
            .allocated_bytes(length)
            .expect("far below the limits");
        self.used_bytes += space;
        let sectors = length / 512;
        let prop = (sectors - 1)
            | (sectors - 1) << 16
            | 2 << 32
            | 7 << 40
            | 23 << 48
            | level << 56
            | 1 << 63;
        let mut words = [0; 16];
        (words[0], words[1], words[6], words[10]) = (space / 512, at / 512, prop, TXG);
        words[12..].copy_from_slice(&fletcher4(&bytes));
        let mut pointer = [0; 128];
        put_words(&mut pointer, &words);
        Ok(pointer)
    }

    fn set(&mut self, kind: u64, dnodes: &[Vec<u8>]) -> std::io::Result<Pointer> {
        let mut block = dnodes.concat();
        block.resize(16384, 0);
        let objects = self.block(&block, 0)?;
        let mut head = dnode(10, 16384, objects, 0, &[]);
        head.resize(4096, 0);
        put_words(&mut head[704..], &[kind]);
        self.block(&head, 0)
    }

    fn labels(&self, root: Pointer) -> std::io::Result<()> {
        for (member, file) in self.files.iter().enumerate() {
            let list = label(member as u64);
            for offset in [
                0,
                256 << 10,
                MEMBER_BYTES - (512 << 10),
                MEMBER_BYTES - (256 << 10),
            ] {
                let mut area = vec![0; 112 << 10];
                area[..list.len()].copy_from_slice(&list);
                seal_embedded(&mut area, [offset + (16 << 10), 0, 0, 0]);
                file.write_all_at(&area, offset + (16 << 10))?;
                let at = offset + (128 << 10) + (TXG << SECTOR_SHIFT);
                let mut slot = vec![0; 1 << SECTOR_SHIFT];
                put_words(&mut slot, &[0x00ba_b10c, 5000, TXG, 0, 1_700_000_000]);
                slot[40..168].copy_from_slice(&root);
                seal_embedded(&mut slot, [at, 0, 0, 0]);
                file.write_all_at(&slot, at)?;
            }
        }
        Ok(())
    }
}

fn put_words(bytes: &mut [u8], words: &[u64]) {
    for (n, word) in words.iter().enumerate() {
        bytes[8 * n..8 * n + 8].copy_from_slice(&word.to_le_bytes());
    }
}

fn dnode(kind: u8, block_bytes: usize, pointer: Pointer, bonus_kind: u8, bonus: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 512];
    bytes[..8].copy_from_slice(&[kind, 17, 1, 1, bonus_kind, 0, 0, 1]);
    bytes[8..10].copy_from_slice(&((block_bytes / 512) as u16).to_le_bytes());
    bytes[10..12].copy_from_slice(&(bonus.len() as u16).to_le_bytes());
    bytes[64..192].copy_from_slice(&pointer);
    bytes[192..192 + bonus.len()].copy_from_slice(bonus);
    bytes
}

fn zap(name: &str, value: u64) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    put_words(&mut bytes, &[(1 << 63) + 3]);
    put_words(&mut bytes[64..], &[value]);
    bytes[78..78 + name.len()].copy_from_slice(name.as_bytes());
    bytes
}

/// The configuration in the label of a member, with its header.
fn label(member: u64) -> Vec<u8> {
    let mut tree = Vec::new();
    text(&mut tree, "type", "raidz");
    for (name, value) in [
        ("id", 0),
        ("guid", 78),
        ("nparity", PARITIES as u64),
        ("ashift", u64::from(SECTOR_SHIFT)),
        (
            "asize",
            (MEMBER_BYTES - DATA_OFFSET_BYTES - (512 << 10)) * MEMBERS as u64,
        ),
    ] {
        number(&mut tree, name, value);
    }
    pair(&mut tree, "children", 20, MEMBERS as u32);
    for child in 0..MEMBERS as u64 {
        tree.extend(LIST_HEAD);
        text(&mut tree, "type", "file");
        number(&mut tree, "guid", 100 + child);
        tree.extend([0; 8]);
    }
    let mut list = vec![1, 1, 0, 0];
    list.extend(LIST_HEAD);
    text(&mut list, "name", "bench");
    for (name, value) in [
        ("version", 5000),
        ("state", 1),
        ("txg", TXG),
        ("pool_guid", 77),
        ("top_guid", 78),
        ("guid", 100 + member),
        ("vdev_children", 1),
    ] {
        number(&mut list, name, value);
    }
    pair(&mut list, "vdev_tree", 19, 1);
    list.extend(LIST_HEAD);
    list.extend(tree);
    list.extend([0; 16]);
    list
}

/// Version and flags of a name-value list.
const LIST_HEAD: [u8; 8] = [0, 0, 0, 0, 0, 0, 0, 1];

fn pair(out: &mut Vec<u8>, name: &str, kind: u32, count: u32) {
    out.extend([0, 0, 0, 64, 0, 0, 0, 64]); // sizes that are not looked at
    string(out, name);
    out.extend(kind.to_be_bytes());
    out.extend(count.to_be_bytes());
}

fn string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u32).to_be_bytes());
    out.extend(text.bytes());
    out.resize(out.len().next_multiple_of(4), 0);
}

fn text(out: &mut Vec<u8>, name: &str, value: &str) {
    pair(out, name, 9, 1);
    string(out, value);
}

fn number(out: &mut Vec<u8>, name: &str, value: u64) {
    pair(out, name, 8, 1);
    out.extend(value.to_be_bytes());
}
