//! gmirror, gvinum and md change into each other in place: at every cut one of both forms is whole, and a second try
//! ends it.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::{Memory, Still, run};
use plexum_block::boxed::BoxedDevice;
use plexum_block::buf::{Buf, BufMut, BufPool};
use plexum_block::device::{Device, DeviceInfo, Fua, IoError};
use plexum_engine::volume::VolumeOptions;
use plexum_format::EventCount;
use plexum_format::gmirror::{Balance, MirrorLabel, NewMirrorLabel};
use plexum_format::md::{BadBlockArea, MdVersion, Role, Superblock};
use plexum_format::vinum::Mark;
use plexum_freebsd::gmirror::{MirrorRequest, open_mirror};
use plexum_freebsd::gvinum::{SystemRequest, open_system};
use plexum_freebsd::in_place::{InPlace, Seen, carry_out, look, to_md, to_mirror, to_system};
use plexum_md::open::{OpenRequest, open_volume};

const SIZE: usize = 1 << 20;
/// What a mirror may hold so that a superblock of md-1.0 has room behind it.
const MIRRORED: u64 = (SIZE - 16_384) as u64;

fn pool() -> BufPool {
    BufPool::new(1 << 22)
}

/// A device that is cut off after a number of written sectors, all devices together.
struct Cut {
    memory: Memory,
    left: Rc<Cell<usize>>,
}

impl Device for Cut {
    fn info(&self) -> DeviceInfo {
        self.memory.info()
    }
    async fn read(&self, offset_bytes: u64, buf: BufMut) -> Result<BufMut, IoError> {
        self.memory.read(offset_bytes, buf).await
    }
    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        let sectors = data.len() / 512;
        let done = sectors.min(self.left.get());
        self.left.set(self.left.get() - done);
        let part = pool().copy_of(&data[..done * 512]).freeze();
        self.memory.write(offset_bytes, part, fua).await?;
        if done < sectors {
            return Err(IoError::Gone);
        }
        Ok(())
    }
    async fn flush(&self) -> Result<(), IoError> {
        self.memory.flush().await
    }
}

fn content(length: u64) -> Vec<u8> {
    (0..length)
        .map(|at| (at / 512 * 7 + at % 251) as u8)
        .collect()
}

fn mirror(volume_bytes: u64) -> Vec<Memory> {
    let member = |number: u8| {
        let label = MirrorLabel::create(&NewMirrorLabel {
            name: "g",
            mirror_id: 5,
            component_id: u32::from(number) + 1,
            component_count: 2,
            priority: number,
            slice_bytes: 4096,
            balance: Balance::Load,
            volume_bytes,
            sector_bytes: 512,
            provider_bytes: SIZE as u64,
        });
        let mut bytes = content(volume_bytes);
        bytes.resize(SIZE, 0x55);
        bytes[SIZE - 512..].copy_from_slice(&label.unwrap().encode());
        Memory::new(bytes)
    };
    (0..2).map(member).collect()
}

/// Drives of a system, all zero where nobody wrote.
fn drives(text: &str, count: usize) -> Vec<Memory> {
    let drives = crate::common::vinum::drives(text, SIZE);
    assert_eq!(drives.len(), count);
    drives
}

fn named(devices: &[Memory]) -> Vec<(String, Memory)> {
    let each = devices.iter().enumerate();
    each.map(|(index, device)| (format!("da{index}"), device.clone()))
        .collect()
}

fn reading() -> VolumeOptions {
    VolumeOptions {
        is_read_only: true,
        ..VolumeOptions::default()
    }
}

fn read_md(devices: &[Memory]) -> Option<Vec<u8>> {
    let request = OpenRequest {
        volume: reading(),
        ..OpenRequest::default()
    };
    let opened = run(open_volume(
        named(devices),
        Still::default(),
        pool(),
        request,
    ));
    let (volume, _) = opened.ok()?;
    let length = usize::try_from(volume.size_bytes()).unwrap();
    Some(run(volume.read(0, length)).unwrap().to_vec())
}

