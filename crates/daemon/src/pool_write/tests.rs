//! Changes of a pool that fail in the middle.

use std::cell::Cell;

use plexum_block::boxed::BoxedDevice;
use plexum_block::buf::{Buf, BufMut};
use plexum_block::device::{DeviceInfo, Extent, Fua, IoError, ZeroMode};
use plexum_runtime::{IoChoice, Runtime};

use super::*;

/// A device that takes so many flushes and no more.
struct Failing {
    device: AnyDevice,
    flushes_left: Rc<Cell<u32>>,
}

impl Device for Failing {
    fn info(&self) -> DeviceInfo {
        self.device.info()
    }
    async fn read(&self, offset_bytes: u64, buf: BufMut) -> Result<BufMut, IoError> {
        self.device.read(offset_bytes, buf).await
    }
    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        self.device.write(offset_bytes, data, fua).await
    }
    async fn flush(&self) -> Result<(), IoError> {
        let left = self.flushes_left.get();
        self.flushes_left.set(left.saturating_sub(1));
        match left {
            0 => Err(IoError::Medium),
            _ => self.device.flush().await,
        }
    }
    async fn zero(&self, offset: u64, length: u64, mode: ZeroMode) -> Result<(), IoError> {
        self.device.zero(offset, length, mode).await
    }
    async fn extents(&self, offset: u64, length: u64, max: usize) -> Result<Vec<Extent>, IoError> {
        self.device.extents(offset, length, max).await
    }
}

async fn make(handle: &Handle, word: &str) {
    let request = PoolRequest {
        name: "tank".into(),
        groups: vec![(GroupKind::Single, vec![word.to_owned()])],
        member_size_bytes: Some(96 << 20),
        sector_bytes: 4096,
    };
    let access = Access::ReadWrite;
    let plan = PoolCreation::prepare(handle, &request, access).await;
    plan.unwrap().carry_out(handle).await.unwrap();
}

/// The pool of one member, which takes so many flushes.
async fn open_failing(handle: &Handle, word: &str, flushes: u32) -> WritablePool<AnyDevice> {
    let parsed = MemberWord::parse(word);
    let device = AnyDevice::open(handle, &parsed, &OpenOptions::read_write()).await;
    let failing = Failing {
        device: device.unwrap(),
        flushes_left: Rc::new(Cell::new(flushes)),
    };
    let named = NamedDevice {
        name: word.to_owned(),
        device: AnyDevice::Stacked(BoxedDevice::new(Rc::new(failing))),
    };
    let buffers = BufPool::new(KEEP_BYTES);
    let (members, _) = find_members(vec![named], &buffers).await;
    let options = WriteOptions {
        absent: Absent::Refused,
        ..Foreign::Refused.into()
    };
    WritablePool::open(members, options, &buffers)
        .await
        .unwrap()
}

#[test]
fn no_root_names_a_file_that_was_made_for_a_change_that_failed_and_is_gone() {
    let home = tempfile::tempdir().unwrap();
    let word = |name: &str| home.path().join(name).display().to_string();
    let (old, new) = (word("a"), word("b"));
    let mut runtime = Runtime::new(IoChoice::Threads).unwrap();
    let handle = runtime.handle();
    let (mut kept, mut flushes) = (0, 0);
    loop {
        for path in [&old, &new] {
            let _ = std::fs::remove_file(path);
        }
        let is_done = runtime.block_on(async {
            make(&handle, &old).await;
            let mut pool = open_failing(&handle, &old, flushes).await;
            let member = PlannedMember::prepare(&handle, &new, Some(96 << 20)).await;
            let now = Now { wall_s: 1, seed: 7 };
            let result = attach_member(&handle, &mut pool, &old, member.unwrap(), now).await;
            result.is_ok()
        });
        if is_done {
            break;
        }
        kept += u32::from(Path::new(&new).exists());
        let mut opens = |words: &[String]| {
            let opened = open_writable(&handle, words, Foreign::Refused, Trust::AfterCheck);
            runtime.block_on(opened).map(drop)
        };
        if let Err(problem) = opens(std::slice::from_ref(&old)) {
            let both = opens(&[old.clone(), new.clone()]);
            assert!(
                both.is_ok(),
                "{flushes} flushes: {problem:?}, and with the new member {both:?}"
            );
        }
        flushes += 1;
    }
    assert!(
        kept > 0,
        "some commit failed when its root may have been there"
    );
}
