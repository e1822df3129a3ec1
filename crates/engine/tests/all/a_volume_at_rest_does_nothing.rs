//! In virtual time: whoever leaves a volume alone is not woken by it, and finds it awake when he comes back.

use std::time::Duration;

use crate::common::small_array::{Keeps, new_array};
use crate::common::{Memory, Still, run, yield_once};
use plexum_block::buf::BufPool;
use plexum_block::clock::Clock;
use plexum_block::device::Fua;
use plexum_block::wait::join;
use plexum_engine::volume::Volume;
use plexum_format::md::MdVersion;
use plexum_md::open::{OpenRequest, open_volume};

/// Long enough for many periods of everything.
const REST: Duration = Duration::from_secs(600);

async fn write(volume: &Volume<Memory, Still>, at: u64) {
    let data = BufPool::new(0).copy_of(&[1; 4096]).freeze();
    volume.write(at, data, Fua::No).await.unwrap();
}

#[test]
fn a_volume_at_rest_wakes_up_for_what_is_due_alone() {
    let (_, devices) = new_array(MdVersion::V12, Keeps::Log);
    let clock = Still::default();
    let request = OpenRequest::default();
    let pool = BufPool::new(1 << 20);
    let opened = run(open_volume(devices.clone(), clock.clone(), pool, request));
    let (volume, _) = opened.unwrap();
    let work = async {
        write(&volume, 0).await;
        let is_busy = || volume.status().is_dirty || volume.status().marked_regions > 0;
        while is_busy() {
            yield_once().await;
        }
        let (before, writes) = (clock.sleeps(), devices[0].1.writes.get());
        clock.sleep(REST).await;
        let sleeps = clock.sleeps() - before;
        // The members are looked at every two seconds, and once a minute their answers are sorted.
        assert!(sleeps < REST.as_secs() / 2 + 50, "{sleeps}");
        assert_eq!(devices[0].1.writes.get(), writes, "nothing is written");
        // It is marked dirty again, and clean soon after.
        write(&volume, 65_536).await;
        assert!(volume.status().is_dirty);
        let begun = clock.now();
        while is_busy() {
            yield_once().await;
        }
        let took = clock.now().since(begun);
        assert!(took < Duration::from_secs(12), "{took:?}");
        volume.stop().await.unwrap();
    };
    run(join(volume.run_background(), work));
}
