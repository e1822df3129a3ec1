//! The Debian package as an administrator meets it: installed, booted, switched off under load, removed.
#![allow(clippy::unwrap_used)]

mod machine;

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use machine::{Machine, done, make_package, package, tried};

/// All that `plexum status --json` says there.
fn status(machine: &Machine) -> Vec<Value> {
    let (_, words) = machine.tried("plexum status --json");
    let objects = words.lines().map(serde_json::from_str);
    objects
        .collect::<Result<_, _>>()
        .unwrap_or_else(|error| panic!("{words}: {error}"))
}

/// Each volume and how it is: its verdict, or `waiting`.
fn volumes(machine: &Machine) -> Vec<String> {
    let told = status(machine);
    let named = told.iter().filter(|one| one["volume"].is_string());
    let words = named.map(|one| {
        let how = one["verdict"].as_str().unwrap_or("waiting");
        format!("{} {how}", one["volume"].as_str().unwrap())
    });
    words.collect()
}

/// What the service manager knows of the daemon.
fn property(machine: &Machine, name: &str) -> String {
    machine.done(&format!("systemctl show plexum --value --property={name}"))
}

/// The daemon is started with other words, and taken for dead after so many seconds.
fn daemon_is(machine: &Machine, words: &str, watchdog_s: u32) {
    let unit = format!(
        "[Service]\nExecStart=\nExecStart=/usr/bin/plexum daemon {words}\nWatchdogSec={watchdog_s}\n"
    );
    machine.write("etc/systemd/system/plexum.service.d/test.conf", &unit);
}

/// A mirror and a RAID-5, served.
fn serve_two(machine: &Machine) {
    machine
        .done("plexum create nas --level 1 --member-size 16M /disks/a /disks/b --assume-clean -y");
    machine.done("plexum create vault --level 5 --member-size 16M /disks/c /disks/d /disks/e -y");
    machine.done("plexum serve /disks/a /disks/b");
    machine.done("plexum serve /disks/c /disks/d /disks/e");
}

/// One pattern, written or read at an address of a volume.
fn io(machine: &Machine, volume: &str, what: &str) {
    let uri = format!("nbd+unix:///{volume}?socket=/run/plexum/{volume}.nbd");
    machine.shell(&format!("qemu-io -f raw -c '{what}' '{uri}'"));
}

#[test]
fn the_package_is_the_same_each_time_it_is_made_and_without_findings() {
    let other = package().with_extension("again");
    make_package(&other);
    assert!(
        fs::read(package()).unwrap() == fs::read(&other).unwrap(),
        "two packages of one program differ"
    );
    fs::remove_file(other).unwrap();
    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--fail-on=error,warning,info"]);
    let (is_ok, words) = tried(lintian.arg(package()));
    assert!(is_ok && words.is_empty(), "{words}");
    let machine = Machine::new("verify");
    machine.install();
    let units = "plexum.service plexum-attach@nas.service";
    let (is_ok, words) = machine.off(&format!("systemd-analyze verify {units}"));
    assert!(is_ok && words.is_empty(), "{words}");
}

#[test]
fn an_image_of_a_program_that_needs_a_loader_is_refused() {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-image");
    let mut make = Command::new("sh");
    make.arg(packaging.join("oci.sh"));
    let (is_ok, words) = tried(make.arg(env!("CARGO_BIN_EXE_plexum")).arg(&out));
    assert!(!is_ok && words.contains("not statically linked"), "{words}");
    assert!(!out.exists());
}

