//! A configuration that is wrong, a state folder that is full or read-only, no mail program, no udev, no root: each is
//! one line and, where somebody has to mend it, one incident until it is mended; volumes are served all the same.
//!
//! Configuration and folders that are none have tests in `alarms.rs` as well.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::net::TcpListener;
use std::path::PathBuf;

use super::alarms::{AT_ONCE, channel, configure, home, messages, of_code, wait_for_messages};
use super::common::Place;
use super::common::served::{done, wait_until};
use super::daemon::{Daemon, served};

/// A file system of its own in the place of the state folder, for as long as this lives.
struct Mounted(PathBuf);

impl Mounted {
    /// In memory, with room for so many KiB.
    fn small(place: &Place, size_kib: u32) -> Self {
        let folder = place.file("state");
        std::fs::create_dir_all(&folder).unwrap();
        let options = format!("-t tmpfs -o size={size_kib}k,mode=0700 none");
        let mount = place.tool("mount", &format!("{options} {}", folder.display()));
        assert_eq!(mount.exit, 0, "root mounts: {}", mount.err);
        Self(folder)
    }

    fn remount(&self, place: &Place, how: &str) {
        let words = format!("-o remount,{how} {}", self.0.display());
        let mount = place.tool("mount", &words);
        assert_eq!(mount.exit, 0, "{}", mount.err);
    }

    /// A file that takes all room that is left.
    fn fill(&self) -> PathBuf {
        let path = self.0.join("filler");
        let mut file = std::fs::File::create(&path).unwrap();
        while file.write_all(&[0; 512]).is_ok() {}
        path
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily: a daemon that a failed test leaves behind may still hold it.
        let _ = std::process::Command::new("umount")
            .arg("-l")
            .arg(&self.0)
            .status();
    }
}

/// Every file that is kept, but for what the tests put there, by its path.
fn kept(place: &Place) -> BTreeMap<String, Vec<u8>> {
    let found = place.tool("find", "state/plexum -type f");
    let read = |path: &str| (path.to_owned(), std::fs::read(place.file(path)).unwrap());
    found.out.lines().map(read).collect()
}

/// What a daemon has said on standard error when it ends now, but for messages to the journal.
fn notes_until_killed(mut daemon: Daemon) -> Vec<String> {
    let notes = daemon.notes();
    daemon.kill();
    let lines = notes.lines().map(Result::unwrap);
    lines.filter(|line| line.starts_with("note: ")).collect()
}

/// The state of the newest incident of this code.
fn state_of(place: &Place, code: &str) -> Option<String> {
    let mut found = of_code(place, code).into_iter();
    found.next().map(|(_, state)| state)
}

#[test]
fn a_wrong_line_in_conf_d_is_told_once_with_file_and_line_and_what_is_right_beside_it_counts() {
    let place = home("poor-conf-d", "");
    let folder = place.file("config/plexum/conf.d");
    std::fs::create_dir_all(&folder).unwrap();
    let (wrong, right) = (folder.join("10-wrong.toml"), folder.join("20-right.toml"));
    std::fs::write(&wrong, "[scrub]\nevery = \"30d\"\nwithin = [\n").unwrap();
    std::fs::write(&right, "[roles]\nothers = \"view\"\n").unwrap();
    let daemon = Daemon::start(&place, "");
    done(&place, "serve a b");
    let told = wait_for_messages(&place, 1);
    let line = format!("{}: line 3: ", wrong.display());
    let subject = &told[0].subject;
    assert!(
        subject.contains("CONFIGURATION IS NOT READ") && subject.contains(&line),
        "{subject}"
    );
    let socket = std::fs::metadata(place.file("plexum/daemon.socket")).unwrap();
    let mode = std::os::unix::fs::MetadataExt::mode(&socket);
    assert_eq!(mode & 0o777, 0o666, "others have a role");
    let notes = notes_until_killed(daemon);
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains(&line), "{notes:?}");
    std::fs::write(&wrong, "[scrub]\nevery = \"30d\"\n").unwrap();
    let _daemon = Daemon::start(&place, "");
    assert_eq!(served(&place), ["nas"]);
    assert_eq!(wait_for_messages(&place, 2)[1].kind, "closed");
}

