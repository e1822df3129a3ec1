//! Prints GB/s of data per kernel of this machine: `cargo run --release -p plexum-parity --example speed [KERNEL ...]`.
//!
//! Eight data blocks, one stripe again and again (warm) or 256 MiB of stripes in turn (cold); the best of many short
//! rounds.

use std::hint::black_box;
use std::time::{Duration, Instant};

use plexum_parity::Block::{Data, P, Q, R};
use plexum_parity::{Block, Kernel, Kernels, RecoverPlan, kernels};

const COUNT: usize = 8;
const COLD_BYTES: usize = 256 << 20;
/// Rounds, and how long one lasts at least: many short ones, so that some are undisturbed on a busy machine.
const ROUNDS: usize = 200;
const ROUND: Duration = Duration::from_millis(1);

/// Stripes of eight data blocks and three parities, at page offsets.
struct Stripes {
    bytes: Vec<u8>,
    block_bytes: usize,
    count: usize,
}

impl Stripes {
    fn new(block_bytes: usize, count: usize) -> Self {
        let length = (COUNT + 3) * block_bytes * count + 4096;
        let bytes = (0..length).map(|i| ((i * 0x9e37) >> 5) as u8).collect();
        Stripes {
            bytes,
            block_bytes,
            count,
        }
    }

    /// The data blocks and the parities of one stripe.
    fn get(&mut self, stripe: usize) -> ([&[u8]; COUNT], [&mut [u8]; 3]) {
        let start =
            self.bytes.as_ptr().align_offset(4096) + stripe * (COUNT + 3) * self.block_bytes;
        let stripe = &mut self.bytes[start..][..(COUNT + 3) * self.block_bytes];
        let (data, parity) = stripe.split_at_mut(COUNT * self.block_bytes);
        let mut blocks = data.chunks_exact(self.block_bytes);
        let mut parities = parity.chunks_exact_mut(self.block_bytes);
        (
            std::array::from_fn(|_| blocks.next().expect("eight blocks")),
            std::array::from_fn(|_| parities.next().expect("three parities")),
        )
    }
}

/// GB/s of data.
fn measure(stripes: &mut Stripes, mut work: impl FnMut(&[&[u8]], [&mut [u8]; 3])) -> f64 {
    let bytes = (COUNT * stripes.block_bytes) as f64;
    let mut best = 0f64;
    for _ in 0..if stripes.count == 1 { ROUNDS } else { 9 } {
        let start = Instant::now();
        let mut done = 0u64;
        while start.elapsed() < ROUND {
            for stripe in 0..if stripes.count == 1 {
                64
            } else {
                stripes.count
            } {
                let (data, parities) = stripes.get(stripe % stripes.count);
                work(black_box(&data), parities);
                done += 1;
            }
        }
        best = best.max(done as f64 * bytes / start.elapsed().as_nanos() as f64);
    }
    best
}

/// Recover: the lost blocks go to the places of the parities that are left, which costs the same.
fn recover(
    kernels: &Kernels,
    stripes: &mut Stripes,
    missing: &[Block],
    available: &[Block],
) -> f64 {
    let exponents: [u8; COUNT] = std::array::from_fn(|i| i as u8);
    let plan = RecoverPlan::new(&exponents, missing, available).expect("a possible loss");
    let spare = vec![7; stripes.block_bytes * 3];
    let spare: Vec<&[u8]> = spare.chunks_exact(stripes.block_bytes).collect();
    let survivors = plan
        .sources()
        .iter()
        .filter(|block| matches!(block, Data(_)))
        .count();
    measure(stripes, |data, mut targets| {
        let mut sources = [data[0]; COUNT];
        sources[..survivors].copy_from_slice(&data[COUNT - survivors..]);
        let parities = plan.sources().len() - survivors;
        sources[survivors..][..parities].copy_from_slice(&spare[..parities]);
        plan.recover_with(
            kernels,
            &sources[..survivors + parities],
            &mut targets[..missing.len()],
        );
    })
}

fn line(kernels: &Kernels, stripes: &mut Stripes, what: &str) {
    let exponents: [u8; COUNT] = std::array::from_fn(|i| i as u8);
    let rotated: [u8; COUNT] = std::array::from_fn(|i| ((i + 3) % COUNT) as u8);
    let found = [
        measure(stripes, |data, [p, _, _]| kernels.gen_p(data, p)),
        measure(stripes, |data, [p, q, _]| {
            kernels.gen_pq(data, &exponents, p, q)
        }),
        measure(stripes, |data, [p, q, _]| {
            kernels.gen_pq(data, &rotated, p, q)
        }),
        measure(stripes, |data, [p, q, r]| {
            kernels.gen_pqr(data, &exponents, p, q, r)
        }),
        {
            let (data, [p, q, _]) = stripes.get(0);
            kernels.gen_pq(&data, &exponents, p, q);
            if stripes.count == 1 {
                measure(stripes, |data, [p, q, _]| {
                    assert_eq!(kernels.check_pq(data, &exponents, p, q), None);
                })
            } else {
                f64::NAN
            }
        },
        measure(stripes, |data, [p, q, _]| {
            kernels.update_pq(data[0], data[1], 5, p, q)
        }) / COUNT as f64,
        recover(kernels, stripes, &[Data(3)], &[P]),
        recover(kernels, stripes, &[Data(2), Data(5)], &[P, Q]),
        recover(kernels, stripes, &[Data(2), P], &[Q]),
        recover(kernels, stripes, &[Data(2), Data(5), Data(6)], &[P, Q, R]),
    ];
    print!("{:12}{what:9}", kernels.kernel());
    found.iter().for_each(|speed| print!("{speed:8.1}"));
    println!();
}

fn main() {
    let wanted: Vec<_> = std::env::args()
        .skip(1)
        .filter_map(|name| Kernel::from_name(&name))
        .collect();
    let head = [
        "P", "PQ", "PQ rot", "PQR", "check", "update", "1", "2", "D+P", "3",
    ];
    print!("{:21}", "GB/s of data");
    head.iter().for_each(|what| print!("{what:>8}"));
    println!();
    for kernels in
        kernels().filter(|kernels| wanted.is_empty() || wanted.contains(&kernels.kernel()))
    {
        line(kernels, &mut Stripes::new(4096, 1), "4K warm");
        line(kernels, &mut Stripes::new(65536, 1), "64K warm");
        line(
            kernels,
            &mut Stripes::new(65536, COLD_BYTES / (COUNT + 3) / 65536),
            "64K cold",
        );
    }
}
