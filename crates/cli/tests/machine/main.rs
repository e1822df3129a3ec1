//! Volumes as disks of virtual machines (`serve --vhost-user`): QEMU's own front end with a real kernel behind it, User
//! Mode Linux's, and sockets by hand.
//!
//! One guest of QEMU for all of its cases, since a boot costs seconds: each case is a script, and its test looks what
//! came of it.
#![allow(clippy::unwrap_used)] // a failed unwrap fails the test

#[path = "../common/mod.rs"]
mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use common::Place;

/// Kills of a server under load; `PLEXUM_KILLS` has another number for a long run.
const KILLS: &str = "3";
/// Most that a guest may take, in seconds; a long run sets `PLEXUM_GUEST_S`.
const GUEST_S: &str = "900";

fn word(name: &str, other: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| other.to_owned())
}

fn oracle(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracle");
    folder.canonicalize().unwrap().join(name)
}

/// A volume that is served in the background, until this is dropped.
struct Volume {
    place: Place,
    /// What is said to `serve`.
    words: &'static str,
}

/// Kills the server that there is, and starts it again: `again` is run by guests. The kernel may keep the locks of a
/// dead server for a moment.
const AGAIN: &str = r#"#!/bin/bash
pid() { plexum status nas --json | sed 's/.*"server_pid":\([0-9]*\).*/\1/'; }
server=$(pid); kill -KILL $server; while kill -0 $server 2>/dev/null; do :; done
for try in $(seq 50); do
  plexum serve a b c --alone --background --vhost-user v.sock >>again.text 2>&1 && exit 0
done
exit 1
"#;

/// What is done while the machine runs.
const GROW: &str =
    "plexum status nas >status.text; plexum stop nas >stop.text 2>&1; echo $? >stop.code
truncate -s 24M d; plexum grow nas --add d -y --wait >grow.text 2>&1
";

impl Volume {
    fn new(name: &str) -> Self {
        let made = ["create -y nas --level 5 --member-size 24M --assume-clean a b c"];
        Self::made(name, &made, "a b c --alone")
    }

    /// One of a ZFS pool.
    fn of_pool(name: &str) -> Self {
        let made = [
            "pool create tank raidz1 --member-size 96M a b c",
            "pool create-volume tank/vol 40M a b c",
        ];
        let words = "--write --name nas --dataset tank/vol a b c";
        Self::made(name, &made, words)
    }

    fn made(name: &str, made: &[&str], words: &'static str) -> Self {
        let place = Place::new(name);
        for words in made {
            common::ok(&place, words);
        }
        let volume = Self { place, words };
        volume.serve();
        volume
    }

    fn serve(&self) {
        let words = format!("serve {} --background --vhost-user v.sock", self.words);
        common::ok(&self.place, &words);
    }

    fn pid(&self) -> String {
        let status = self.place.plexum("status nas --json").objects().remove(0);
        status["server_pid"].to_string()
    }

    fn kill(&self) {
        let pid = self.pid();
        let killed = self.place.tool("kill", &format!("-KILL {pid}"));
        assert_eq!(killed.exit, 0, "{}", killed.err);
        while Path::new("/proc").join(&pid).exists() {
            std::thread::yield_now();
        }
    }

    /// One of the oracles, with plexum in its reach.
    fn oracle(&self, name: &str) -> Command {
        let own = Path::new(env!("CARGO_BIN_EXE_plexum")).parent().unwrap();
        let others = std::env::var_os("PATH").unwrap_or_default();
        let all = std::iter::once(own.to_owned()).chain(std::env::split_paths(&others));
        let mut command = self.place.command(oracle(name));
        command.env("PATH", std::env::join_paths(all).unwrap());
        command
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = self.place.plexum("stop nas --force");
    }
}