#[test]
fn a_page_whose_address_somebody_else_has_is_an_incident_and_volumes_are_served() {
    let place = home("poor-page", "");
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap();
    let own = channel(&place, "own");
    configure(
        &place,
        &format!("{AT_ONCE}{own}[page]\nlisten = \"{address}\"\n"),
    );
    let daemon = Daemon::start(&place, "");
    done(&place, "serve a b");
    let told = wait_for_messages(&place, 1);
    assert!(told[0].subject.contains(&address.to_string()), "{told:?}");
    let notes = notes_until_killed(daemon);
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("address already in use"), "{notes:?}");
    drop(other);
    let _daemon = Daemon::start(&place, "");
    assert_eq!(served(&place), ["nas"]);
    assert_eq!(wait_for_messages(&place, 2)[1].kind, "closed");
}

#[test]
fn where_the_state_folder_is_full_volumes_are_served_and_what_was_kept_before_stays_whole() {
    let place = home("poor-full", "");
    let _ = std::fs::remove_dir_all(place.file("state"));
    let state = Mounted::small(&place, 512);
    let daemon = Daemon::start(&place, "--wait 0");
    done(&place, "serve a b");
    done(&place, "set nas rebuild-max=7M");
    done(&place, "fail nas b");
    wait_for_messages(&place, 1);
    let (id, _) = of_code(&place, "redundancy").remove(0);
    done(&place, &format!("ack {id} --why ordered"));
    daemon.end(&place);
    let before = kept(&place);
    let filler = state.fill();
    let daemon = Daemon::start(&place, "--wait 0");
    assert_eq!(served(&place), ["nas"], "it is served all the same");
    wait_until(&place, "it is told that nothing can be kept", || {
        let _ = place.plexum("set nas rebuild-max=9M"); // something to keep
        state_of(&place, "journal_not_writable").as_deref() == Some("open")
    });
    let told = messages(&place);
    let about = |told: &&super::alarms::Told| told.subject.contains("INCIDENTS CANNOT BE KEPT");
    let about: Vec<_> = told.iter().filter(about).collect();
    assert_eq!(about.len(), 1, "{told:?}");
    assert!(
        about[0].subject.contains("no space left") && about[0].subject.contains("incidents.json"),
        "{about:?}"
    );
    let refused = place.plexum("stop nas");
    assert_eq!(refused.exit, 5, "{}{}", refused.out, refused.err);
    assert!(
        refused.err.contains("nothing was changed"),
        "{}",
        refused.err
    );
    assert_eq!(served(&place), ["nas"]);
    daemon.kill();
    // A history may have got the beginning of a line; nothing of before is lost, and nothing half is left.
    let full = kept(&place);
    for (path, bytes) in &before {
        let now = full.get(path).unwrap_or_else(|| panic!("{path} is gone"));
        match path.ends_with(".jsonl") {
            true => assert!(now.starts_with(bytes), "{path}"),
            false => assert_eq!(now, bytes, "{path}"),
        }
    }
    let new: Vec<_> = full
        .keys()
        .filter(|path| !before.contains_key(*path))
        .collect();
    assert_eq!(new, [""; 0], "what could not be kept takes no room");
    std::fs::remove_file(filler).unwrap();
    let _daemon = Daemon::start(&place, "--wait 0");
    assert_eq!(served(&place), ["nas"]);
    let known = (id, "acknowledged".to_owned());
    assert!(of_code(&place, "redundancy").contains(&known));
    let events = done(&place, "events nas").out;
    assert!(events.contains("asked: set rebuild-max=7"), "{events}");
    done(&place, "stop nas");
    assert_eq!(served(&place), [""; 0]);
}

#[test]
fn where_the_state_folder_is_read_only_volumes_are_served_and_it_goes_on_when_it_is_not() {
    let place = home("poor-read-only", "");
    let _ = std::fs::remove_dir_all(place.file("state"));
    let state = Mounted::small(&place, 512);
    let daemon = Daemon::start(&place, "");
    done(&place, "serve a b");
    daemon.end(&place);
    let before = kept(&place);
    state.remount(&place, "ro");
    let daemon = Daemon::start(&place, "--wait 0");
    assert_eq!(served(&place), ["nas"]);
    let told = wait_for_messages(&place, 1);
    let subject = &told[0].subject;
    assert!(
        subject.contains("INCIDENTS CANNOT BE KEPT") && subject.contains("read-only file system"),
        "{subject}"
    );
    done(&place, "fail nas b");
    let told = wait_for_messages(&place, 2);
    assert!(told[1].subject.contains("slot 1 is missing"), "{told:?}");
    assert_eq!(kept(&place), before);
    state.remount(&place, "rw");
    wait_until(&place, "they are kept again", || {
        state_of(&place, "journal_not_writable").as_deref() == Some("closed")
    });
    daemon.kill();
    // One that never was: neither is there anything to read.
    drop(state);
    let state = Mounted::small(&place, 512);
    state.remount(&place, "ro");
    let daemon = Daemon::start(&place, "");
    done(&place, "serve a b");
    assert_eq!(served(&place), ["nas"]);
    let notes = notes_until_killed(daemon);
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(
        notes[0].contains("not kept") && notes[0].contains("read-only file system"),
        "{notes:?}"
    );
}

