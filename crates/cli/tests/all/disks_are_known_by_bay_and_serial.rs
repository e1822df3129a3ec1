//! Which disk it is, where it sits and how it is, also when it is gone. The members are loop devices; trees of sysfs
//! that were built say which disk each of them is.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use plexum_testkit::{fixtures, unpack_sysfs};
use serde_json::Value;

use super::common::served::{Server, done, fill_part, status, wait_until};
use super::common::{Place, Run};
use super::daemon::Daemon;

/// Loop devices that a tree says are disks.
pub(super) struct Case {
    pub(super) place: Place,
    /// A link to the device of each disk that was named, in that order, as in `/dev/disk`.
    devices: Vec<String>,
    loops: Vec<String>,
}

impl Case {
    /// The tree `tree`, and a loop device for each of its disks `disks`.
    pub(super) fn new(name: &str, tree: &str, disks: &[&str]) -> Self {
        let mut place = Place::in_memory(name);
        let root = place.file("root");
        unpack_sysfs(tree, &root);
        place.environment.push(("PLEXUM_SYSFS_ROOT", root.into()));
        let mut case = Self {
            place,
            devices: Vec::new(),
            loops: Vec::new(),
        };
        for disk in disks {
            // Not beside the devices: the daemon would find what is on them there, too.
            let file = case.place.away(disk);
            fs::File::create(&file).unwrap().set_len(24 << 20).unwrap();
            case.attach(disk);
            case.plug(case.loops.len() - 1, disk);
        }
        case
    }

    /// A loop device of the file `disk`.
    fn attach(&mut self, disk: &str) {
        let words = format!("--find --show away/{disk}");
        let made = self.place.tool("losetup", &words);
        assert_eq!(made.exit, 0, "{}", made.err);
        let link = self.place.file(&format!("disk-{disk}"));
        symlink(made.out.trim(), &link).unwrap();
        self.devices.push(link.display().to_string());
        self.loops.push(made.out.trim().to_owned());
    }

    /// A new disk with this content is put into a bay.
    pub(super) fn put_in(&mut self, disk: &str, serial: &str, bay: &str, content: &[u8]) {
        fs::write(self.place.away(disk), content).unwrap();
        self.attach(disk);
        let at = self.loops.len() - 1;
        let device = self.sys("devices/new").join(disk);
        let block = device.join("block").join(disk);
        fs::create_dir_all(&block).unwrap();
        let sectors = (content.len() / 512).to_string();
        let dev = self.number(at);
        for (file, text) in [("dev", &dev), ("size", &sectors)] {
            fs::write(block.join(file), text).unwrap();
        }
        symlink(&device, block.join("device")).unwrap();
        for (file, text) in [("type", "0"), ("vendor", "ATA"), ("model", "NEW")] {
            fs::write(device.join(file), text).unwrap();
        }
        let length = u8::try_from(serial.len()).unwrap();
        let page = [&[0, 0x80, 0, length], serial.as_bytes()].concat();
        fs::write(device.join("vpd_pg80"), page).unwrap();
        symlink(&block, self.sys("class/block").join(disk)).unwrap();
        symlink(&device, self.bay(bay).join("device")).unwrap();
        self.plug(at, disk);
    }

    fn bay(&self, bay: &str) -> PathBuf {
        self.sys("class/enclosure/0:0:24:0").join(bay)
    }

    /// The device is no more: its name may be somebody else's from now on.
    pub(super) fn detach(&mut self, at: usize) {
        let device = std::mem::take(&mut self.loops[at]);
        let gone = self.place.tool("losetup", &format!("--detach {device}"));
        assert_eq!(gone.exit, 0, "{}", gone.err);
    }

    /// What `smartctl` or `ledctl` is for the commands of this case.
    fn with(mut self, program: &str, script: &str) -> Self {
        let folder = self.place.file("bin");
        fs::create_dir(&folder).unwrap();
        let program = folder.join(program);
        fs::write(&program, format!("#!/bin/sh\n{script}")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let mut path = folder.into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap());
        self.place.environment.push(("PATH", path));
        self
    }

    fn sys(&self, path: &str) -> PathBuf {
        self.place.file("root/sys").join(path)
    }

    /// The number of a device, `7:3`.
    fn number(&self, device: usize) -> String {
        let name = self.loops[device].trim_start_matches("/dev/");
        let number = fs::read_to_string(format!("/sys/class/block/{name}/dev")).unwrap();
        number.trim().to_owned()
    }

