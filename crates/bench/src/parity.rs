//! Parity kernels on warm blocks, with the chosen instruction set.

use std::time::{Duration, Instant};

use crate::row::{Row, median};

/// Data blocks of a row.
const BLOCKS: usize = 8;

/// GB/s of data for P and P+Q over 4 KiB and 64 KiB blocks.
pub(crate) fn measure(rounds: usize, millis: u64) -> Vec<Row> {
    let mut rows = Vec::new();
    for block_bytes in [4096usize, 65_536] {
        let sources = vec![vec![0x5au8; block_bytes]; BLOCKS];
        let sources: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
        let exponents: Vec<u8> = (0u8..).take(BLOCKS).collect();
        let (mut p, mut q) = (vec![0; block_bytes], vec![0; block_bytes]);
        let xor: Vec<f64> = (0..rounds)
            .map(|_| {
                rate(millis, block_bytes, || {
                    plexum_parity::gen_p(&sources, &mut p)
                })
            })
            .collect();
        let both: Vec<f64> = (0..rounds)
            .map(|_| {
                rate(millis, block_bytes, || {
                    plexum_parity::gen_pq(&sources, &exponents, &mut p, &mut q)
                })
            })
            .collect();
        for (what, rates) in [("P of 8", xor), ("P and Q of 8", both)] {
            let bytes_per_s = median(rates.into_iter());
            let row_bytes = (BLOCKS * block_bytes) as f64;
            rows.push(Row {
                group: "parity",
                what: what.to_owned(),
                members: plexum_parity::chosen().kernel().name().to_owned(),
                request_bytes: block_bytes as u64,
                depth: 1,
                direction: "",
                iops: bytes_per_s / row_bytes,
                bytes_per_s,
                cpu_us_per_io: row_bytes / bytes_per_s * 1e6,
                rounds,
            });
        }
    }
    rows
}

fn rate(millis: u64, block_bytes: usize, mut step: impl FnMut()) -> f64 {
    let time = Duration::from_millis(millis);
    let started = Instant::now();
    let mut steps = 0u64;
    while started.elapsed() < time {
        for _ in 0..64 {
            step();
        }
        steps += 64;
    }
    (steps * (BLOCKS * block_bytes) as u64) as f64 / started.elapsed().as_secs_f64()
}