fn read_mirror(devices: &[Memory]) -> Option<Vec<u8>> {
    let request = MirrorRequest {
        run_degraded: false,
        ignores_names: false,
        volume: reading(),
        balance: None,
        name: None,
    };
    let opened = run(open_mirror(
        named(devices),
        Still::default(),
        pool(),
        request,
    ));
    let (volume, assembled) = opened.ok()?;
    if assembled.mirror.unwrap().components.len() != devices.len() {
        return None;
    }
    let length = usize::try_from(volume.size_bytes()).unwrap();
    Some(run(volume.read(0, length)).unwrap().to_vec())
}

fn read_system(devices: &[Memory]) -> Option<Vec<u8>> {
    let shared = named(devices)
        .into_iter()
        .map(|(name, device)| (name, BoxedDevice::new(Rc::new(device))));
    let request = SystemRequest {
        volume: reading(),
        ..SystemRequest::default()
    };
    let opened = run(open_system(
        shared.collect(),
        Still::default(),
        pool(),
        request,
    ))
    .ok()?;
    if opened.system.drives.iter().any(|drive| !drive.is_up()) {
        return None;
    }
    let volume = &opened.volumes.first()?.volume;
    let length = usize::try_from(volume.size_bytes()).unwrap();
    Some(run(volume.read(0, length)).unwrap().to_vec())
}

fn seen(devices: &[Memory]) -> Vec<Seen> {
    let each = devices.iter().enumerate();
    each.map(|(index, device)| run(look(device, &pool(), index, &format!("da{index}"))).unwrap())
        .collect()
}

/// Carries a plan out, cut after so many sectors; whether it came to its end.
fn convert(devices: &[Memory], plan: &InPlace, sectors: usize) -> bool {
    let left = Rc::new(Cell::new(sectors));
    let cut: Vec<Cut> = devices
        .iter()
        .map(|memory| Cut {
            memory: memory.clone(),
            left: Rc::clone(&left),
        })
        .collect();
    let all = async {
        carry_out(&plan.make, &cut, &pool()).await?;
        carry_out(&plan.erase, &cut, &pool()).await
    };
    run(all).is_ok()
}

/// Cuts after every sector: one form must be whole, and a second try must end it.
fn cut_everywhere(
    make: impl Fn() -> Vec<Memory>,
    plan: impl Fn(&[Seen]) -> Result<InPlace, String>,
    read_old: impl Fn(&[Memory]) -> Option<Vec<u8>>,
    read_new: impl Fn(&[Memory]) -> Option<Vec<u8>>,
) {
    cut_at_every(1, make, plan, read_old, read_new);
}

/// As `cut_everywhere`, after every so many sectors.
fn cut_at_every(
    step: usize,
    make: impl Fn() -> Vec<Memory>,
    plan: impl Fn(&[Seen]) -> Result<InPlace, String>,
    read_old: impl Fn(&[Memory]) -> Option<Vec<u8>>,
    read_new: impl Fn(&[Memory]) -> Option<Vec<u8>>,
) {
    let expected = read_old(&make()).unwrap();
    for sectors in (0..).step_by(step) {
        let devices = make();
        let is_done = convert(&devices, &plan(&seen(&devices)).unwrap(), sectors);
        let whole = read_old(&devices).or_else(|| read_new(&devices));
        assert!(whole.unwrap() == expected, "cut after {sectors} sectors");
        if is_done {
            assert!(sectors > devices.len() * 8, "the cuts went through");
            assert!(read_old(&devices).is_none() && read_new(&devices).unwrap() == expected);
            return;
        }
        let again = plan(&seen(&devices));
        let again = again.unwrap_or_else(|error| panic!("cut after {sectors} sectors: {error}"));
        assert!(convert(&devices, &again, usize::MAX));
        assert!(read_old(&devices).is_none(), "cut after {sectors} sectors");
        assert!(
            read_new(&devices).unwrap() == expected,
            "cut after {sectors} sectors"
        );
    }
}