    /// From now on the device is this disk of the tree.
    fn plug(&self, device: usize, disk: &str) {
        fs::create_dir_all(self.sys("dev/block")).unwrap();
        let link = self.sys("dev/block").join(self.number(device));
        symlink(self.sys("class/block").join(disk), link).unwrap();
    }

    /// The disk leaves the tree and its link, as an unplug leaves them: the bay stays.
    pub(super) fn unplug(&self, device: usize, disk: &str, bay: &str) {
        fs::remove_file(self.device(device)).unwrap();
        fs::remove_file(self.sys("dev/block").join(self.number(device))).unwrap();
        fs::remove_file(self.sys("class/block").join(disk)).unwrap();
        fs::remove_file(self.bay(bay).join("device")).unwrap();
    }

    pub(super) fn devices(&self) -> &[String] {
        &self.devices
    }

    pub(super) fn device(&self, at: usize) -> &str {
        &self.devices[at]
    }

    /// Makes the mirror `nas` of the first two devices.
    pub(super) fn mirror(self) -> Self {
        let words = format!(
            "create nas --level 1 --assume-clean -y {}",
            self.devices[..2].join(" ")
        );
        done(&self.place, &words);
        self
    }

    /// Waits until the disks of slots 0 and 1 are known.
    pub(super) fn wait_until_known(&self) {
        wait_until(&self.place, "the disks are known", || {
            let status = status(&self.place);
            [0, 1].iter().all(|slot| !disk(&status, *slot).is_null())
        });
    }

    /// Waits until both disks were asked how they are, while both do I/O.
    fn wait_until_judged(&self) {
        wait_until(&self.place, "the disks were asked", || {
            fill_part(&self.place, 1, 0, 4096);
            let status = status(&self.place);
            [0, 1]
                .iter()
                .all(|slot| !disk(&status, *slot)["health"].is_null())
        });
    }

    fn plexum(&self, words: &str) -> Run {
        self.place.plexum(words)
    }

