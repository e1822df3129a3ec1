//! Members in memory are scrubbed in pieces that stay in the processor's cache, one after the other; others in long
//! ones, several at once. Both find the same.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::common::small_array::{DEVICE_BYTES, three_members};
use crate::common::{Memory, Still, named, run};
use plexum_block::buf::{Buf, BufMut, BufPool};
use plexum_block::device::{Device, DeviceInfo, Fua, IoError};
use plexum_block::wait::{join, yield_once};
use plexum_engine::upkeep::scrub::{ScrubMode, ScrubReport};
use plexum_engine::volume::Volume;
use plexum_layout::{Organisation, Raid5Layout};
use plexum_md::create::{NewArray, plan, write_new};
use plexum_md::open::{OpenRequest, open_volume};

/// A device that says whether it is in memory, and notes the lengths of its reads.
#[derive(Clone)]
struct Noting {
    memory: Memory,
    is_in_memory: bool,
    reads: Rc<RefCell<Vec<usize>>>,
    /// Reads of all members under way now, and at most so far.
    under_way: Rc<Cell<(usize, usize)>>,
}

impl Device for Noting {
    fn info(&self) -> DeviceInfo {
        self.memory.info()
    }
    fn is_in_memory(&self) -> bool {
        self.is_in_memory
    }
    async fn read(&self, offset_bytes: u64, buf: BufMut) -> Result<BufMut, IoError> {
        self.reads.borrow_mut().push(buf.len());
        let (now, most) = self.under_way.get();
        self.under_way.set((now + 1, most.max(now + 1)));
        if !self.is_in_memory {
            yield_once().await;
        }
        let (now, most) = self.under_way.get();
        self.under_way.set((now - 1, most));
        self.memory.read(offset_bytes, buf).await
    }
    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        self.memory.write(offset_bytes, data, fua).await
    }
    async fn flush(&self) -> Result<(), IoError> {
        self.memory.flush().await
    }
}

/// What a scrub did.
struct Scrubbed {
    report: ScrubReport,
    longest_read: usize,
    reads_at_once: usize,
}

/// A scrub of three members of which the second one has two wrong bytes.
fn scrubbed(organisation: Organisation, in_memory: [bool; 3]) -> Scrubbed {
    let array = NewArray {
        strip_bytes: if organisation == Organisation::Raid1 {
            0
        } else {
            512 << 10
        },
        ..three_members(organisation, DEVICE_BYTES)
    };
    let plan = plan(&array).unwrap();
    let reads = Rc::<RefCell<Vec<usize>>>::default();
    let under_way = Rc::<Cell<(usize, usize)>>::default();
    let devices: Vec<Option<Noting>> = in_memory
        .into_iter()
        .map(|is_in_memory| {
            let bytes = vec![0; usize::try_from(DEVICE_BYTES).unwrap()];
            Some(Noting {
                memory: Memory::new(bytes),
                is_in_memory,
                reads: Rc::clone(&reads),
                under_way: Rc::clone(&under_way),
            })
        })
        .collect();
    run(write_new(&plan, &devices, &BufPool::new(0))).unwrap();
    let start = plan.superblocks[1].as_ref().unwrap().data_offset_sectors * 512;
    for wrong in [5_000, 700_000] {
        let at = usize::try_from(start).unwrap() + wrong;
        devices[1].as_ref().unwrap().memory.bytes.borrow_mut()[at] = 1;
    }
    let named = named(devices.into_iter().flatten());
    let pool = BufPool::new(1 << 20);
    let (volume, _): (Volume<Noting, Still>, _) = run(open_volume(
        named,
        Still::default(),
        pool,
        OpenRequest::default(),
    ))
    .unwrap();
    reads.borrow_mut().clear();
    under_way.set((0, 0));
    run(join(volume.run_background(), async {
        assert!(volume.start_scrub(ScrubMode::Check));
        volume.scrub_ended().await;
        volume.stop().await.unwrap();
    }));
    let longest_read = reads.borrow().iter().copied().max().unwrap();
    Scrubbed {
        report: volume.scrub_report().unwrap(),
        longest_read,
        reads_at_once: under_way.get().1,
    }
}

#[test]
fn members_in_memory_are_compared_in_short_pieces_and_others_several_at_once_and_the_same_is_found()
{
    for organisation in [
        Organisation::Raid1,
        Organisation::Raid5(Raid5Layout::LeftSymmetric),
    ] {
        let of_memory = scrubbed(organisation, [true; 3]);
        let of_disks = scrubbed(organisation, [false; 3]);
        let mixed = scrubbed(organisation, [true, false, true]);
        let report = &of_disks.report;
        assert!(report.is_complete && report.mismatches.len() == 2);
        assert_eq!(of_memory.report, of_disks.report);
        assert_eq!(mixed.report, of_disks.report);
        assert_eq!(of_memory.longest_read, 128 << 10);
        assert!(of_disks.longest_read >= 512 << 10);
        assert_eq!(mixed.longest_read, of_disks.longest_read);
        assert_eq!(
            of_memory.reads_at_once, 1,
            "they answer before the next one is asked"
        );
        assert!(of_disks.reads_at_once >= 6, "{}", of_disks.reads_at_once);
    }
}