fn md_10(seen: &[Seen]) -> Result<InPlace, String> {
    to_md(seen, MdVersion::V10, 77)
}

fn md_11(seen: &[Seen]) -> Result<InPlace, String> {
    to_md(seen, MdVersion::V11, 77)
}

#[test]
fn a_gmirror_becomes_md_and_back_whatever_write_is_cut() {
    let old = || mirror(MIRRORED);
    cut_everywhere(old, md_10, read_mirror, read_md);
    let md = || {
        let devices = old();
        assert!(convert(
            &devices,
            &md_10(&seen(&devices)).unwrap(),
            usize::MAX
        ));
        devices
    };
    cut_everywhere(md, to_mirror, read_md, read_mirror);
}

/// Volumes of gvinum with one subdisk on each drive, of each organisation that md has too.
fn flat_volumes() -> Vec<Box<dyn Fn() -> Vec<Memory>>> {
    let plexes = [
        ("plex org concat", ["", "", ""], 3),
        ("plex org striped 8k", ["", "", ""], 3),
        ("plex org raid5 8k", ["", "", ""], 3),
        ("", ["plex org concat", "plex org concat", ""], 2),
    ];
    let of = |(plex, each, count): (&str, [&str; 3], usize)| -> Box<dyn Fn() -> Vec<Memory>> {
        let names = ["a", "b", "c"];
        let mut text = String::new();
        for name in &names[..count] {
            text += &format!("drive {name} device /dev/{name}\n");
        }
        text += &format!("volume v\n{plex}\n");
        for (name, plex) in names.iter().zip(each).take(count) {
            text += &format!("{plex}\nsd length 512k drive {name}\n");
        }
        Box::new(move || {
            let devices = drives(&text, count);
            for device in devices.iter().filter(|_| count == 2) {
                device.bytes.borrow_mut()[135_680..][..4096].copy_from_slice(&content(4096));
            }
            if !text.contains("raid5") && count == 3 {
                devices[1].bytes.borrow_mut()[135_680..][..4096].copy_from_slice(&content(4096));
            }
            devices
        })
    };
    plexes.into_iter().map(of).collect()
}

#[test]
fn volumes_of_gvinum_become_md_whatever_write_is_cut() {
    for make in flat_volumes() {
        cut_everywhere(make, md_11, read_system, read_md);
    }
}

#[test]
fn md_arrays_become_volumes_of_gvinum_whatever_write_is_cut() {
    for volume in flat_volumes() {
        let make = || {
            let devices = volume();
            let plan = md_11(&seen(&devices)).unwrap();
            assert!(convert(&devices, &plan, usize::MAX));
            devices
        };
        cut_at_every(11, make, to_system, read_md, read_system);
    }
}