#[test]
fn volumes_are_there_after_a_boot_whoever_is_late_or_missing_and_outlive_the_package() {
    let mut machine = Machine::new("boots");
    machine.install();
    daemon_is(&machine, "--wait 600", 60);
    machine.boot();
    assert_eq!(volumes(&machine), [""; 0], "it takes no array by itself");
    serve_two(&machine);
    io(&machine, "vault", "write -P 7 0 1M");
    machine.power_off();

    // One disk is late: its volume waits, the other does not.
    fs::rename(machine.disk("d"), machine.away("d")).unwrap();
    machine.boot();
    assert_eq!(volumes(&machine), ["nas ok", "vault waiting"]);
    machine.wait("the service manager is told that one waits", |machine| {
        property(machine, "StatusText") == "volumes: 1 served, 1 waiting, 0 stopped"
    });
    fs::rename(machine.away("d"), machine.disk("d")).unwrap();
    machine.wait("the late disk completes its volume", |machine| {
        volumes(machine) == ["nas ok", "vault ok"]
    });
    machine.power_off();

    // It stays away: its volume starts without it, and takes it back when it returns.
    fs::rename(machine.disk("d"), machine.away("d")).unwrap();
    daemon_is(&machine, "--wait 1", 4);
    machine.boot();
    machine.wait("the volume starts without its disk", |machine| {
        volumes(machine) == ["nas ok", "vault degraded"]
    });
    io(&machine, "vault", "write -P 8 512k 1M");
    fs::rename(machine.away("d"), machine.disk("d")).unwrap();
    machine.wait("the disk is taken back", |machine| {
        volumes(machine) == ["nas ok", "vault ok"]
    });
    io(&machine, "vault", "read -P 7 0 512k");
    io(&machine, "vault", "read -P 8 512k 1M");

    // A daemon that hangs is started again.
    machine.wait(
        "the service manager is told that all are served",
        |machine| property(machine, "StatusText") == "volumes: 2 served, 0 waiting, 0 stopped",
    );
    machine.done("systemctl kill --kill-whom=main --signal=STOP plexum");
    machine.wait("another daemon", |machine| {
        property(machine, "NRestarts") == "1" && property(machine, "ActiveState") == "active"
    });
    assert_eq!(volumes(&machine), ["nas ok", "vault ok"]);
    an_initramfs_takes_the_sets_along(&machine);
    purge_leaves_disks(&machine);
}

/// What the package has for an initramfs finds there what it needs: in it, md is kept off the sets.
fn an_initramfs_takes_the_sets_along(machine: &Machine) {
    let hook = "DESTDIR=/tmp/initramfs /usr/share/initramfs-tools/hooks/plexum 2>&1";
    machine.shell("mkdir -p /tmp/initramfs/usr/sbin; touch /tmp/initramfs/usr/sbin/mdadm");
    machine.shell(hook);
    machine.shell("find /tmp/initramfs -name 63-plexum.rules | grep -q rules");
    let told = machine.done("cat /tmp/initramfs/usr/lib/plexum/claims");
    assert_eq!(told.lines().count(), 2, "{told}");
    for line in told.lines() {
        let uuid = line.split(' ').next().unwrap();
        let said = machine.shell(&format!(
            "ID_FS_UUID={uuid} /tmp/initramfs/usr/lib/plexum/udev-claim"
        ));
        assert!(said.contains("ID_FS_TYPE=plexum_member"), "{said}");
    }
    let config = machine.done("cat /tmp/initramfs/etc/mdadm/mdadm.conf");
    assert_eq!(
        config.matches("ARRAY <ignore> UUID=").count(),
        2,
        "{config}"
    );
    // Without the program nothing is kept off, and there is an initramfs all the same.
    machine.done("mv /usr/lib/plexum/udev-claim /tmp");
    let said = machine.shell(hook);
    assert!(said.contains("udev-claim is missing"), "{said}");
    machine.done("mv /tmp/udev-claim /usr/lib/plexum/udev-claim");
}

/// What the package has put there goes with it, and the disks are as they were.
fn purge_leaves_disks(machine: &Machine) {
    machine.done("systemctl stop plexum");
    let names = ["a", "b", "c", "d", "e"];
    let read = || names.map(|name| fs::read(machine.disk(name)).unwrap());
    let before = read();
    machine.done("systemctl start plexum");
    let words = machine.done("dpkg --no-triggers --purge plexum");
    assert!(words.contains("ordinary md arrays"), "{words}");
    let (_, state) = machine.tried("systemctl is-active plexum");
    assert_eq!(state, "inactive", "{words}\n{}", machine.journal());
    for path in ["var/lib/plexum", "etc/plexum", "usr/bin/plexum"] {
        assert!(!machine.file(path).exists(), "{path} is left");
    }
    let left = machine.done("find /etc/systemd /var/lib/systemd -name plexum*");
    assert_eq!(
        left, "/etc/systemd/system/plexum.service.d",
        "the test's own"
    );
    assert!(read() == before, "a purge has written to disks");
    for name in names {
        done(
            Command::new("mdadm")
                .arg("--examine")
                .arg(machine.disk(name)),
        );
    }
}

