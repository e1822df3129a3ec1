//! Counters of drives, subdisks, plexes and volumes, while a system of Vinum drives works.

use crate::common::run;
use crate::common::vinum::{drives, open, pool, serve};
use plexum_block::device::Fua;
use plexum_freebsd::gvinum::counters::{Direction, Transfers};
use plexum_freebsd::gvinum::{OpenedVolume, SystemRequest};

const KIB: u64 = 1024;

const TEXT: &str = "drive a device /dev/a\ndrive b device /dev/b\n\
    volume m setupstate\nplex org concat\nsd length 256k drive a\nplex org striped 16k\nsd length 128k drive a\nsd length 128k drive b\n\
    volume s\nplex org striped 64k\nsd length 256k drive a\nsd length 256k drive b\n";

/// Reads or writes as a server does, which counts for a plex that does not count for itself.
async fn ask<D: plexum_block::device::Device>(
    opened: &OpenedVolume<D, crate::common::Still>,
    direction: Direction,
    at: u64,
    length: u64,
) {
    let length_usize = usize::try_from(length).unwrap();
    match direction {
        Direction::Read => {
            opened.volume.read(at, length_usize).await.unwrap();
        }
        Direction::Write => {
            let data = pool().copy_of(&vec![7; length_usize]).freeze();
            opened.volume.write(at, data, Fua::No).await.unwrap();
        }
    }
    if !opened.tally.counts_itself {
        opened.tally.plexes[0].count_on(&opened.volume, direction, at, length);
    }
}

fn transfers(reads: u64, read_kib: u64, writes: u64, written_kib: u64) -> Transfers {
    Transfers {
        reads,
        writes,
        read_bytes: read_kib * KIB,
        written_bytes: written_kib * KIB,
    }
}

#[test]
fn each_object_counts_what_was_done_on_it_until_it_is_reset() {
    let drives = drives(TEXT, 2 << 20);
    let opened = open(drives, SystemRequest::default()).unwrap_or_else(|error| panic!("{error}"));
    let volume = |name: &str| {
        let mut volumes = opened.volumes.iter();
        volumes.find(|one| one.volume.name() == name).unwrap()
    };
    let (mirrored, striped) = (volume("m"), volume("s"));
    run(serve(mirrored, async {
        ask(mirrored, Direction::Write, 0, 64 * KIB).await;
        // Plexes are read in turn.
        ask(mirrored, Direction::Read, 0, 32 * KIB).await;
        ask(mirrored, Direction::Read, 0, 32 * KIB).await;
    }));
    run(serve(striped, async {
        ask(striped, Direction::Write, 96 * KIB, 64 * KIB).await;
        ask(striped, Direction::Read, 0, 512 * KIB).await;
    }));
    let [concat, stripes] = mirrored.tally.plexes.as_slice() else {
        panic!("two plexes");
    };
    assert_eq!(concat.done().transfers, transfers(1, 32, 1, 64));
    assert_eq!(concat.done().multiblock, 0);
    assert_eq!(stripes.done().transfers, transfers(2, 32, 4, 64));
    // 64 KiB are four pieces over two subdisks, 32 KiB are two.
    assert_eq!(
        (stripes.done().multiblock, stripes.done().multistripe),
        (3 + 1, 1)
    );
    assert_eq!(mirrored.tally.done().transfers, transfers(3, 64, 5, 128));
    assert_eq!(
        stripes.subdisks[1].done(),
        transfers(1, 16, 2, 32),
        "the second subdisk of the stripes"
    );
    let plex = striped.tally.plexes[0].done();
    assert_eq!(plex.transfers, transfers(8, 512, 2, 64));
    assert_eq!((plex.multiblock, plex.multistripe), (1 + 7, 1 + 3));
    // A drive has the sum of all volumes.
    let on = |name: &str| {
        let drives = mirrored.tally.drives();
        let drive = drives.iter().find(|drive| drive.name == name).unwrap();
        drive.done()
    };
    assert_eq!(
        on("a"),
        transfers(1 + 1 + 4, 32 + 16 + 256, 1 + 2 + 1, 64 + 32 + 32)
    );
    assert_eq!(on("b"), transfers(1 + 4, 16 + 256, 2 + 1, 32 + 32));
    mirrored.tally.reset();
    assert_eq!(mirrored.tally.done().transfers, Transfers::default());
    assert_eq!(on("a"), Transfers::default());
    assert_eq!(
        striped.tally.done().transfers,
        transfers(8, 512, 2, 64),
        "another volume keeps its own"
    );
}

#[test]
fn recovered_reads_and_writes_without_data_or_parity_are_counted() {
    let text = "drive a device /dev/a\ndrive b device /dev/b\ndrive c device /dev/c\n\
        volume v\nplex org raid5 16k\nsd length 64k drive a\nsd length 64k drive b\nsd length 64k drive c\n";
    // The first row has its parity on the last drive: 0 and 16 KiB are data of the first and the second one.
    for (lost, counts) in [(0, (1, 1, 0)), (1, (0, 0, 0)), (2, (0, 0, 1))] {
        let mut left = drives(text, 1 << 20);
        left.remove(lost);
        let request = SystemRequest {
            run_degraded: true,
            ..SystemRequest::default()
        };
        let opened = open(left, request).unwrap_or_else(|error| panic!("{error}"));
        let volume = &opened.volumes[0];
        run(serve(volume, async {
            ask(volume, Direction::Read, 0, 8 * KIB).await;
            ask(volume, Direction::Write, 0, 8 * KIB).await;
        }));
        let done = volume.tally.done();
        assert_eq!(
            (
                done.recovered_reads,
                done.degraded_writes,
                done.parityless_writes
            ),
            counts,
            "drive {lost}"
        );
        let on_lost = volume.tally.plexes[0].subdisks[lost].done();
        assert_eq!(on_lost, Transfers::default(), "nothing is done there");
    }
}