#[test]
fn what_does_not_fit_in_place_is_refused_with_the_reason() {
    let refusal = |devices: &[Memory], plan: &dyn Fn(&[Seen]) -> Result<InPlace, String>| {
        let before: Vec<u64> = devices.iter().map(|device| device.writes.get()).collect();
        let error = plan(&seen(devices)).unwrap_err();
        let after: Vec<u64> = devices.iter().map(|device| device.writes.get()).collect();
        assert_eq!(before, after);
        error
    };
    let full = mirror(SIZE as u64 - 512);
    let error = refusal(&full, &md_10);
    assert!(error.contains("7680 bytes smaller"), "{error}");
    let fits = mirror(MIRRORED);
    assert!(refusal(&fits, &md_11).contains("at the start"));
    assert!(refusal(&fits[..1], &md_10).contains("1 of 2 components"));
    assert_eq!(
        to_mirror(&seen(&fits)).unwrap().make,
        [],
        "nothing is left to do"
    );
    let raid5 = drives(
        "drive a device /dev/a\ndrive b device /dev/b\ndrive c device /dev/c\nvolume v\nplex org raid5 15s\n\
         sd length 512k drive a\nsd length 512k drive b\nsd length 512k drive c\n",
        3,
    );
    assert!(refusal(&raid5, &md_11).contains("md cannot say this"));
    assert!(refusal(&raid5[..2], &md_11).contains("is down"));
    assert!(refusal(&raid5, &md_10).contains("md-1.1 is in front"));
    raid5[0].bytes.borrow_mut()[10] = 1;
    let striped = drives(
        "drive a device /dev/a\ndrive b device /dev/b\nvolume v\nplex org striped 8k\nsd length 512k drive a\nsd length 512k drive b\n",
        2,
    );
    striped[1].bytes.borrow_mut()[10] = 1;
    assert!(refusal(&striped, &md_11).contains("first 4 KiB of da1"));
    let mixed = [fits[0].clone(), striped[0].clone()];
    assert!(refusal(&mixed, &md_10).starts_with("a member carries neither"));
    let blank = [fits[0].clone(), Memory::new(vec![0; SIZE])];
    assert!(refusal(&blank, &md_10).starts_with("da1 carries neither"));
    assert!(refusal(&[], &md_10).contains("no member"));
}

/// The members of `make`, with a superblock that `change` has changed.
fn changed(make: &dyn Fn() -> Vec<Memory>, change: impl Fn(&mut Superblock)) -> Vec<Memory> {
    let devices = make();
    let plan = md_11(&seen(&devices)).unwrap();
    assert!(convert(&devices, &plan, usize::MAX));
    for (device, seen) in devices.iter().zip(seen(&devices)) {
        let mut superblock = seen.md.unwrap();
        change(&mut superblock);
        let bytes = superblock.encode();
        device.bytes.borrow_mut()[..bytes.len()].copy_from_slice(&bytes);
    }
    devices
}

#[test]
fn what_gvinum_cannot_say_of_a_linux_array_is_refused_with_the_reason() {
    let volumes = flat_volumes();
    let (striped, raid5) = (&volumes[1], &volumes[2]);
    let refusal = |devices: &[Memory]| to_system(&seen(devices)).unwrap_err();
    let turned = changed(raid5, |superblock| superblock.layout = 2);
    assert!(refusal(&turned).contains("left-asymmetric only"));
    let early = changed(striped, |superblock| superblock.data_offset_sectors = 256);
    assert!(refusal(&early).contains("begin at byte 131072"));
    let dirty = changed(raid5, |superblock| {
        superblock.resync_offset_sectors = Some(0)
    });
    assert!(refusal(&dirty).contains("not stopped cleanly"));
    let mapped = changed(raid5, |superblock| {
        superblock.bitmap_offset_sectors = Some(8)
    });
    assert!(refusal(&mapped).contains("bitmap=none"));
    let raid4 = changed(raid5, |superblock| {
        (superblock.level, superblock.layout) = (4, 0)
    });
    assert!(refusal(&raid4).contains("no raid4"));
    let whole = changed(striped, |_| {});
    assert!(refusal(&whole[..2]).contains("2 of 3 members"));
    assert!(refusal(&mirror(MIRRORED)).contains("no md superblock"));
}

/// The new drives were served before the superblocks were erased.
#[test]
fn drives_that_were_used_are_not_written_over() {
    let devices = changed(&flat_volumes()[2], |_| {});
    let plan = to_system(&seen(&devices)).unwrap();
    run(carry_out(&plan.make, &devices, &pool())).unwrap();
    assert_eq!(to_system(&seen(&devices)).unwrap().make, plan.make);
    let system = crate::common::vinum::system(&devices);
    crate::common::vinum::save(&system, &devices);
    let error = to_system(&seen(&devices)).unwrap_err();
    assert!(error.contains("used since"), "{error}");
}