/// Copies random files to and fro as fast as it can, and notes each failure.
const LOAD: &str = "\
[Service]
ExecStart=/bin/sh -c 'number=0; while true; do \\
    dd if=/dev/urandom of=/srv/$$((number % 5)) bs=64k count=40 conv=fsync status=none || echo FAILED; \\
    number=$$((number + 1)); echo $$number >/rounds; done'
";

/// As the administrator is told, of a volume that is named as a folder is there: the boot goes on without it, and what
/// uses it ends before it is unmounted.
const FSTAB: &str = "/run/plexum/device/home /srv ext4 \
    nofail,x-systemd.requires=plexum-attach@home.service,x-systemd.before=local-fs.target\n";

#[test]
fn a_mounted_volume_outlives_a_restart_of_the_daemon_and_is_unmounted_first_at_shutdown() {
    let mut machine = Machine::new("mounted");
    machine.install();
    machine.write("etc/systemd/system/load.service", LOAD);
    machine.boot();
    machine.done("plexum create home --level 5 --member-size 48M /disks/a /disks/b /disks/c -y");
    machine.done("plexum serve /disks/a /disks/b /disks/c");
    let told = machine.done("plexum attach home --wait 1");
    let device = told.lines().next().unwrap();
    machine.done("mkfs.ext4 -q /run/plexum/device/home");
    machine.done("mount /run/plexum/device/home /srv");
    machine.done("cp /bin/bash /srv/kept");
    machine.done("systemctl start load");
    rounds_pass(&machine);
    machine.done("systemctl restart plexum");
    rounds_pass(&machine);
    let pid = property(&machine, "MainPID");
    let locked = machine.done(&format!("grep VmLck /proc/{pid}/status"));
    assert!(
        !locked.contains(" 0 kB"),
        "it may wait for itself: {locked}"
    );
    // An upgrade restarts it as well; and it is not removed from under a file system.
    fs::copy(package(), machine.file("plexum.deb")).unwrap();
    machine.done("dpkg --no-triggers -i /plexum.deb");
    assert_ne!(property(&machine, "MainPID"), pid, "it runs on as it was");
    rounds_pass(&machine);
    let (is_ok, words) = machine.tried("dpkg --no-triggers --purge plexum");
    assert!(!is_ok && words.contains("plexum detach home"), "{words}");
    machine.power_off();
    file_system_is_whole(&machine);
    // A machine that ends takes its loop devices with it; those of a container are the host's.
    let (_, left) = tried(Command::new("losetup").arg(device));
    if left.ends_with("(/home)") {
        done(Command::new("losetup").args(["-d", device]));
    }

    // The same by a line of /etc/fstab.
    machine.write("etc/fstab", FSTAB);
    machine.boot();
    machine.done("cmp /bin/bash /srv/kept");
    machine.done("systemctl start load");
    rounds_pass(&machine);
    machine.power_off();
    file_system_is_whole(&machine);
}

/// The load goes on.
fn rounds_pass(machine: &Machine) {
    let rounds = || machine.tried("cat /rounds").1.parse::<u64>().unwrap_or(0);
    let before = rounds();
    machine.wait("the load goes on", |_| rounds() >= before + 3);
}

/// Nothing that was written was refused, and all of it was there before the volume went.
fn file_system_is_whole(machine: &Machine) {
    let journal = machine.journal();
    assert!(!journal.contains("FAILED"), "{journal}");
    let at = |words: &str| {
        journal
            .rfind(words)
            .unwrap_or_else(|| panic!("{words}\n{journal}"))
    };
    let unmounted = at("Unmounted srv.mount");
    let ended = at("Stopped plexum.service");
    assert!(unmounted < ended, "{journal}");
    let image = machine.image("home", &["a", "b", "c"]);
    let (is_ok, words) = tried(Command::new("e2fsck").arg("-fn").arg(&image));
    assert!(is_ok, "{words}");
    let told = done(Command::new("dumpe2fs").arg("-h").arg(&image));
    assert!(!told.contains("needs_recovery"), "{told}");
    assert!(!told.contains("FS Error"), "{told}");
}