    /// The bays whose light of this kind is on.
    fn lit(&self, light: &str) -> Vec<String> {
        let bays = fs::read_dir(self.sys("class/enclosure/0:0:24:0")).unwrap();
        let bays = bays.map(|entry| entry.unwrap().path());
        let is_on = |bay: &PathBuf| {
            fs::read_to_string(bay.join(light)).is_ok_and(|text| text.trim() == "1")
        };
        let mut on: Vec<String> = bays
            .filter(is_on)
            .map(|bay| bay.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        on.sort();
        on
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        for device in self.loops.iter().filter(|device| !device.is_empty()) {
            self.place.tool("losetup", &format!("--detach {device}"));
        }
    }
}

/// The disk of a slot in a status.
pub(super) fn disk(status: &Value, slot: u64) -> Value {
    let members = status["members"].as_array().unwrap();
    let member = members.iter().find(|member| member["slot"] == slot);
    member.map_or(Value::Null, |member| member["disk"].clone())
}

/// A script that notes its words and prints a document.
fn healthy() -> String {
    let document = fixtures().join("inventory/health/ata.json");
    format!(
        "echo \"$@\" >>\"$XDG_RUNTIME_DIR/asked\"\ncat {}\n",
        document.display()
    )
}

#[test]
fn a_disk_that_is_gone_keeps_serial_model_and_bay_also_over_a_restart() {
    let case = Case::new("disks-gone", "ses-shelf", &["sda", "sdb"]).mirror();
    let daemon = Daemon::start(&case.place, "");
    done(&case.place, &format!("serve {}", case.devices.join(" ")));
    case.wait_until_known();
    let here = disk(&status(&case.place), 1);
    assert_eq!(here["serial"], "WD-WCC4E17", "{here}");
    assert_eq!(here["name"], "sdb");
    assert_eq!(here["bay"]["number"], "4");
    assert_eq!(here["bay"]["enclosure"], "0x500304801f0a24bd");
    assert_eq!(here["is_gone"], false);
    done(&case.place, "fail nas WD-WCC4E17");
    done(&case.place, &format!("remove nas {}", case.device(1)));
    case.unplug(1, "sdb", "Slot 04");
    let check = || {
        let gone = disk(&status(&case.place), 1);
        assert_eq!(gone["is_gone"], true, "{gone}");
        for field in ["serial", "model", "wwn", "bay", "path", "size_bytes"] {
            assert_eq!(gone[field], here[field], "{field}");
        }
        assert!(gone["name"].is_null(), "{gone}");
        let seen = gone["last_seen_s"].as_u64().unwrap();
        assert!(seen >= here["first_seen_s"].as_u64().unwrap(), "{gone}");
        for words in ["status", "disks"] {
            let told = case.plexum(words).out;
            let line = told.lines().find(|line| line.contains("missing")).unwrap();
            for word in ["WD-WCC4E17", "WDC WD40EFRX", "  4  ", "last seen 20"] {
                assert!(line.contains(word), "{words}: no {word} in {line}");
            }
        }
    };
    check();
    daemon.end(&case.place);
    let daemon = Daemon::start(&case.place, "--wait 0");
    let served = case.plexum("status nas");
    assert_eq!(served.exit, 1, "degraded: {}", served.out);
    check();
    daemon.end(&case.place);
    fs::remove_file(case.device(0)).unwrap();
    let _daemon = Daemon::start(&case.place, "--wait 0");
    let told = case.plexum("status").out;
    let line = told
        .lines()
        .find(|line| line.contains("NOT SERVED"))
        .unwrap();
    for serial in ["(serial Z1Z5ABCD0000C4123ABC)", "(serial WD-WCC4E17)"] {
        assert!(line.contains(serial), "{line}");
    }
    let shown = done(&case.place, "disks nas").out;
    let row = shown
        .lines()
        .find(|line| line.contains("WD-WCC4E17"))
        .unwrap();
    assert!(row.contains("not served, last seen"), "{row}");
    done(&case.place, "locate nas 1");
    assert_eq!(case.lit("locate"), ["Slot 04"], "its volume is not served");
}

#[test]
fn a_light_is_switched_at_the_disks_bay_and_at_no_other_also_when_the_disk_is_gone() {
    let case = Case::new("disks-light", "ses-shelf", &["sda", "sdb"]).mirror();
    let _server = Server::start(&case.place, &case.devices.join(" "));
    case.wait_until_known();
    let planned = done(&case.place, "locate nas 0 --dry-run");
    assert!(planned.out.contains("would be on"), "{}", planned.out);
    assert_eq!(case.lit("locate"), [""; 0]);
    let told = done(&case.place, "locate nas 0");
    assert!(told.out.contains("bay 3 (Slot 03)"), "{}", told.out);
    assert!(told.out.contains("Z1Z5ABCD"), "{}", told.out);
    assert_eq!(case.lit("locate"), ["Slot 03"]);
    assert_eq!(case.lit("fault"), [""; 0]);
    let shown = case.plexum("disks nas").out;
    let row = shown
        .lines()
        .find(|line| line.contains("Z1Z5ABCD"))
        .unwrap();
    assert!(row.contains("  locate  "), "{row}");
    done(&case.place, "locate nas Z1Z5ABCD0000C4123ABC --off");
    assert_eq!(case.lit("locate"), [""; 0]);
    done(&case.place, "fail nas 1");
    done(&case.place, &format!("remove nas {}", case.device(1)));
    case.unplug(1, "sdb", "Slot 04");
    let told = done(&case.place, "locate nas 1");
    assert!(told.out.contains("gone, last seen"), "{}", told.out);
    assert_eq!(case.lit("locate"), ["Slot 04"]);
    done(&case.place, &format!("locate nas {} --off", case.device(1)));
    assert_eq!(case.lit("locate"), [""; 0], "by the path that it had");
    done(&case.place, "locate nas WD-WCC4E17 --fault");
    assert_eq!(
        case.lit("fault"),
        ["Slot 04"],
        "by the serial of a disk that is gone"
    );
    done(&case.place, "locate nas 1");
    done(&case.place, "locate nas 0");
    let off = done(&case.place, "locate --all-off");
    assert_eq!(
        off.out
            .lines()
            .filter(|line| line.starts_with("off:"))
            .count(),
        2
    );
    assert_eq!(case.lit("locate"), [""; 0]);
    assert_eq!(case.lit("fault"), ["Slot 04"]);
    let dark = done(&case.place, "locate nas 1 --by-activity --seconds 1");
    assert!(
        dark.out.contains(&format!("reads {}", case.device(0))),
        "{}",
        dark.out
    );
    assert!(
        !dark.out.contains(&format!("reads {}", case.device(1))),
        "{}",
        dark.out
    );
}

#[test]
fn ledctl_is_asked_for_the_light_of_a_port_that_it_alone_reaches() {
    let script = "echo \"$@\" >>\"$XDG_RUNTIME_DIR/asked\"\n";
    let case = Case::new("disks-ledctl", "sata-ahci", &["sda", "sdb"]);
    let case = case.mirror().with("ledctl", script);
    let _server = Server::start(&case.place, &case.devices.join(" "));
    case.wait_until_known();
    done(&case.place, "locate nas 0 --dry-run");
    assert!(!case.place.file("asked").exists());
    let told = done(&case.place, "locate nas 0");
    assert!(
        told.out.contains("port 1 of the SATA controller"),
        "{}",
        told.out
    );
    done(&case.place, "locate nas 1 --fault --off");
    let asked = fs::read_to_string(case.place.file("asked")).unwrap();
    assert_eq!(asked, "locate=/dev/sda\nnormal=/dev/sdb\n");
}

#[test]
fn a_disk_whose_place_a_spare_took_can_still_be_found_after_a_restart() {
    let case = Case::new("disks-former", "ses-shelf", &["sda", "sdb"]);
    let members = format!("{} plain", case.device(0));
    done(
        &case.place,
        &format!("create nas --level 1 --assume-clean -y --member-size 24M {members}"),
    );
    let server = Server::start(&case.place, &members);
    wait_until(&case.place, "the disk is known", || {
        !disk(&status(&case.place), 0).is_null()
    });
    done(&case.place, &format!("add nas --force {}", case.device(1)));
    done(&case.place, "fail nas 0");
    wait_until(&case.place, "the spare has taken the place", || {
        let status = status(&case.place);
        disk(&status, 0)["serial"] == "WD-WCC4E17" && status["verdict"] == "ok"
    });
    server.stop(&case.place);
    let members = format!("{} plain", case.device(1));
    let _server = Server::start(&case.place, &members);
    let shown = done(&case.place, "disks nas").out;
    let row = shown
        .lines()
        .find(|line| line.contains("Z1Z5ABCD"))
        .unwrap();
    assert!(row.contains("replaced, last seen"), "{row}");
    done(&case.place, "locate nas Z1Z5ABCD0000C4123ABC");
    assert_eq!(case.lit("locate"), ["Slot 03"]);
}

#[test]
fn where_no_light_can_be_reached_that_is_said_with_the_way_that_needs_none() {
    let case = Case::new("disks-dark", "virtio", &["vda"]);
    let members = format!("{} plain", case.device(0));
    done(
        &case.place,
        &format!("create nas --level 0 -y --member-size 24M {members}"),
    );
    let _server = Server::start(&case.place, &members);
    wait_until(&case.place, "the disk is known", || {
        !disk(&status(&case.place), 0).is_null()
    });
    let refused = case.plexum("locate nas 0");
    assert_eq!(refused.exit, 4, "{}{}", refused.out, refused.err);
    let serial = disk(&status(&case.place), 0)["serial"].clone();
    for words in ["--by-activity", "slot 0: ", serial.as_str().unwrap()] {
        assert!(refused.err.contains(words), "{}", refused.err);
    }
    let file = case.plexum("locate nas 1");
    assert_eq!(file.exit, 4, "{}", file.err);
    assert!(file.err.contains("no disk is known"), "{}", file.err);
}

#[test]
fn equal_serials_are_told_and_the_world_wide_name_says_which_is_meant() {
    let case = Case::new("disks-equal", "equal-serials", &["sda", "sdb"]).mirror();
    let _server = Server::start(&case.place, &case.devices.join(" "));
    case.wait_until_known();
    let now = status(&case.place);
    let findings = now["findings"].to_string();
    assert!(findings.contains("serial_not_unique"), "{findings}");
    for words in ["status", "disks"] {
        let told = case.plexum(words).out;
        assert!(told.contains("is not unique here"), "{words}: {told}");
    }
    let serial = disk(&now, 0)["serial"].as_str().unwrap().to_owned();
    let refused = case.plexum(&format!("fail nas {serial}"));
    assert_eq!(refused.exit, 2, "{}{}", refused.out, refused.err);
    assert!(refused.err.contains("world-wide name"), "{}", refused.err);
    let wwn = disk(&now, 1)["wwn"].as_str().unwrap().to_owned();
    let failed = done(&case.place, &format!("fail nas {wwn}"));
    assert!(failed.out.contains(case.device(1)), "{}", failed.out);
}

#[test]
fn only_disks_in_use_are_asked_how_they_are_and_never_so_that_they_wake() {
    let case = Case::new("disks-health", "ses-shelf", &["sda", "sdb"]);
    let case = case.mirror().with("smartctl", &healthy());
    let server = Server::start(&case.place, &case.devices.join(" "));
    case.wait_until_known();
    assert!(!case.place.file("asked").exists(), "nobody has used it");
    case.wait_until_judged();
    let asked = fs::read_to_string(case.place.file("asked")).unwrap();
    let mut asked: Vec<&str> = asked.lines().collect();
    asked.sort_unstable();
    let words = ["-j -n standby -x /dev/sda", "-j -n standby -x /dev/sdb"];
    assert_eq!(asked, words, "each once");
    let before = disk(&status(&case.place), 1)["health"].clone();
    assert_eq!(before["verdict"], "fine", "{before}");
    let shown = case.plexum("disks nas").out;
    assert!(
        shown.contains("fine (") && shown.contains(" ago)"),
        "{shown}"
    );
    server.stop(&case.place);
    let _server = Server::start(&case.place, &case.devices.join(" "));
    case.wait_until_known();
    assert_eq!(
        disk(&status(&case.place), 1)["health"],
        before,
        "it is kept"
    );
}

#[test]
fn a_disk_that_says_that_it_fails_is_told_by_the_status_and_as_an_event() {
    let document = fixtures().join("inventory/health/ata.json");
    let script = format!(
        "sed 's/\"passed\": true/\"passed\": false/' {}\nexit 8\n",
        document.display()
    );
    let case = Case::new("disks-failing", "ses-shelf", &["sda", "sdb"]);
    let case = case.mirror().with("smartctl", &script);
    let _server = Server::start(&case.place, &case.devices.join(" "));
    case.wait_until_judged();
    let told = case.plexum("status nas");
    let line = format!("! {}: the disk in bay 4 (", case.device(1));
    let line = told.out.lines().find(|one| one.contains(&line)).unwrap();
    assert!(line.contains("is failing: its own verdict"), "{line}");
    assert_eq!(told.exit, 0, "no data lack redundancy: {}", told.out);
    let events = case.plexum("events nas").out;
    let failing = events.lines().filter(|line| line.contains("is failing: "));
    assert_eq!(failing.count(), 2, "{events}");
}

#[test]
fn a_disk_that_fell_asleep_is_told_as_asleep_and_not_as_fine() {
    let sleeps = "echo '{\"smartctl\":{\"version\":[7,3],\"exit_status\":2,\"messages\":\
                  [{\"string\":\"Device is in STANDBY mode, exit(2)\",\"severity\":\"information\"}]},\
                  \"device\":{\"protocol\":\"ATA\"},\"power_mode\":{\"name\":\"STANDBY\"}}'\nexit 2\n";
    let case = Case::new("disks-asleep", "ses-shelf", &["sda", "sdb"]);
    let case = case.mirror().with("smartctl", sleeps);
    let _server = Server::start(&case.place, &case.devices.join(" "));
    case.wait_until_judged();
    let health = disk(&status(&case.place), 0)["health"].clone();
    assert_eq!(health["verdict"], "asleep", "{health}");
}

#[test]
fn without_smartctl_one_line_says_so_once() {
    let mut case = Case::new("disks-without", "ses-shelf", &["sda", "sdb"]).mirror();
    let empty = case.place.file("empty");
    fs::create_dir(&empty).unwrap();
    let tools = std::env::var_os("PATH").unwrap();
    case.place.environment.push(("PATH", empty.into()));
    let _server = Server::start(&case.place, &case.devices.join(" "));
    case.place.environment.pop();
    case.place.environment.push(("PATH", tools));
    let lines = || {
        let events = case.plexum("events nas").out;
        events
            .lines()
            .filter(|line| line.contains("no smartctl"))
            .count()
    };
    wait_until(&case.place, "it is said", || {
        fill_part(&case.place, 1, 0, 4096);
        lines() > 0
    });
    assert_eq!(lines(), 1, "two disks, one line");
    assert!(disk(&status(&case.place), 0)["health"].is_null());
}