#[test]
fn without_a_mail_program_that_is_said_once_and_the_other_channels_get_the_message() {
    let place = home("poor-mail", "");
    let program = place.file("sendmail").display().to_string();
    let mail = format!(
        "[[alarm.channel]]\nname = \"root\"\nkind = \"sendmail\"\nto = \"root\"\ncommand = [\"{program}\", \"-t\"]\n"
    );
    configure(
        &place,
        &format!("{AT_ONCE}{}{mail}", channel(&place, "own")),
    );
    let daemon = Daemon::start(&place, "");
    done(&place, "serve a b");
    done(&place, "fail nas b");
    let told = wait_for_messages(&place, 1);
    assert!(told[0].subject.contains("slot 1 is missing"), "{told:?}");
    let notes = notes_until_killed(daemon);
    let line = format!("note: channel root: {program} is not there, so nothing arrives that way");
    assert_eq!(notes, [line]);
}

#[test]
fn without_udev_and_its_messages_volumes_are_served_and_a_late_member_is_found() {
    let place = home("poor-udev", "");
    // In a network of its own the kernel tells nothing of disks; below an empty /run there is nothing of udev.
    let alone = "unshare --net --mount -- sh -c";
    let script = place.file("alone");
    std::fs::write(&script, "mount -t tmpfs none /run && exec \"$@\"\n").unwrap();
    let alone = format!(
        "{} sh {}",
        alone.trim_end_matches(" sh -c"),
        script.display()
    );
    let daemon = Daemon::start_by(&place, &alone, "");
    done(&place, "serve a b");
    done(&place, "serve c d e");
    daemon.end(&place);
    std::fs::rename(place.file("d"), place.away("elsewhere")).unwrap();
    let daemon = Daemon::start_by(&place, &alone, "--degraded never");
    assert_eq!(served(&place), ["nas"]);
    std::fs::rename(place.away("elsewhere"), place.file("d")).unwrap();
    wait_until(&place, "the late member completes its volume", || {
        served(&place) == ["nas", "vault"]
    });
    assert_eq!(notes_until_killed(daemon).len(), 1, "that vault waits");
}

#[test]
fn a_daemon_of_an_ordinary_user_serves_from_folders_of_his_own() {
    let mut place = home("poor-user", "");
    // Folders follow from the home alone.
    for name in ["XDG_CONFIG_HOME", "XDG_STATE_HOME"] {
        place.environment.push((name, "".into()));
    }
    place
        .environment
        .push(("HOME", place.folder.clone().into()));
    std::fs::create_dir_all(place.file(".config")).unwrap();
    std::fs::rename(place.file("config/plexum"), place.file(".config/plexum")).unwrap();
    // He is somebody else than root there, and nothing is allowed to him beyond what is his.
    let user = "unshare --user --map-user=1000 --map-group=1000 --";
    let as_user = |words: &str| {
        place.tool(
            "unshare",
            &format!(
                "--user --map-user=1000 --map-group=1000 -- {} {words}",
                env!("CARGO_BIN_EXE_plexum")
            ),
        )
    };
    let daemon = Daemon::start_by(&place, user, "");
    let run = as_user("serve a b");
    assert_eq!(run.exit, 0, "{}", run.err);
    let run = as_user("fail nas b");
    assert_eq!(run.exit, 0, "{}", run.err);
    let told = wait_for_messages(&place, 1);
    assert!(told[0].subject.contains("slot 1 is missing"), "{told:?}");
    assert_eq!(notes_until_killed(daemon), [""; 0]);
    assert!(place.file(".local/state/plexum/incidents.json").exists());
    let daemon = Daemon::start_by(&place, user, "--wait 0");
    assert_eq!(served(&place), ["nas"]);
    drop(daemon);
}
