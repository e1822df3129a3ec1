//! Systems of Vinum drives in memory, made from a text.

use std::rc::Rc;

use plexum_block::boxed::BoxedDevice;
use plexum_block::buf::BufPool;
use plexum_block::device::Device;
use plexum_block::wait::{join, join_all};
use plexum_format::vinum::{
    CONFIG_OFFSETS_BYTES, Config, DriveHeader, HEADER_OFFSET_BYTES, Mark, Script, Subdisk,
};
use plexum_freebsd::gvinum::{
    OpenedSystem, OpenedVolume, Room, Store, System, SystemRequest, assemble, build, open_system,
    read_drive,
};
use plexum_freebsd::labels::ForeignError;

use super::{Memory, Still, run};

pub fn pool() -> BufPool {
    BufPool::new(1 << 22)
}

/// Drives as `create -f` makes them of new files.
pub fn drives(text: &str, size: usize) -> Vec<Memory> {
    let script = Script::parse(text.as_bytes()).unwrap();
    let room = |name: &str| Room {
        name: name.to_owned(),
        size_bytes: size as u64,
    };
    let rooms: Vec<Room> = script
        .drives
        .iter()
        .map(|drive| room(&drive.name))
        .collect();
    let config = build(&script, &rooms, &Config::default()).unwrap();
    rooms
        .iter()
        .map(|room| drive(&room.name, &config, size))
        .collect()
}

/// A drive with a configuration.
pub fn drive(name: &str, config: &Config, size: usize) -> Memory {
    let mut header = DriveHeader::create("host", name, (1000, 0)).unwrap();
    header.mark = Mark::Settled;
    let text = config.encode().unwrap();
    let mut bytes = vec![0; size];
    for at in CONFIG_OFFSETS_BYTES {
        let at = usize::try_from(at).unwrap();
        bytes[at..at + text.len()].copy_from_slice(&text);
    }
    let at = usize::try_from(HEADER_OFFSET_BYTES).unwrap();
    bytes[at..at + 512].copy_from_slice(&header.encode());
    Memory::new(bytes)
}

pub fn named<D: Device>(drives: Vec<D>) -> Vec<(String, BoxedDevice)> {
    let each = drives.into_iter().enumerate();
    each.map(|(index, drive)| (format!("da{index}"), BoxedDevice::new(Rc::new(drive))))
        .collect()
}

pub fn system(drives: &[Memory]) -> System {
    let each = drives.iter().enumerate();
    let found: Vec<_> = each
        .map(|(index, drive)| {
            run(read_drive(drive, &pool(), index, &format!("da{index}"))).unwrap()
        })
        .collect();
    assemble(&found).unwrap()
}

/// Writes a changed configuration to all drives.
pub fn save(system: &System, drives: &[Memory]) {
    let mut store = Store::new(system);
    store.next_save(0);
    for known in &system.drives {
        let Some(key) = known.key else { continue };
        for write in store.writes(&known.name) {
            let at = usize::try_from(write.at_bytes).unwrap();
            drives[key].bytes.borrow_mut()[at..at + write.bytes.len()]
                .copy_from_slice(&write.bytes);
        }
    }
}

pub fn open<D: Device>(
    drives: Vec<D>,
    request: SystemRequest,
) -> Result<OpenedSystem<BoxedDevice, Still>, ForeignError> {
    run(open_system(
        named(drives),
        Still::default(),
        pool(),
        request,
    ))
}

/// The only volume.
pub fn only(
    opened: Result<OpenedSystem<BoxedDevice, Still>, ForeignError>,
) -> OpenedVolume<BoxedDevice, Still> {
    let mut opened = opened.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(opened.volumes.len(), 1, "{:?}", opened.refused);
    opened.volumes.remove(0)
}

/// Runs `work` beside everything that runs in the background, then stops.
pub async fn serve<D: Device>(opened: &OpenedVolume<D, Still>, work: impl Future<Output = ()>) {
    let plexes = opened.plexes.iter();
    let plexes = plexes.map(|plex| plex.volume.run_background());
    let growing = async {
        if let Some(growing) = &opened.growing {
            growing.run().await;
        }
    };
    let background = join(opened.volume.run_background(), join_all(plexes));
    join(join(background, growing), async {
        work.await;
        opened.volume.stop().await.unwrap();
        for plex in &opened.plexes {
            assert!(plex.volume.stop().await.is_ok() || plex.volume.is_frozen());
        }
        if let Some(growing) = &opened.growing {
            growing.stop().await.unwrap();
        }
    })
    .await;
}

pub fn subdisk(drive: &Memory, name: &str) -> Subdisk {
    let config = system(std::slice::from_ref(drive)).recorded;
    let mut subdisks = config.subdisks.into_iter();
    subdisks.find(|subdisk| subdisk.name == name).unwrap()
}