/// The new array was served before the old labels were erased: what they say is out of date.
#[test]
fn new_metadata_that_were_used_are_not_written_over() {
    let devices = mirror(MIRRORED);
    let plan = md_10(&seen(&devices)).unwrap();
    run(carry_out(&plan.make, &devices, &pool())).unwrap();
    let request = OpenRequest::default();
    let opened = run(open_volume(
        named(&devices),
        Still::default(),
        pool(),
        request,
    ));
    let (volume, _) = opened.unwrap();
    let data = pool().copy_of(&[9; 512]).freeze();
    run(volume.write(0, data, Fua::No)).unwrap();
    run(volume.stop()).unwrap();
    let error = md_10(&seen(&devices)).unwrap_err();
    assert!(error.contains("was used as md"), "{error}");
}

/// Words of the refusal, and what is wrong with a superblock.
type Change = (&'static str, fn(&mut Superblock));

/// What the new superblocks are after the first half of the way to md.
fn half_way() -> Vec<Memory> {
    let devices = mirror(MIRRORED);
    let plan = md_10(&seen(&devices)).unwrap();
    run(carry_out(&plan.make, &devices, &pool())).unwrap();
    devices
}

#[test]
fn a_superblock_that_is_there_already_has_to_be_the_very_one() {
    let whole = seen(&half_way());
    assert!(md_10(&whole).is_ok(), "they are these");
    let changes: [Change; 4] = [
        ("of another array besides", |md| md.array_uuid[15] ^= 1),
        ("was used as md", |md| {
            md.events = EventCount(md.events.0 + 1)
        }),
        ("was used as md", |md| md.utime.seconds += 1),
        ("was used as md", |md| md.roles[1] = Role::Spare),
    ];
    for (text, change) in changes {
        let mut other = whole.clone();
        change(other[1].md.as_mut().unwrap());
        let error = md_10(&other).unwrap_err();
        assert!(error.starts_with("da1") && error.contains(text), "{error}");
    }
}

#[test]
fn a_member_of_md_is_whole_clean_and_plain_before_it_is_a_component() {
    let devices = half_way();
    let plan = md_10(&seen(&devices)).unwrap();
    run(carry_out(&plan.erase, &devices, &pool())).unwrap();
    let whole = seen(&devices);
    assert!(to_mirror(&whole).is_ok());
    let changes: [Change; 10] = [
        ("belongs to another array", |md| md.array_uuid[15] ^= 1),
        ("of level 5", |md| md.level = 5),
        ("begin at byte 4096;", |md| md.data_offset_sectors = 8),
        ("not in sync", |md| md.events = EventCount(md.events.0 + 1)),
        ("not in sync", |md| md.rebuild_offset_sectors = Some(0)),
        ("not stopped cleanly", |md| {
            md.resync_offset_sectors = Some(0)
        }),
        ("reshaped or replaced", |md| md.is_replacement = true),
        ("reshaped or replaced", |md| md.has_bad_blocks = true),
        ("its bitmap may reach", |md| {
            md.bitmap_offset_sectors = Some(8)
        }),
        ("its list of bad blocks may reach", |md| {
            md.bad_block_log = Some(BadBlockArea {
                offset_sectors: 8,
                size_sectors: 8,
                shift: 0,
            });
        }),
    ];
    for (text, change) in changes {
        let mut other = whole.clone();
        change(other[1].md.as_mut().unwrap());
        let error = to_mirror(&other).unwrap_err();
        assert!(
            error.starts_with("da1: ") && error.contains(text),
            "{text}: {error}"
        );
    }
    // In front of the superblock both are in nobody's way.
    let mut other = whole.clone();
    let md = other[1].md.as_mut().unwrap();
    md.bitmap_offset_sectors = Some(-8);
    md.bad_block_log = Some(BadBlockArea {
        offset_sectors: -16,
        size_sectors: 8,
        shift: 0,
    });
    assert!(to_mirror(&other).is_ok());
    // Up to the superblock itself.
    let mut other = whole.clone();
    other[1].md.as_mut().unwrap().bitmap_offset_sectors = Some(0);
    assert!(to_mirror(&other).is_ok());
    let area = BadBlockArea {
        offset_sectors: 0,
        size_sectors: 8,
        shift: 0,
    };
    let mut other = whole.clone();
    other[1].md.as_mut().unwrap().bad_block_log = Some(area);
    assert!(to_mirror(&other).is_ok());
}

/// The data end where the superblock of md-1.0 begins.
#[test]
fn a_gmirror_that_leaves_just_the_room_of_a_superblock_becomes_md() {
    let devices = mirror(SIZE as u64 - 8192);
    let expected = read_mirror(&devices).unwrap();
    let plan = md_10(&seen(&devices)).unwrap();
    assert!(convert(&devices, &plan, usize::MAX));
    assert!(read_md(&devices).unwrap() == expected);
}

#[test]
fn a_gmirror_that_was_not_stopped_becomes_nothing_else() {
    let mut left = seen(&mirror(MIRRORED));
    for member in &mut left {
        member.mirror.as_mut().unwrap().0.is_dirty = true;
    }
    let error = md_10(&left).unwrap_err();
    assert!(error.starts_with("da0 is not in sync"), "{error}");
}

/// Plans name members by their place in what was given.
#[test]
fn drives_become_md_in_whatever_order_they_are_given() {
    for make in flat_volumes() {
        let mut devices = make();
        let expected = read_system(&devices).unwrap();
        let mut turned = seen(&devices);
        turned.reverse();
        let plan = md_11(&turned).unwrap();
        devices.reverse();
        assert!(convert(&devices, &plan, usize::MAX));
        assert!(read_md(&devices).unwrap() == expected);
        let slots = seen(&devices).into_iter();
        let slots = slots.map(|one| usize::from(one.md.unwrap().role().slot().unwrap().0));
        assert!(slots.rev().eq(0..devices.len()));
    }
}

/// gvinum never made the parity of a new plex: it is made when nobody says that it is right.
#[test]
fn parity_that_nobody_vouches_for_is_made_by_the_new_array() {
    let resync = |make: &dyn Fn() -> Vec<Memory>, mark: Mark| {
        let mut drives = seen(&make());
        for member in &mut drives {
            member.drive.as_mut().unwrap().header.mark = mark;
        }
        let plan = md_11(&drives).unwrap();
        let sectors = SIZE as u64 / 512;
        let superblock = Superblock::parse(&plan.make[0].1.bytes, 0, sectors, MdVersion::V11);
        superblock.unwrap().resync_offset_sectors
    };
    let volumes = flat_volumes();
    let (striped, raid5) = (&volumes[1], &volumes[2]);
    assert_eq!(resync(raid5, Mark::Unknown), Some(0));
    assert_eq!(resync(raid5, Mark::Settled), None);
    assert_eq!(resync(striped, Mark::Unknown), None);
}

#[test]
fn what_is_md_already_is_left_as_it_is() {
    let strange = changed(&flat_volumes()[2], |md| md.array_uuid = [9; 16]);
    let plan = md_11(&seen(&strange)).unwrap();
    assert!(plan.make.is_empty() && plan.erase.is_empty(), "{plan:?}");
}

/// Old labels are erased only where the new metadata were made of them, on every member.
#[test]
fn labels_of_others_are_not_erased() {
    // To md: one label is erased, and the superblocks are those of another array, or of two.
    let changes: [fn(&mut [Seen]); 2] = [
        |members| {
            for member in members {
                member.md.as_mut().unwrap().array_uuid = [9; 16];
            }
        },
        |members| members[1].md.as_mut().unwrap().array_uuid[15] ^= 1,
    ];
    let mut cut = seen(&half_way());
    cut[0].mirror = None;
    assert!(md_10(&cut).unwrap().make.is_empty(), "only the rest");
    for change in changes {
        let mut other = cut.clone();
        change(&mut other);
        let error = md_10(&other).unwrap_err();
        assert!(error.contains("carries neither"), "{error}");
    }
    // To gmirror: one superblock is erased, and the labels are of another mirror, or of two.
    let devices = half_way();
    run(carry_out(
        &md_10(&seen(&devices)).unwrap().erase,
        &devices,
        &pool(),
    ))
    .unwrap();
    run(carry_out(
        &to_mirror(&seen(&devices)).unwrap().make,
        &devices,
        &pool(),
    ))
    .unwrap();
    assert_eq!(to_mirror(&seen(&devices)).unwrap().name, "g");
    let mut cut = seen(&devices);
    cut[0].md = None;
    assert!(to_mirror(&cut).unwrap().make.is_empty(), "only the rest");
    let mut other = cut.clone();
    other[1].md.as_mut().unwrap().array_uuid = [9; 16];
    assert!(to_mirror(&other).unwrap_err().contains("no md superblock"));
    let mut other = cut.clone();
    other[0].mirror.as_mut().unwrap().0.mirror_id ^= 1;
    assert!(to_mirror(&other).unwrap_err().contains("no md superblock"));
    let mut other = cut;
    other[1].mirror.as_mut().unwrap().0.mirror_id ^= 1;
    assert!(to_mirror(&other).unwrap_err().contains("no md superblock"));
}

#[test]
fn a_member_of_md_is_whole_clean_and_plain_before_it_is_a_drive() {
    let whole = seen(&changed(&flat_volumes()[2], |_| {}));
    assert!(to_system(&whole).is_ok());
    let changes: [Change; 6] = [
        ("not in sync", |md| md.events = EventCount(md.events.0 + 1)),
        ("not in sync", |md| md.rebuild_offset_sectors = Some(0)),
        ("not stopped cleanly", |md| md.has_answers_in_log = true),
        ("reshaped or replaced", |md| md.is_replacement = true),
        ("reshaped or replaced", |md| md.has_bad_blocks = true),
        ("belongs to another array", |md| md.array_uuid[15] ^= 1),
    ];
    for (text, change) in changes {
        let mut other = whole.clone();
        change(other[1].md.as_mut().unwrap());
        let error = to_system(&other).unwrap_err();
        assert!(
            error.starts_with("da1: ") && error.contains(text),
            "{error}"
        );
    }
}

/// Superblocks are erased only where the drives were made of them.
#[test]
fn superblocks_of_others_are_not_erased() {
    let devices = changed(&flat_volumes()[2], |_| {});
    let plan = to_system(&seen(&devices)).unwrap();
    run(carry_out(&plan.make, &devices, &pool())).unwrap();
    let mut cut = seen(&devices);
    cut[0].md = None;
    assert!(to_system(&cut).unwrap().make.is_empty(), "only the rest");
    let changes: [fn(&mut [Seen]); 3] = [
        |members| members[1].md.as_mut().unwrap().ctime.seconds += 1,
        |members| members[1].md.as_mut().unwrap().name = "other".into(),
        |members| members[0].drive.as_mut().unwrap().header.host = "other".into(),
    ];
    for change in changes {
        let mut other = cut.clone();
        change(&mut other);
        assert!(to_system(&other).is_err());
    }
}

/// FreeBSD goes by these places.
#[test]
fn subdisks_of_a_new_plex_begin_one_strip_after_the_other() {
    for volume in &flat_volumes()[1..3] {
        let devices = changed(volume, |_| {});
        let plan = to_system(&seen(&devices)).unwrap();
        assert!(convert(&devices, &plan, usize::MAX));
        let subdisks = crate::common::vinum::system(&devices).config.subdisks;
        let places = subdisks.iter().filter_map(|one| one.plex.as_ref());
        let mut places: Vec<u64> = places.map(|(_, at)| *at).collect();
        places.sort_unstable();
        assert_eq!(places, [0, 8192, 16_384]);
    }
}
