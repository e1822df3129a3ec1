//! Devices of the real kernel's nbd, made by `plexum attach`: in User Mode Linux, where plexum itself runs.
//!
//! One guest for all of them, since a boot costs seconds: each case is a script, and its test looks what came of it.

use std::path::Path;
use std::sync::LazyLock;

use plexum_oracle::{Batch, Folder, Job, Report};

/// What the scripts have in common. A case runs in a subshell in an empty folder; `set -e` ends it.
const FUNCTIONS: &str = r##"
export XDG_RUNTIME_DIR=/tmp/runtime; mkdir -p -m 700 $XDG_RUNTIME_DIR
plexum() { "$PLEXUM" "$@"; }
die() { echo "$*"; exit 1; }
# exits CODE WORDS...: runs the command, which must end so; what it says is in the files out and err
exits() {
  local want=$1 code=0; shift
  "$@" >out 2>err || code=$?
  [ $code = $want ] || { echo "exit code $code of: $*"; cat out err; exit 1; }
}
says() { grep -qF -- "$1" out err || { echo "does not say: $1"; cat out err; exit 1; }; }
# serve WORDS...: serves until it is killed; $SERVER is its process
serve() {
  rm -f ready; mkfifo ready
  "$PLEXUM" serve "$@" >ready 2>>serve.err &
  SERVER=$!
  exec 9<ready
  read -r line <&9 || { cat serve.err; exit 1; }
  echo $SERVER >/tmp/server
}
new() { plexum create nas --level 1 --member-size 24M a b >/dev/null; serve a b; }
attach() { exits 0 plexum attach nas "$@"; DEV=$(cat out); [ -b "$DEV" ] || die "$DEV is no device"; }
detach() { exits 0 plexum detach nas; nothing_left; }
nothing_left() {
  local left=$(ls $XDG_RUNTIME_DIR/plexum/attach 2>/dev/null || :)
  [ -z "$left" ] || die "left: $left"
  for f in /sys/block/nbd*/pid; do [ ! -e $f ] || die "left: $f"; done
  ! grep -E "nbd|plexum" /proc/mounts || die "still mounted"
}
keeper() { sed 's/.*"pid":\([0-9]*\).*/\1/' $XDG_RUNTIME_DIR/plexum/attach/nas.json; }
kill_server() { kill -KILL $SERVER; wait $SERVER 2>/dev/null || :; }
put_data() { dd if=data of=$DEV bs=64K oflag=direct conv=notrunc status=none "$@"; }
same() { dd if=$DEV bs=64K iflag=direct status=none count=$(($(stat -c %s data) / 65536)) | cmp - data; }
random() { dd if=/dev/urandom of=data bs=64K count=$1 status=none; }
ended() {
  set +e
  plexum detach nas >/dev/null 2>&1
  kill -KILL $(cat /tmp/server) 2>/dev/null
  for f in /sys/block/nbd*/pid; do
    [ -e $f ] && { f=${f#/sys/block/}; nbd-client -d /dev/${f%/pid} >/dev/null 2>&1; }
  done
}
# run NAME: the case of that name
run() {
  rm -rf /tmp/case; mkdir /tmp/case; cd /tmp/case
  ( set -e; trap ended EXIT; "$1" ) >"$OUT/case.$1" 2>&1 </dev/null
  put "$1" $?
  put "$1.text" "$(tail -n 20 "$OUT/case.$1" | tr '\n\t' '| ')"
}
"##;

/// A test for each case, and the list of all.
macro_rules! cases {
    ($($(#[$doc:meta])* $name:ident $script:literal)*) => {
        const CASES: &[(&str, &str)] = &[$((stringify!($name), $script)),*];
        $($(#[$doc])* #[test] fn $name() { check(stringify!($name)); })*
    };
}

cases! {
    /// The first: the module is not loaded yet.
    without_nbd_in_the_kernel_it_is_fuse_and_says_why r#"
        new
        exits 5 plexum attach nas --by nbd; says "modprobe nbd"; says "plexum attach --by fuse"
        nothing_left
        attach; case $DEV in /dev/loop*) ;; *) die "$DEV" ;; esac
        says "by FUSE and a loop device: the kernel has no nbd here"
        detach
        /run/modprobe nbd nbds_max=2
    "#

    a_volume_becomes_a_device_of_the_kernels_nbd_and_it_is_said r#"
        new
        exits 0 plexum attach nas --dry-run; says "would attach nas by the kernel's nbd"; nothing_left
        attach; [ $DEV = /dev/nbd0 ] || die "$DEV"
        says "by the kernel's nbd, over 4 connections"
        exits 0 plexum status nas; says "attached: /dev/nbd0, by the kernel's nbd"
        exits 0 plexum status nas --json
        says '"by":"nbd"'; says '"device":"/dev/nbd0"'; says '"clients":4'
        says "\"size_bytes\":$(blockdev --getsize64 $DEV)"
        [ $(blockdev --getss $DEV) = 512 ] || die "sectors of $(blockdev --getss $DEV)"
        exits 6 plexum attach nas; says "attached already"
        detach
        exits 0 plexum attach nas --json --connections 1
        says '"by":"nbd"'; says '"connections":1'; says '"why":null'
        exits 0 plexum status nas --json; says '"clients":1'
        exits 0 plexum detach /dev/nbd0; nothing_left
    "#

    what_is_written_by_nbd_is_read_by_fuse_and_the_other_way_round r#"
        new; random 64
        attach --connections 3; put_data; same; detach
        attach --by fuse; case $DEV in /dev/loop*) ;; *) die "$DEV" ;; esac
        same; random 64; put_data conv=fsync; detach
        attach; same; detach
    "#

    a_file_system_lives_on_it_and_the_other_device_is_free_for_others r#"
        new; mkdir mnt
        attach; mkfs.ext4 -q $DEV; detach
        attach mnt; random 40; cp data mnt/one; sync mnt/one
        exits 0 plexum status nas; says "attached: /dev/nbd0, mounted at $PWD/mnt, by the kernel's nbd"
        nbd-client -unix $XDG_RUNTIME_DIR/plexum/nas.nbd -name nas -R /dev/nbd1 >/dev/null 2>&1 || die "nbd-client"
        exits 0 plexum detach mnt
        [ -e /sys/block/nbd1/pid ] || die "the device of somebody else is gone"
        nbd-client -d /dev/nbd1 >/dev/null; nothing_left
        attach; e2fsck -fn $DEV >/dev/null 2>&1 || die "e2fsck"; detach
        attach mnt; cmp mnt/one data; detach
    "#

    detach_is_refused_while_it_is_used_and_nothing_is_lost r#"
        new; mkdir mnt
        attach; mkfs.ext4 -q $DEV
        mount $DEV mnt
        exits 6 plexum detach nas --dry-run; says "umount"
        exits 6 plexum detach nas; says "/dev/nbd0 is mounted at $PWD/mnt"; says "umount"
        echo works >mnt/file; umount mnt
        exec 7<$DEV
        exits 6 plexum detach nas; says "has it open"
        dd bs=4096 count=1 status=none <&7 >/dev/null
        exec 7<&-
        detach
        attach mnt; grep -q works mnt/file
        exec 7<mnt/file
        exits 6 plexum detach nas; says "cannot be released"; says "fuser"
        exec 7<&-; detach
    "#

    a_partition_in_use_keeps_its_device r#"
        new; mkdir mnt
        attach
        printf '\0\0\0\0\203\0\0\0\0\010\0\0\0\100\0\0' | dd of=$DEV bs=1 seek=446 conv=notrunc status=none
        printf '\125\252' | dd of=$DEV bs=1 seek=510 conv=notrunc status=none
        detach
        attach; [ -b ${DEV}p1 ] || blockdev --rereadpt $DEV
        mkfs.ext4 -q ${DEV}p1; mount ${DEV}p1 mnt
        exits 6 plexum detach nas; says "/dev/nbd0p1 is mounted at"
        umount mnt; detach
    "#

    requests_wait_for_a_server_that_was_killed_and_go_on r#"
        new; random 32
        attach --reconnect 600 --timeout 2; put_data; same
        for round in 1 2 3; do
          kill_server
          random 32; put_data & writer=$!
          serve a b
          wait $writer || die "round $round: the writer failed"
          same
        done
        exits 0 plexum status nas --json; says '"clients":4'
        grep -q "the server is back" $XDG_RUNTIME_DIR/plexum/attach/nas.log
        detach
    "#

    a_request_that_the_server_took_with_it_is_sent_again r#"
        new; random 1
        attach --reconnect 600 --timeout 2 --connections 2; put_data; same
        random 1
        kill -STOP $SERVER
        put_data & writer=$!
        tries=0; writes=0
        until [ $writes != 0 ]; do
          tries=$((tries+1)); [ $tries -lt 10000 ] || die "no request under way"
          read -r reads writes </sys/block/nbd0/inflight
        done
        kill_server
        serve a b
        wait $writer || die "the writer failed"
        same
        detach
    "#

    requests_fail_when_it_does_not_come_back_and_succeed_once_it_does r#"
        new; random 1
        attach --reconnect 1 --timeout 1; put_data; same
        kill_server
        ! put_data || die "written without a server"
        ! same || die "read without a server"
        serve a b
        tries=0
        until put_data 2>/dev/null; do tries=$((tries+1)); [ $tries -lt 200 ] || die "the device is dead"; sleep 0.1; done
        same; detach
    "#

    requests_that_wait_never_go_to_another_array_of_that_name r#"
        new; plexum create nas --level 1 --member-size 24M c d >/dev/null
        random 1; cp data first
        attach --reconnect 2 --timeout 1; put_data
        kill_server; serve c d
        random 1
        ! put_data 2>/dev/null || die "written to another array"
        exits 0 nbdcopy "nbd+unix:///nas?socket=$XDG_RUNTIME_DIR/plexum/nas.nbd" other
        cmp -n 65536 other /dev/zero
        kill_server; serve a b
        cp first data
        tries=0
        until same >/dev/null 2>&1; do tries=$((tries+1)); [ $tries -lt 200 ] || die "the device is dead"; sleep 0.1; done
        detach
    "#

    the_device_works_without_its_process_and_detach_still_undoes_it r#"
        new; random 8
        attach; put_data
        kill -KILL $(keeper)
        same; random 8; put_data; same
        exits 0 plexum status nas; says "/dev/nbd0, by the kernel's nbd; its process has ended"
        exits 6 plexum stop nas; says "nas is attached: /dev/nbd0"
        detach
        attach; same; detach
    "#

    detach_leaves_a_device_alone_that_is_somebody_elses_by_now r#"
        new
        attach; kill -KILL $(keeper)
        nbd-client -d $DEV >/dev/null
        nbd-client -unix $XDG_RUNTIME_DIR/plexum/nas.nbd -name nas -R $DEV >/dev/null 2>&1 || die "nbd-client"
        exits 0 plexum detach nas
        [ -e /sys/block/nbd0/pid ] || die "the device of somebody else is gone"
        [ -z "$(ls $XDG_RUNTIME_DIR/plexum/attach)" ] || die "something is left"
        nbd-client -d $DEV >/dev/null
        # One that was disconnected by hand is no attachment any more; its process ends by itself.
        attach; process=$(keeper); nbd-client -d $DEV >/dev/null
        detach; [ ! -e /proc/$process ] || die "process $process runs"
    "#

    stop_is_refused_while_it_is_attached r#"
        new; mkdir mnt
        attach; mkfs.ext4 -q $DEV; detach
        attach mnt --reconnect 1 --timeout 1
        exits 6 plexum stop nas
        says "/dev/nbd0, mounted at $PWD/mnt"; says "plexum detach nas"; says "plexum stop --force nas"
        echo on >mnt/file; sync mnt/file
        exits 0 plexum stop --force nas
        exits 0 plexum detach nas; nothing_left
    "#

    flushes_and_writes_through_reach_the_volume r#"
        new; random 1
        attach
        [ "$(cat /sys/block/nbd0/queue/write_cache)" = "write back" ] || die "no cache is told"
        [ "$(cat /sys/block/nbd0/queue/fua)" = 1 ] || die "no FUA"
        flushes() { plexum stats nas --json | sed 's/.*"total":{\([^}]*\)}.*/\1/; s/.*"flushes":\([0-9]*\).*/\1/'; }
        before=$(flushes)
        put_data conv=fsync
        after=$(flushes)
        [ $after -gt $before ] || die "flushes: $before, then $after"
        detach
    "#

    trimmed_and_zeroed_ranges_read_as_zeroes r#"
        new; random 16
        attach; put_data
        [ $(cat /sys/block/nbd0/queue/discard_max_bytes) -gt 0 ] || die "no trim"
        blkdiscard -o 65536 -l 131072 $DEV
        blkdiscard -z -o 524288 -l 4096 $DEV
        dd if=/dev/zero of=data bs=64K seek=1 count=2 conv=notrunc status=none
        dd if=/dev/zero of=data bs=4K seek=128 count=1 conv=notrunc status=none
        same; detach
    "#

    a_read_only_volume_becomes_a_read_only_device r#"
        new; mkdir mnt
        attach; mkfs.ext4 -q $DEV; detach
        exits 0 plexum stop nas
        serve --read-only a b
        attach mnt
        [ $(blockdev --getro $DEV) = 1 ] || die "it can be written"
        ! touch mnt/file 2>/dev/null || die "written"
        random 1; ! put_data 2>/dev/null || die "written"
        detach
    "#

    wrong_words_are_usage_errors_and_leave_nothing r#"
        new
        for words in "--by floppy" "--by" "--connections 0" "--connections 17" "--connections x" "--timeout 0" \
          "--by fuse --connections 2" "--by fuse --timeout 5" "--reconnect -1"; do
          exits 2 plexum attach nas $words
        done
        exits 2 plexum attach --dataset tank/fs --by nbd . a
        nothing_left
    "#

    /// As in a container: the kernel makes the device, and nobody the file.
    without_the_devices_file_it_is_fuse_and_says_why r#"
        new
        rm /dev/nbd0 /dev/nbd1
        exits 5 plexum attach nas --by nbd; says "there is no /dev/nbd0 here"
        nothing_left
        attach; case $DEV in /dev/loop*) ;; *) die "$DEV" ;; esac
        says "by FUSE and a loop device: there is no /dev/nbd0 here"
        detach
        mknod /dev/nbd0 b 43 0; mknod /dev/nbd1 b 43 16
    "#
}

/// What came of all cases.
static REPORT: LazyLock<Report> = LazyLock::new(|| {
    let folder = Folder::new("nbd").unwrap();
    let members = folder.members(1, 1 << 20).unwrap();
    let plexum = Path::new(env!("CARGO_BIN_EXE_plexum"))
        .canonicalize()
        .unwrap();
    let mut script = format!(
        "PLEXUM=/run/host{}\n{FUNCTIONS}\nfor m in fuse loop; do /run/modprobe $m; done\n",
        plexum.display()
    );
    for (name, body) in CASES {
        script.push_str(&format!("{name}() {{\n{body}\n}}\nrun {name}\n"));
    }
    let mut batch = Batch::new();
    batch.add(Job::script("nbd", &members, &script).with_limit(540));
    batch.run_faultless().remove(0)
});

fn check(name: &str) {
    let report = &*REPORT;
    let text = report.value(&format!("{name}.text")).replace('|', "\n");
    assert_eq!(report.value(name), "0", "{text}");
}
