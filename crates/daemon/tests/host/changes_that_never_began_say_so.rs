//! What a server finds of a change that an earlier one was about to begin, or had all but ended.

use std::os::unix::fs::FileExt;

use plexum_daemon::assembly::AssembleRequest;
use plexum_format::md::{MdVersion, Superblock};
use plexum_layout::Organisation;
use plexum_md::reshape::{GOAL_BYTES, Goal, Shape, Stand, goal_place};

use crate::ground::Ground;

/// The superblock of a member file.
fn superblock(path: &str) -> Superblock {
    let bytes = std::fs::read(path).unwrap();
    let sectors = bytes.len() as u64 / 512;
    Superblock::parse(&bytes[4096..8192], 8, sectors, MdVersion::V12).unwrap()
}

/// The page where a member file keeps a goal.
fn page(path: &str) -> Vec<u8> {
    let at = goal_place(&superblock(path), 8).unwrap() as usize;
    std::fs::read(path).unwrap()[at..at + GOAL_BYTES].to_vec()
}

/// Every member says that the mirror is to get so many members, from what it is.
fn leave_goal(request: &AssembleRequest, from: u16, to: u16) {
    for path in &request.members {
        let own = superblock(path);
        let stand = |member_count| Stand {
            shape: Shape {
                organisation: Organisation::Raid1,
                member_count,
                strip_sectors: own.strip_sectors,
            },
            component_sectors: own.component_sectors,
        };
        let goal = Goal {
            from: stand(from),
            to: stand(to),
            first: None,
            last: None,
            has_log: false,
            bitmap_region_bytes: 0,
        };
        let file = std::fs::File::options().write(true).open(path).unwrap();
        let at = goal_place(&own, 8).unwrap();
        file.write_all_at(&goal.encode(&own.array_uuid), at)
            .unwrap();
    }
}

/// The first event of a reshape.
async fn told(ground: &Ground) -> (String, String) {
    let mut events = ground.events.listen(0);
    loop {
        let event = events.next().await.unwrap();
        if event.name.starts_with("reshape_") {
            return (event.name.clone(), event.message.clone());
        }
    }
}

#[test]
fn a_server_that_died_before_the_first_superblock_was_written_has_finished_nothing() {
    Ground::run(1, async |ground| {
        let request = ground.mirror("v").await;
        leave_goal(&request, 2, 3);
        ground.open(&request).await.unwrap();
        let (name, message) = told(&ground).await;
        assert_eq!(name, "reshape_stopped", "{message}");
        assert!(message.contains("before anything had changed"), "{message}");
        ground
            .host
            .close("v", plexum_daemon::host::Close::Force)
            .await
            .unwrap();
        for path in &request.members {
            assert!(
                page(path).iter().all(|byte| *byte == 0),
                "it is asked for anew"
            );
        }
    });
}

#[test]
fn a_server_that_died_at_the_end_of_a_change_has_finished_it() {
    Ground::run(1, async |ground| {
        let request = ground.mirror("v").await;
        leave_goal(&request, 3, 2);
        ground.open(&request).await.unwrap();
        let (name, message) = told(&ground).await;
        assert_eq!(name, "reshape_finished", "{message}");
    });
}

#[test]
fn what_another_array_has_left_in_that_page_counts_for_nothing() {
    Ground::run(1, async |ground| {
        let other = ground.mirror("other").await;
        leave_goal(&other, 2, 3);
        let left = page(&other.members[0]);
        let request = ground.mirror("v").await;
        for path in &request.members {
            let at = goal_place(&superblock(path), 8).unwrap();
            let file = std::fs::File::options().write(true).open(path).unwrap();
            file.write_all_at(&left, at).unwrap();
        }
        ground.open(&request).await.unwrap();
        ground
            .host
            .close("v", plexum_daemon::host::Close::Force)
            .await
            .unwrap();
        let names = ground.told();
        assert!(names.iter().all(|(_, name)| !name.starts_with("reshape_")));
        assert_eq!(page(&request.members[0]), left, "nothing is written there");
    });
}
