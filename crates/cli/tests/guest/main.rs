//! Volumes as disks of a real kernel, by ublk and over NVMe/TCP: Debian 13's kernel in QEMU (`oracle/vm-oracle`), where
//! plexum itself runs.
//!
//! One guest for those that every commit runs and one for those of `cargo xtask nightly`, since a boot costs half a
//! minute: each case is a script, and its test looks what came of it. What only newer kernels can do has a guest with
//! the newest one of Debian's backports.
#![allow(clippy::unwrap_used)] // a failed unwrap fails the test

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

const FUNCTIONS: &str = include_str!("functions.sh");

/// Kills of a server under load; `PLEXUM_KILLS` has another number for a long run.
const KILLS: &str = "3";
/// Most that the guest may take, in seconds; a long run sets `PLEXUM_GUEST_S`.
const GUEST_S: &str = "1800";

/// Disks that come and go, in slots of PCI, where a disk has a bay and a serial.
const DISKS: [&str; 4] = [
    "stays:size=24M,bus=nvme,name=STAYS",
    "pulled:size=24M,bus=nvme,name=PULLED",
    "other:size=24M,bus=nvme,name=OTHER,unplugged",
    "scsi:size=24M,bus=scsi,name=SCSI",
];

/// A test for each case, and the list of all of them.
macro_rules! cases {
    (NIGHTLY: $($name:ident $script:literal)*) => {
        pub(crate) const NIGHTLY_CASES: &[(&str, &str)] = &[$((stringify!($name), $script)),*];
        $(
            #[test]
            #[ignore = "half a minute each, in a guest of their own: cargo xtask nightly guest"]
            fn $name() { crate::check(&crate::NIGHTLY, stringify!($name)); }
        )*
    };
    (NEWEST: $($name:ident $script:literal)*) => {
        pub(crate) const NEWEST_CASES: &[(&str, &str)] = &[$((stringify!($name), $script)),*];
        $(
            #[test]
            #[ignore = "a kernel that has more than Debian 13's, in a guest of its own: cargo xtask nightly guest"]
            fn $name() { crate::check(&crate::NEWEST, stringify!($name)); }
        )*
    };
    ($($name:ident $script:literal)*) => {
        pub(crate) const CASES: &[(&str, &str)] = &[$((stringify!($name), $script)),*];
        $(#[test] fn $name() { crate::check(&crate::DAILY, stringify!($name)); })*
    };
}

mod nvme;
mod zfs;

cases! {
    a_server_that_is_killed_under_load_is_followed_by_another_and_nothing_is_lost r#"
        new 5 24M a b c
        serve a b c --ublk
        mkfs.ext4 -q $DEV; mkdir m; mount $DEV m
        while [ ! -e stop ]; do
          fio --name=v --filename=m/load --ioengine=libaio --direct=1 --rw=randwrite --bsrange=4k-32k --iodepth=16 \
            --size=4M --verify=crc32c --verify_fatal=1 --do_verify=1 --output=fio.txt || { touch failed; break; }
        done & load=$!
        random data 16
        for round in $(seq $KILLS); do
          tries=0
          until read -r reads writes </sys/block/ublkb*/inflight && [ $((reads + writes)) != 0 ]; do
            tries=$((tries + 1)); [ $tries -lt 20000 ] || die "no request under way"
          done
          kill_server
          { cp data m/of-$((round % 8)); sync m/of-$((round % 8)); } & writer=$!
          serve a b c; says "$DEV"
          wait $writer || die "round $round: the writer failed"
          [ ! -e failed ] || { cat fio.txt; die "round $round: fio found something"; }
        done
        touch stop; wait $load; [ ! -e failed ] || { cat fio.txt; die "fio found something"; }
        echo 3 >/proc/sys/vm/drop_caches
        for copy in m/of-*; do cmp data $copy; done
        umount m; e2fsck -fn $DEV >fsck.txt 2>&1 || { cat fsck.txt; exit 1; }
        vm_wait 60 idle || die "the resync does not end"
        exits 0 plexum scrub nas --wait; exits 0 plexum status nas --json; says '"mismatch_bytes":0'
        exits 0 plexum stop nas; nothing_left
    "#

    attach_takes_ublk_first_then_nbd_then_fuse_and_says_why r#"
        new 1 24M a b; serve a b
        exits 0 plexum attach nas --dry-run; says "would attach nas by the kernel's ublk"; nothing_left
        mkdir m; exits 0 plexum attach nas; says "/dev/ublkb"; says "by the kernel's ublk"
        mkfs.ext4 -q $DEV; exits 0 plexum status nas; says "attached: /dev/ublkb"
        exits 0 plexum detach nas; nothing_left
        exits 0 plexum attach nas m; touch m/x
        kill_server; serve a b; touch m/y
        exits 0 plexum detach nas; nothing_left
        exits 0 plexum attach nas --json; says '"by":"ublk"'; kill_server
        exits 0 plexum detach nas; nothing_left
        serve a b
        modprobe -r ublk_drv; modprobe nbd
        exits 5 plexum attach nas --by ublk; says "modprobe ublk_drv"
        exits 0 plexum attach nas; says "by the kernel's nbd, over 4 connections: the kernel has no ublk here"
        exits 0 plexum detach nas; modprobe fuse; modprobe loop
        rm -f /dev/nbd0; exits 0 plexum attach nas
        says "by FUSE and a loop device: there is no /dev/nbd0 here"; says "the kernel has no ublk here"
        mknod /dev/nbd0 b 43 0
        exits 0 plexum detach nas; exits 0 plexum stop nas
        exits 5 plexum serve a b --ublk; says "modprobe ublk_drv"
        nothing_left
    "#

    the_daemon_takes_devices_over_and_makes_them_at_its_start r#"
        new 1 24M a b
        start
        exits 0 plexum serve a b --ublk; says "$DEV"
        mkfs.ext4 -q $DEV; mkdir m; mount $DEV m; touch m/x
        kill -KILL $DAEMON; gone $DAEMON
        touch m/y & writer=$!
        start; wait $writer; vm_wait 20 has_device || die "not taken over"
        umount m; mount $DEV m; [ -e m/y ] || die "lost"; umount m
        kill -TERM $DAEMON; gone $DAEMON; nothing_left
        start; vm_wait 20 has_device || die "not made again"
        exits 0 plexum stop nas; kill -TERM $DAEMON; gone $DAEMON; nothing_left
    "#

    a_disk_that_is_pulled_is_named_by_bay_and_serial_and_is_taken_back_by_another_name r#"
        printf '#!/bin/sh\n{ echo "$PLEXUM_KIND $PLEXUM_SUBJECT"; cat; echo; } >>/tmp/case/messages\n' >note; chmod 755 note
        configure '[[alarm.channel]]
            name = "own"
            kind = "program"
            command = ["/tmp/case/note"]'
        start
        pulled=$(vm_dev PULLED)
        plexum create -y nas --level 1 --assume-clean $(vm_dev STAYS) $pulled >/dev/null
        exits 0 plexum serve $(vm_dev STAYS) $pulled; bay=$(bay_in $pulled)
        [ "$bay" -gt 0 ] || die "no bay: $bay"
        random data 16
        while [ ! -e quiet ]; do nbdcopy --flush data "$(uri)" || touch failed; done & writer=$!
        vm_do unplug PULLED; vm_wait_gone PULLED
        touch quiet; wait $writer; [ ! -e failed ] || die "a write failed"
        vm_wait 20 told opened || { cat out; die "nobody was told"; }
        named() { for word in "$bay" PULLED; do grep -qE "\b$word\b" <<<"$1" || die "$2 does not name $word: $1"; done; }
        named "$(grep '^opened' messages)" message
        exits 1 plexum status nas; named "$(grep 'missing (was' out)" status
        exits 1 plexum status nas --json; says '"is_gone":true'
        named "$(curl -s http://127.0.0.1:9838/ | tee page | tr '\n' ' ' | sed 's/<tr/\n&/g' | grep missing)" page
        exits 4 plexum locate nas 1; named "$(cat err)" locate
        random data 16; nbdcopy data "$(uri)"
        vm_do plug OTHER; vm_wait_dev OTHER >/dev/null; vm_do plug PULLED; vm_wait_dev PULLED >/dev/null
        is "the disk in its bay" "$(bay_in $(vm_dev OTHER))" $bay
        [ $(vm_dev PULLED) != $pulled ] || die "it has its name again: nothing is shown"
        vm_wait 20 is_whole || { cat out; die "not taken back"; }
        says "$(vm_dev PULLED)"; vm_wait 20 told closed || die "nobody was told that it is over"
        plexum scrub nas --wait >/dev/null; exits 0 plexum status nas --json; says '"mismatch_bytes":0'
        nbdcopy "$(uri)" other; cmp -n 1048576 data other
        [ $(grep -cE '^(opened|closed)' messages) = 2 ] || { cat messages; die "more than two messages"; }
        cmp -n 4096 $(vm_dev OTHER) /dev/zero || die "written to a disk that nobody has named"
        exits 0 plexum stop nas; kill -TERM $DAEMON; gone $DAEMON
    "#
}

cases! { NIGHTLY:
    what_is_written_to_a_device_is_read_again_by_it_and_by_nbd r#"
        new 5 16M a b c
        serve a b c --ublk; random data 128
        dd if=data of=$DEV bs=256K oflag=direct status=none
        dd if=$DEV bs=64K count=128 iflag=direct status=none | cmp - data
        exits 0 nbdcopy "nbd+unix:///nas?socket=$XDG_RUNTIME_DIR/plexum/nas.nbd" other
        cmp -n 8388608 data other
        blkdiscard -z -o 1M -l 2M $DEV; dd if=/dev/zero of=data bs=1M seek=1 count=2 conv=notrunc status=none
        blkdiscard -o 12M -l 2M $DEV
        dd if=$DEV bs=64K count=128 iflag=direct status=none | cmp - data
        fio --name=v --filename=$DEV --ioengine=libaio --direct=1 --rw=randrw --bsrange=512-64k --bs_unaligned=0 \
          --iodepth=16 --size=16M --io_size=4M --offset=8M --verify=crc32c --verify_fatal=1 --fsync=32 --randseed=7 \
          --output=fio.txt || { cat fio.txt; exit 1; }
        exits 0 plexum scrub nas --wait
        exits 0 plexum stop nas; nothing_left
    "#

    a_device_in_use_is_not_stopped_unless_it_is_forced r#"
        new 1 24M a b
        serve a b --ublk; mkfs.ext4 -q $DEV; mkdir m; mount $DEV m
        exits 6 plexum stop nas; says "in use: the mount"
        exits 6 plexum detach nas; says "umount"
        umount m
        exec 8<$DEV
        exits 6 plexum stop nas; says "has it open"
        exec 8<&-
        mount $DEV m
        exits 0 plexum stop --force nas
        ! cat m/lost+found/x 2>/dev/null || die "read without a server"
        umount m; nothing_left
    "#

    a_device_is_taken_over_by_its_own_volume_alone r#"
        new 1 24M a b; plexum create -y nas --level 1 --member-size 24M c d >/dev/null
        serve a b --ublk; mkfs.ext4 -q $DEV; mkdir m; mount $DEV m; kill_server
        serve c d; exits 0 plexum status nas
        ! grep -qF $DEV out || die "taken over by another array of that name"
        exits 0 plexum stop nas
        serve a b --read-only; exits 0 plexum status nas
        ! grep -qF $DEV out || die "taken over, but it can only be read"
        exits 0 plexum events nas; says "can only be read now"
        exits 0 plexum stop nas
        serve a b; touch m/x; umount m
        exits 0 plexum stop nas; nothing_left
    "#

    a_blank_disk_in_the_bay_of_a_pulled_one_takes_its_place_by_policy r#"
        configure "[replace]" 'same-bay = "replace"'
        vm_dev OTHER >/dev/null || vm_do plug OTHER; vm_wait_dev OTHER >/dev/null
        # The one that is pulled is in the lower bay: the next that is plugged in gets it.
        set -- $(for disk in PULLED OTHER; do echo $(bay_in $(vm_dev $disk)) $disk; done | sort -n)
        bay=$1 old=$2 new=$4
        dd if=/dev/zero of=$(vm_dev $new) bs=1M oflag=direct status=none 2>/dev/null || true
        vm_do unplug $new; vm_wait_gone $new
        start
        plexum create -y --force nas --level 1 --assume-clean $(vm_dev STAYS) $(vm_dev $old) >/dev/null
        exits 0 plexum serve $(vm_dev STAYS) $(vm_dev $old); random data 16; nbdcopy data "$(uri)"
        vm_do unplug $old; vm_wait_gone $old; vm_do plug $new; vm_wait_dev $new >/dev/null
        is "its bay" "$(bay_in $(vm_dev $new))" $bay
        vm_wait 30 is_whole || { cat out; die "the new disk is not taken"; }
        says $new; plexum events nas >out; says "serial $new), which is blank, takes slot 1"
        plexum scrub nas --wait >/dev/null; exits 0 plexum status nas --json; says '"mismatch_bytes":0'
        exits 0 plexum stop nas; kill -TERM $DAEMON; gone $DAEMON
    "#

    a_volume_becomes_a_device_with_its_size_and_shape r#"
        new 5 16M a b c
        serve a b c --ublk; says "$DEV"
        [ -b $DEV ] || die "no device"
        is size $(blockdev --getsize64 $DEV) $(plexum status nas --json | sed 's/.*"size_bytes":\([0-9]*\).*/\1/')
        is write_cache "$(queue write_cache)" "write back"
        is fua $(queue fua) 1
        is minimum_io_size $(queue minimum_io_size) 524288
        is optimal_io_size $(queue optimal_io_size) 1048576
        is rotational $(queue rotational) 0
        [ $(queue discard_max_bytes) != 0 ] || die "no discards"
        exits 0 plexum status nas; says "$DEV   (0 clients)"
        exits 6 plexum serve a b c --ublk
        exits 0 plexum stop nas; nothing_left
        serve a b c --ublk --read-only
        is ro $(blockdev --getro $DEV) 1
        exits 0 plexum stop nas; nothing_left
    "#

    file_systems_live_on_a_device r#"
        new 1 320M a b
        serve a b --ublk; mkdir m; random data 64
        for kind in ext4 xfs; do
          wipefs -qa $DEV; mkfs.$kind -q $DEV
          mount $DEV m; cp data m; mkdir m/d; sync; rm -r m/d; fstrim m; umount m
          mount $DEV m; cmp data m/data; umount m
        done
        xfs_repair -n $DEV >/dev/null 2>&1 || die "xfs_repair finds something"
        exits 0 plexum stop nas; nothing_left
    "#

    a_server_that_is_told_to_end_leaves_a_mounted_device_to_the_next r#"
        new 1 24M a b
        serve a b --ublk; mkfs.ext4 -q $DEV; mkdir m; mount $DEV m; random m/data 16; sum=$(sha256sum <m/data)
        for round in $(seq $KILLS); do
          { cp m/data m/before; sync m/before; } & before=$! # which the device has under way then
          kill -TERM $SERVER; gone $SERVER
          [ -b $DEV ] || die "the device is gone"
          { cp m/data m/other; sync m/other; } & writer=$!
          serve a b; wait $before || die "round $round: the first writer failed"
          wait $writer || die "round $round: the writer failed"
          is data "$(sha256sum <m/other)" "$sum"
        done
        exits 0 plexum status nas; says "$DEV   (1 client)"
        umount m
        kill -TERM $SERVER; gone $SERVER; nothing_left
    "#

    what_a_dead_server_has_left_is_removed_when_nobody_uses_it r#"
        new 1 24M a b
        serve a b --ublk; mkfs.ext4 -q $DEV; mkdir m; mount $DEV m
        kill_server
        exits 6 plexum stop nas; says "its requests wait for the next one"
        exits 6 plexum detach nas
        exits 0 plexum stop --force nas; umount m; nothing_left
        serve a b --ublk; kill_server
        exits 0 plexum detach nas --dry-run; [ -b $DEV ] || die "a dry run has removed it"
        exits 0 plexum detach nas; nothing_left
        serve a b; exits 0 plexum stop nas
    "#

    a_disk_whose_last_requests_fail_while_it_is_pulled_is_taken_back_as_well r#"
        start
        plexum create -y --force nas --level 1 --assume-clean $(vm_dev STAYS) $(vm_dev SCSI) >/dev/null
        exits 0 plexum serve $(vm_dev STAYS) $(vm_dev SCSI); random data 16
        while [ ! -e quiet ]; do nbdcopy --flush data "$(uri)" || touch failed; done & writer=$!
        vm_do fail SCSI write
        vm_wait 30 has_failed || { cat out; die "it has not failed"; }
        ! is_gone_from nas || die "it is there"
        vm_do heal SCSI; vm_do unplug SCSI; vm_wait_gone SCSI
        vm_wait 30 is_gone_from nas || { cat out; die "it is not known as gone"; }
        vm_do plug SCSI; vm_wait_dev SCSI >/dev/null
        touch quiet; wait $writer; [ ! -e failed ] || die "a write failed"
        vm_wait 30 is_whole || { cat out; die "not taken back"; }
        plexum scrub nas --wait >/dev/null; exits 0 plexum status nas --json; says '"mismatch_bytes":0'
        exits 0 plexum stop nas; kill -TERM $DAEMON; gone $DAEMON
    "#
}

cases! { NEWEST:
    a_device_grows_with_its_volume_while_it_is_mounted r#"
        exits 0 plexum pool create tank mirror --member-size 96M a b
        exits 0 plexum pool create-volume tank/vol 16M a b
        serve --write --name nas --dataset tank/vol a b --ublk
        mkfs.ext4 -q $DEV; mkdir m; mount $DEV m; random data 64; cp data m; sync
        exits 0 plexum pool resize tank/vol 48M
        vm_wait 20 has_size 50331648 || die "the device has not grown"
        exits 0 plexum events nas; says "has 50331648 bytes now"
        resize2fs $DEV >out 2>&1 || { cat out; exit 1; }
        random data 512; cp data m/large; sync; echo 3 >/proc/sys/vm/drop_caches; cmp data m/large
        # Grown while no server was there.
        kill_server; exits 0 plexum pool resize tank/vol 56M a b
        serve --write --name nas --dataset tank/vol a b
        vm_wait 20 has_size 58720256 || die "the device has not grown after the take-over"
        umount m; e2fsck -fn $DEV >fsck.txt 2>&1 || { cat fsck.txt; exit 1; }
        exits 0 plexum stop nas; nothing_left
        exits 0 plexum pool check a b
        new 1 24M c d; serve c d --ublk
        exits 0 plexum grow nas --size 16M --yes --force
        vm_wait 20 has_size 16777216 || die "the device of an array keeps its size"
        exits 0 plexum stop nas; nothing_left
    "#
}

/// Functions of single cases.
const MORE: &str = r#"
idle() { ! plexum status nas | grep -qE "resync|rebuild"; }
daemon_answers() { [ -S $XDG_RUNTIME_DIR/plexum/daemon.socket ] && plexum status >/dev/null 2>&1 || [ $? = 7 ]; }
start() { plexum daemon >daemon.txt 2>&1 & DAEMON=$!; vm_wait 20 daemon_answers || { cat daemon.txt; exit 1; }; }
# configure TABLES: with alarms at once, and a page that shows everything
configure() {
  export XDG_CONFIG_HOME=/tmp/case/config; mkdir -p config/plexum
  printf '%s\n' "[page]" 'listen = "127.0.0.1:9838"' 'without-token = "view"' "[alarm]" 'hold = "0s"' 'quiet = "0s"' "$@" \
    >config/plexum/plexum.toml
  exits 0 plexum config check
}
uri() { echo "nbd+unix:///nas?socket=$XDG_RUNTIME_DIR/plexum/nas.nbd"; }
told() { grep -q "^$1" messages; }
has_failed() { ! plexum status nas >out && grep -q "missing (was " out; }
is_gone_from() { ! plexum status $1 >out && grep -q "missing (was .*: the device is gone" out; }
is_whole() { plexum status nas >out && grep -q "^nas  *OK" out; }
# bay_in DEVICE: the number of the PCI slot that it is in
bay_in() { grep -l "$(readlink -f /sys/class/block/${1#/dev/} | grep -o '0000:00:[0-9a-f]*' | tail -n 1)" \
  /sys/bus/pci/slots/*/address | sed 's#.*/slots/##; s#/.*##'; }
has_size() { [ $(blockdev --getsize64 $DEV) = $1 ]; }
has_device() { plexum status nas 2>/dev/null | grep -qF "$DEV "; }
"#;

/// Where a guest has left what came of its cases.
type Guest = LazyLock<tempfile::TempDir>;

static DAILY: Guest = LazyLock::new(|| guest("13", &[CASES, nvme::CASES]));
static NIGHTLY: Guest = LazyLock::new(|| {
    guest(
        "13",
        &[NIGHTLY_CASES, nvme::NIGHTLY_CASES, zfs::NIGHTLY_CASES],
    )
});
static NEWEST: Guest = LazyLock::new(|| guest("bpo", &[NEWEST_CASES]));

fn guest(kernel: &str, cases: &[&[(&str, &str)]]) -> tempfile::TempDir {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let plexum = Path::new(env!("CARGO_BIN_EXE_plexum"));
    let folder = tempfile::tempdir().unwrap();
    let word = |name: &str, other: &str| std::env::var(name).unwrap_or_else(|_| other.to_owned());
    let mut script = format!(
        "KILLS={}\n{FUNCTIONS}\n{MORE}\n{}\n{}\n",
        word("PLEXUM_KILLS", KILLS),
        nvme::MORE,
        zfs::MORE
    );
    for (name, body) in cases.iter().copied().flatten() {
        script.push_str(&format!("{name}() {{\n{body}\n}}\nrun {name}\n"));
    }
    let path: PathBuf = folder.path().join("script");
    std::fs::write(&path, script).unwrap();
    let output = Command::new(root.join("oracle/vm-oracle"))
        .args(["run", "--kernel", kernel])
        .args(["--module", "ublk_drv", "--mem", "1536M"])
        .args(["--timeout", &word("PLEXUM_GUEST_S", GUEST_S)])
        .args(DISKS.iter().flat_map(|disk| ["--disk", disk]))
        .arg("--out")
        .arg(folder.path())
        .arg("--with")
        .arg(plexum)
        .arg(&path)
        .current_dir(folder.path())
        .output()
        .unwrap();
    print!("{}", String::from_utf8_lossy(&output.stdout));
    let text = String::from_utf8_lossy(&output.stderr);
    // Some cases may have ended before the guest did.
    std::fs::write(folder.path().join("guest.text"), &*text).unwrap();
    folder
}

fn check(guest: &Guest, name: &str) {
    let read = |file: &str| std::fs::read_to_string(guest.path().join(file));
    let code = read(&format!("{name}.code"));
    let text = read(&format!("{name}.text")).or_else(|_| read("guest.text"));
    assert_eq!(
        code.unwrap_or_default().trim(),
        "0",
        "{}",
        text.unwrap_or_default()
    );
}
