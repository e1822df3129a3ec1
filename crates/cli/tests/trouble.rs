//! Members that vanish and file systems that fill up while clients are served.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Place, Run};

fn uri(place: &Place) -> String {
    format!(
        "nbd+unix:///nas?socket={}/plexum/nas.nbd",
        place.folder.display()
    )
}

fn qemu_io(place: &Place, command: &str) -> Run {
    let output = place
        .command("qemu-io")
        .args(["-f", "raw", "-c", command, &uri(place)])
        .output()
        .expect("qemu-io must be installed");
    Run {
        exit: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

fn verdict(place: &Place) -> String {
    let status = place.plexum("status nas --json").objects().remove(0);
    status["verdict"].as_str().unwrap().to_owned()
}

/// Writes until the volume's verdict is `wanted`: the writes are what finds a lost member, and give it time.
fn wait_for(place: &Place, wanted: &str) {
    for _ in 0..2000 {
        let _ = qemu_io(place, "write -P 1 0 64k");
        if verdict(place) == wanted {
            return;
        }
    }
    panic!("the volume is {}, not {wanted}", verdict(place));
}

#[test]
fn one_lost_file_degrades_and_two_freeze_without_touching_the_survivor() {
    let place = Place::new("trouble-lost");
    let run = place.plexum("create nas --level 5 --strip 64K --member-size 24M a b c");
    assert_eq!(run.exit, 0, "{}", run.err);
    let run = place.plexum("serve a b c --background");
    assert_eq!(run.exit, 0, "{}", run.err);
    std::fs::remove_file(place.file("a")).unwrap();
    wait_for(&place, "degraded");
    let read = qemu_io(&place, "read -P 1 0 64k");
    assert!(
        read.exit == 0 && !read.out.contains("failed"),
        "{}{}",
        read.out,
        read.err
    );
    std::fs::remove_file(place.file("b")).unwrap();
    wait_for(&place, "failed");
    let write = qemu_io(&place, "write -P 2 0 64k");
    assert!(
        write.exit != 0 || write.out.contains("failed"),
        "{}",
        write.out
    );
    let status = place.plexum("status");
    assert_eq!(status.exit, 1);
    assert!(
        status.out.contains("FAILED") && status.out.contains("nothing is written"),
        "{}",
        status.out
    );
    let events = place.plexum("events").out;
    assert!(
        events.contains("member_failed") && events.contains("frozen"),
        "{events}"
    );
    // The last superblock still counts b as a member: with it back, this is an ordinary dirty start (W4).
    let examined = place.plexum("examine c --json").objects().remove(0);
    let roles = examined["superblock"]["roles"].as_array().unwrap().clone();
    assert!(
        roles.contains(&"1".into()) && roles.contains(&"2".into()),
        "{roles:?}"
    );
    let stopped = place.plexum("stop nas");
    assert_eq!(stopped.exit, 5, "{}{}", stopped.out, stopped.err);
    assert!(
        stopped.err.contains("could not be stopped cleanly"),
        "{}",
        stopped.err
    );
}

#[test]
fn a_full_file_system_is_an_error_for_the_client_and_no_lost_member() {
    let place = Place::new("trouble-full");
    std::fs::create_dir(place.file("small")).unwrap();
    let mounted = place.tool("mount", "-t tmpfs -o size=8m none small");
    assert_eq!(
        mounted.exit, 0,
        "this test mounts a tmpfs, as root: {}",
        mounted.err
    );
    let run = place.plexum("create nas --level 1 --member-size 24M small/a small/b");
    assert_eq!(run.exit, 0, "{}", run.err);
    let run = place.plexum("serve small/a small/b --background");
    assert_eq!(run.exit, 0, "{}", run.err);
    let fits = qemu_io(&place, "write -P 1 0 1M");
    assert!(
        fits.exit == 0 && !fits.out.contains("failed"),
        "{}{}",
        fits.out,
        fits.err
    );
    let full = qemu_io(&place, "write -P 2 1M 16M");
    let text = format!("{}{}", full.out, full.err);
    let (before, states) = (verdict(&place), place.plexum("status").out);
    let kept = qemu_io(&place, "read -P 1 0 1M");
    let stopped = place.plexum("stop nas");
    let unmounted = place.tool("umount", "small");
    assert!(text.contains("No space left"), "{text}");
    assert_eq!(before, "ok", "{states}");
    assert!(
        kept.exit == 0 && !kept.out.contains("failed"),
        "{}{}",
        kept.out,
        kept.err
    );
    assert_eq!(stopped.exit, 0, "{}", stopped.err);
    assert_eq!(unmounted.exit, 0, "{}", unmounted.err);
}