/// A test for each case, and the list of all.
macro_rules! cases {
    ($($name:ident $script:literal)*) => {
        const CASES: &[(&str, &str)] = &[$((stringify!($name), $script)),*];
        $(#[test] fn $name() { check(stringify!($name)); })*
    };
}

cases! {
    a_machine_sees_the_volumes_size_shape_and_name r#"
        is size $(blockdev --getsize64 $DEV) 46137344
        is write_cache "$(queue write_cache)" "write back"
        is minimum_io_size $(queue minimum_io_size) 524288
        is optimal_io_size $(queue optimal_io_size) 1048576
        is physical_block_size $(queue physical_block_size) 4096
        is serial "$(cat /sys/block/vda/serial)" nas
        is queues $(ls /sys/block/vda/mq | wc -l) 2
        [ $(queue discard_max_bytes) != 0 ] || die "no discards"
        [ $(queue write_zeroes_max_bytes) != 0 ] || die "no zeroes"
    "#

    what_a_machine_writes_it_reads_again r#"
        dd if=/dev/urandom of=data bs=64K count=128 status=none
        dd if=data of=$DEV bs=256K oflag=direct status=none
        blkdiscard -z -o 1M -l 2M $DEV; dd if=/dev/zero of=data bs=1M seek=1 count=2 conv=notrunc status=none
        blkdiscard -o 12M -l 2M $DEV
        dd if=$DEV bs=64K count=128 iflag=direct status=none | cmp - data
        fio --name=v --filename=$DEV --ioengine=libaio --direct=1 --rw=randrw --bsrange=512-64k --bs_unaligned=0 \
          --iodepth=16 --size=16M --io_size=2M --offset=8M --verify=crc32c --verify_fatal=1 --fsync=32 --randseed=7 \
          --output=fio.txt || { cat fio.txt; exit 1; }
        wipefs -qa $DEV; mkfs.ext4 -q $DEV; mkdir m
        mount $DEV m; cp data m; sync; fstrim m; umount m
        mount $DEV m; cmp data m/data; umount m; e2fsck -fn $DEV >/dev/null 2>&1 || die "e2fsck finds something"
    "#

    a_server_that_is_killed_under_a_machine_is_followed_by_another_and_nothing_is_lost r#"
        while [ ! -e stop ]; do
          fio --name=w --filename=$DEV --ioengine=libaio --direct=1 --rw=randwrite --bsrange=4k-32k --iodepth=16 \
            --size=16M --io_size=3M --verify=crc32c --verify_fatal=1 --do_verify=1 --output=fio.txt ||
            { touch failed; break; }
        done & load=$!
        for round in $(seq $KILLS); do
          tries=0
          until read -r reads writes </sys/block/vda/inflight && [ $((reads + writes)) != 0 ]; do
            tries=$((tries + 1)); [ $tries -lt 20000 ] || die "no request under way"
          done
          vm_mark again
          dd if=/dev/urandom of=of-$((round % 8)) bs=64K count=8 status=none
          dd if=of-$((round % 8)) of=$DEV bs=64K seek=$((320 + round % 8 * 8)) oflag=direct conv=fsync status=none
          [ ! -e failed ] || { cat fio.txt; die "round $round: fio found something"; }
        done
        touch stop; wait $load; [ ! -e failed ] || { cat fio.txt; die "fio found something"; }
        for copy in of-*; do
          dd if=$DEV bs=64K skip=$((320 + ${copy#of-} * 8)) count=8 iflag=direct status=none | cmp - $copy
        done
    "#

    a_machine_sees_that_its_volume_grows r#"
        vm_mark grow
        grown() { [ $(blockdev --getsize64 $DEV) = 69206016 ]; }
        vm_wait 60 grown || die "$(blockdev --getsize64 $DEV) bytes"
        dd if=/dev/urandom of=data bs=64K count=8 status=none
        dd if=data of=$DEV bs=64K seek=1000 oflag=direct status=none
        dd if=$DEV bs=64K skip=1000 count=8 iflag=direct status=none | cmp - data
    "#
}

/// What the cases have in common.
const FUNCTIONS: &str = r#"
export PATH=$PATH:/usr/sbin:/sbin
DEV=/dev/vda
die() { echo "$*"; exit 1; }
is() { [ "$2" = "$3" ] || die "$1 is $2 and not $3"; }
queue() { cat /sys/block/vda/queue/$1; }
run() {
  local began=$SECONDS code=0
  rm -rf /tmp/case; mkdir /tmp/case; cd /tmp/case
  ( set -e; "$1" ) >"$OUT/$1.text" 2>&1 </dev/null || code=$?
  echo $code >"$OUT/$1.code"
  echo "$1: $code, $((SECONDS - began)) s"
}
"#;

/// What came of all cases.
struct Outcome {
    volume: Volume,
    /// What the guest has said.
    said: String,
    /// What a scrub has found after it.
    scrubbed: String,
}

static RUN: LazyLock<Outcome> = LazyLock::new(|| {
    let volume = Volume::new("machine");
    let mut script = format!("KILLS={}\n{FUNCTIONS}\n", word("PLEXUM_KILLS", KILLS));
    for (name, body) in CASES {
        script.push_str(&format!("{name}() {{\n{body}\n}}\nrun {name}\n"));
    }
    std::fs::write(volume.place.file("script"), script).unwrap();
    std::fs::write(volume.place.file("again"), AGAIN).unwrap();
    let socket = format!(
        "v={}:reconnect=1,queues=2",
        volume.place.file("v.sock").display()
    );
    let limit = word("PLEXUM_GUEST_S", GUEST_S);
    std::fs::write(volume.place.file("grow"), GROW).unwrap();
    let output = volume
        .oracle("vm-oracle")
        .args([
            "run",
            "--kernel",
            "13",
            "--mem",
            "768M",
            "--vhost-user",
            &socket,
        ])
        .args(["--timeout", &limit, "--out", "out"])
        .args([
            "--on",
            "again",
            "sh bash ./again",
            "--on",
            "grow",
            "sh bash ./grow",
        ])
        .arg("script")
        .output()
        .unwrap();
    print!("{}", String::from_utf8_lossy(&output.stdout));
    let scrubbed = volume.place.plexum("scrub nas --wait");
    common::ok(&volume.place, "stop nas"); // nothing drops what is static
    Outcome {
        volume,
        said: String::from_utf8_lossy(&output.stderr).into_owned(),
        scrubbed: scrubbed.out,
    }
});

fn check(name: &str) {
    let Outcome { volume, said, .. } = &*RUN;
    let place = &volume.place;
    let read = |file: String| std::fs::read_to_string(place.file("out").join(file));
    let code = read(format!("{name}.code")).unwrap_or_default();
    let text = read(format!("{name}.text")).unwrap_or_else(|_| said.clone());
    let again = std::fs::read_to_string(place.file("again.text")).unwrap_or_default();
    assert_eq!(code.trim(), "0", "{text}\n{again}");
}

#[test]
fn a_machine_is_a_client_that_status_shows_and_stop_asks_for() {
    let Outcome {
        volume,
        said,
        scrubbed,
    } = &*RUN;
    let place = &volume.place;
    let read =
        |file: &str| std::fs::read_to_string(place.file(file)).unwrap_or_else(|_| said.clone());
    let status = read("status.text");
    assert!(status.contains("v.sock   (1 client)"), "{status}");
    assert_eq!(read("stop.code").trim(), "6", "{}", read("stop.text"));
    // The members agree with each other after all of the cases.
    assert!(scrubbed.contains("no differences"), "{scrubbed}");
}

/// What a guest of User Mode Linux writes first.
const WRITES: &str = r#"
set -e
dd if=/dev/urandom of=$OUT/data bs=64K count=64 status=none
dd if=$OUT/data of=/dev/vda bs=256K oflag=direct conv=fsync status=none
fio --name=v --filename=/dev/vda --ioengine=psync --direct=1 --rw=randrw --bsrange=4k-64k --size=16M --io_size=4M \
  --offset=8M --verify=crc32c --verify_fatal=1 --randseed=7 --output=/tmp/fio.txt || { cat /tmp/fio.txt; exit 1; }
dd if=/dev/vda bs=64K count=64 iflag=direct status=none | cmp - $OUT/data
echo may die
"#;

/// Then it waits until the file `dead` in that folder says that its server has died. Meanwhile it has no request under
/// way: User Mode Linux would wait for the answer without end.
fn waits(folder: &Path) -> String {
    let dead = format!("/run/host{}/dead", folder.display());
    format!(
        "for try in $(seq 600); do [ ! -e {dead} ] || break; sleep 0.1; done
         [ -e {dead} ] || exit 2
         dd if=/dev/vda of=/dev/null bs=64K count=1 iflag=direct status=none || exit 0
         echo 'it reads without a server'; exit 3"
    )
}

/// A guest of User Mode Linux with the volume as its disk.
fn guest(volume: &Volume, script: &str) -> Command {
    let socket = volume.place.file("v.sock");
    let words = ["--timeout", "120", "run", "--out", "kept", "--vhost-user"];
    let mut command = volume.oracle("md-oracle");
    command
        .args(words)
        .arg(socket)
        .arg(script)
        .stdout(Stdio::piped());
    command
}

/// A guest finds what an earlier one has written.
#[track_caller]
fn assert_written(volume: &Volume) {
    let compare = format!(
        "cmp -n 4194304 /dev/vda /run/host{}/kept/data",
        volume.place.folder.display()
    );
    std::fs::write(volume.place.file("second"), compare).unwrap();
    let second = guest(volume, "second").output().unwrap();
    let said = String::from_utf8_lossy(&second.stdout);
    assert_eq!(second.status.code(), Some(0), "{said}");
}

#[test]
fn user_mode_linux_reads_what_it_wrote_also_after_its_server_has_died() {
    let volume = Volume::new("uml");
    let script = format!("{WRITES}{}", waits(&volume.place.folder));
    std::fs::write(volume.place.file("first"), script).unwrap();
    let mut first = guest(&volume, "first").spawn().unwrap();
    let mut said = String::new();
    for line in BufReader::new(first.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if line == "may die" {
            volume.kill();
            std::fs::write(volume.place.file("dead"), "").unwrap();
        }
        said.push_str(&line);
    }
    assert_eq!(first.wait().unwrap().code(), Some(0), "{said}");
    assert!(said.contains("may die"), "{said}");
    volume.serve();
    assert_written(&volume);
}

#[test]
fn user_mode_linux_has_a_volume_of_a_zfs_pool_as_its_disk() {
    let volume = Volume::of_pool("uml-pool");
    std::fs::write(volume.place.file("first"), WRITES).unwrap();
    let first = guest(&volume, "first").output().unwrap();
    let said = String::from_utf8_lossy(&first.stdout);
    assert_eq!(first.status.code(), Some(0), "{said}");
    // The guest's last flush is in the intent log alone.
    volume.kill();
    volume.serve();
    assert_written(&volume);
    common::ok(&volume.place, "stop nas");
    assert!(!volume.place.file("v.sock").exists());
    for words in ["check", "scrub"] {
        common::ok(&volume.place, &format!("pool {words} a b c"));
    }
}

/// Asks for the features over a connection; `None` when it has been closed.
fn features(socket: &mut UnixStream) -> Option<u64> {
    socket
        .write_all(&[1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0])
        .ok()?;
    let mut answer = [0; 20];
    socket.read_exact(&mut answer).ok()?;
    Some(u64::from_le_bytes(answer[12..].try_into().unwrap()))
}

#[test]
fn a_second_machine_is_sent_away_as_long_as_the_first_one_is_there() {
    let volume = Volume::new("two-machines");
    let connect = || UnixStream::connect(volume.place.file("v.sock")).unwrap();
    let mut first = connect();
    let offered = features(&mut first).unwrap();
    assert_ne!(offered & 1 << 9, 0, "flushes are offered");
    assert_eq!(features(&mut connect()), None, "one is there");
    let events = common::ok(&volume.place, "events nas");
    assert!(events.contains("another machine has it"), "{events}");
    let status = common::ok(&volume.place, "status nas");
    assert!(status.contains("v.sock   (1 client)"), "{status}");
    let stopped = volume.place.plexum("stop nas");
    assert_eq!(stopped.exit, 6, "{}", stopped.out);
    drop(first);
    // Who comes while the first one goes waits for that.
    assert_eq!(features(&mut connect()), Some(offered));
}

#[test]
fn the_socket_is_free_after_a_crash_and_gone_after_a_stop() {
    let volume = Volume::new("socket");
    let socket = volume.place.file("v.sock");
    volume.kill();
    assert!(socket.exists(), "nobody has removed it");
    volume.serve();
    assert!(features(&mut UnixStream::connect(&socket).unwrap()).is_some());
    common::ok(
        &volume.place,
        "create -y other --level 1 --member-size 8M x y",
    );
    let taken = volume
        .place
        .plexum("serve x y --alone --background --vhost-user v.sock");
    assert_eq!(taken.exit, 6, "{}", taken.err);
    assert!(taken.err.contains("v.sock"), "{}", taken.err);
    common::ok(&volume.place, "stop nas --force");
    assert!(!socket.exists());
}

#[test]
fn a_daemon_lets_the_same_machine_in_at_its_next_start() {
    let place = Place::new("machine-daemon");
    common::ok(&place, "create -y nas --level 1 --member-size 8M a b");
    let start = || {
        let mut daemon = place
            .command(env!("CARGO_BIN_EXE_plexum"))
            .arg("daemon")
            .spawn()
            .unwrap();
        let socket = place.file("plexum").join("daemon.socket");
        while !socket.exists() {
            assert!(daemon.try_wait().unwrap().is_none(), "the daemon has ended");
            std::thread::yield_now();
        }
        daemon
    };
    let mut daemon = start();
    common::ok(&place, "serve a b --vhost-user v.sock");
    let socket = place.file("v.sock");
    let offered = features(&mut UnixStream::connect(&socket).unwrap());
    assert!(offered.is_some());
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    std::fs::remove_file(place.file("plexum").join("daemon.socket")).unwrap();
    let mut daemon = start();
    let again = || {
        UnixStream::connect(&socket)
            .ok()
            .and_then(|mut socket| features(&mut socket))
    };
    while again() != offered {
        assert!(daemon.try_wait().unwrap().is_none(), "the daemon has ended");
        std::thread::yield_now();
    }
    common::ok(&place, "stop nas --force");
    assert!(!socket.exists());
    daemon.kill().unwrap();
    daemon.wait().unwrap();
}
