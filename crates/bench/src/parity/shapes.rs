//! What is measured of the own kernels.

use std::hint::black_box;
use std::time::Duration;

use plexum_parity::Block::{Data, P, Q};
use plexum_parity::{Block, Kernels, RecoverPlan};
use rustix::time::{ClockId, clock_gettime};

use crate::compare::Reading;

/// Where blocks begin: at multiples of this, all of them.
const PAGE_BYTES: usize = 4096;

/// By how much SnapRAID's speed test moves each block away from the one before, so that they do not meet in the same
/// lines of the caches.
const SNAPRAID_GAP_BYTES: usize = 1792;

/// Data of all cold stripes together.
const COLD_BYTES: usize = 256 << 20;

/// Parities and places for what is restored, beside the data blocks of a stripe.
const FURTHER: usize = 3;

/// Blocks that something is computed from, at most.
const SOURCES_MAX: usize = 16;

/// Blocks of a stripe, and how they are gone through.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub blocks: usize,
    pub block_bytes: usize,
    /// Unused bytes behind each block.
    pub gap_bytes: usize,
    pub is_cold: bool,
    /// Held to AVX2, for machines that have no more.
    pub is_avx2: bool,
}

impl Shape {
    /// Bytes from one stripe to the next.
    fn stripe_bytes(&self) -> usize {
        (self.blocks + FURTHER) * (self.block_bytes + self.gap_bytes)
    }
}

const fn warm(blocks: usize, block_bytes: usize) -> Shape {
    let (is_cold, is_avx2) = (false, false);
    Shape {
        blocks,
        block_bytes,
        gap_bytes: 0,
        is_cold,
        is_avx2,
    }
}

/// As in SnapRAID's own speed test.
const SNAPRAIDS: Shape = Shape {
    gap_bytes: SNAPRAID_GAP_BYTES,
    ..warm(8, 256 << 10)
};

pub(super) const SHAPES: [Shape; 8] = [
    warm(4, 4 << 10),
    warm(8, 4 << 10),
    warm(16, 4 << 10),
    warm(8, 64 << 10),
    SNAPRAIDS,
    Shape {
        is_cold: true,
        ..warm(8, 64 << 10)
    },
    Shape {
        is_avx2: true,
        ..warm(8, 4 << 10)
    },
    Shape {
        is_avx2: true,
        ..SNAPRAIDS
    },
];

/// What is done with every shape.
#[cfg(test)]
pub(super) const OPERATIONS: [&str; 6] = [
    "XOR",
    "P+Q",
    "P+Q+R",
    "recover 1",
    "recover 2",
    "recover data and P",
];

/// Stripes, the first one at a page offset.
struct Stripes {
    bytes: Vec<u8>,
    start: usize,
    shape: Shape,
    count: usize,
}

impl Stripes {
    fn new(shape: Shape) -> Self {
        let data_bytes = shape.blocks * shape.block_bytes;
        let count = if shape.is_cold {
            COLD_BYTES / data_bytes
        } else {
            1
        };
        let length = shape.stripe_bytes() * count + PAGE_BYTES;
        let bytes: Vec<u8> = (0..length).map(|i| ((i * 0x9e37) >> 5) as u8).collect();
        let start = bytes.as_ptr().align_offset(PAGE_BYTES);
        Self {
            bytes,
            start,
            shape,
            count,
        }
    }

    /// GB/s of data, by this thread's CPU time.
    fn rate(&mut self, millis: u64, mut work: impl FnMut(&[&[u8]], &mut [&mut [u8]])) -> f64 {
        let Shape {
            blocks,
            block_bytes,
            gap_bytes,
            ..
        } = self.shape;
        let (stripe_bytes, next) = (self.shape.stripe_bytes(), block_bytes + gap_bytes);
        let batch = if self.count > 1 { self.count } else { 64 };
        let started = thread_time();
        let (mut done, mut spent) = (0usize, Duration::ZERO);
        while spent < Duration::from_millis(millis) {
            for step in 0..batch {
                let at = self.start + step % self.count * stripe_bytes;
                let (data, further) = self.bytes[at..at + stripe_bytes].split_at_mut(blocks * next);
                let mut sources: [&[u8]; SOURCES_MAX] = [&[]; SOURCES_MAX];
                for (source, block) in sources.iter_mut().zip(data.chunks_exact(next)) {
                    *source = &block[..block_bytes];
                }
                let (first, further) = further.split_at_mut(next);
                let (second, third) = further.split_at_mut(next);
                let further = [first, second, third].map(|block| &mut block[..block_bytes]);
                work(black_box(&sources[..blocks]), &mut { further });
            }
            done += batch;
            spent = thread_time() - started;
        }
        (done * blocks * block_bytes) as f64 / spent.as_nanos() as f64
    }
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// All operations on one shape, once.
pub(super) fn measure(kernels: &Kernels, shape: &Shape, millis: u64) -> Vec<Reading> {
    let mut stripes = Stripes::new(*shape);
    let exponents: Vec<u8> = (0u8..).take(shape.blocks).collect();
    let mut readings = Vec::new();
    let mut add = |operation: &str, rate: f64| readings.push((shape.name(operation), "GB/s", rate));
    add(
        "XOR",
        stripes.rate(millis, |data, further| kernels.gen_p(data, further[0])),
    );
    add(
        "P+Q",
        stripes.rate(millis, |data, further| {
            let [p, q, _] = further else { return };
            kernels.gen_pq(data, &exponents, p, q);
        }),
    );
    add(
        "P+Q+R",
        stripes.rate(millis, |data, further| {
            let [p, q, r] = further else { return };
            kernels.gen_pqr(data, &exponents, p, q, r);
        }),
    );
    let ways: [(&str, &[Block], &[Block]); 3] = [
        ("recover 1", &[Data(3)], &[P]),
        ("recover 2", &[Data(2), Data(3)], &[P, Q]),
        ("recover data and P", &[Data(2), P], &[Q]),
    ];
    for (operation, missing, available) in ways {
        add(
            operation,
            recover(
                kernels,
                &mut stripes,
                &exponents,
                (missing, available),
                millis,
            ),
        );
    }
    readings
}

/// What is lost goes to the places of the parities, which costs the same; the parities that are read lie beside the
/// stripes.
fn recover(
    kernels: &Kernels,
    stripes: &mut Stripes,
    exponents: &[u8],
    (missing, available): (&[Block], &[Block]),
    millis: u64,
) -> f64 {
    let Ok(plan) = RecoverPlan::new(exponents, missing, available) else {
        return 0.0; // none of the losses above is impossible
    };
    let block_bytes = stripes.shape.block_bytes;
    let parities = vec![7; block_bytes * available.len() + PAGE_BYTES];
    let start = parities.as_ptr().align_offset(PAGE_BYTES);
    let parities: Vec<&[u8]> = parities[start..]
        .chunks_exact(block_bytes)
        .take(available.len())
        .collect();
    stripes.rate(millis, |data, further| {
        let mut read = parities.iter().copied();
        let mut sources: [&[u8]; SOURCES_MAX] = [&[]; SOURCES_MAX];
        for (source, block) in sources.iter_mut().zip(plan.sources()) {
            *source = match block {
                Data(index) => data[*index],
                _ => read.next().unwrap_or_default(),
            };
        }
        let sources = &sources[..plan.sources().len()];
        plan.recover_with(kernels, sources, &mut further[..missing.len()]);
    })
}
