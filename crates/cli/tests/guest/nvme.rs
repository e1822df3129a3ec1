//! Volumes over NVMe/TCP, with the kernel's own initiator and nvme-cli on the other side.

/// Functions of these cases. `connect WORDS...` attaches nas; `$DISK` is its device then. One killed server is enough
/// for a short run; a long one has as many as for ublk.
pub const MORE: &str = r#"
ROUNDS=$((KILLS > 3 ? KILLS : 1))
HOST=nqn.2014-08.org.nvmexpress:uuid:5a5a5a5a-0000-4000-8000-000000000001
AT="-t tcp -a 127.0.0.1 -s 4420 -q $HOST -I ${HOST##*:}"
nvme_is_there() { modprobe nvme-tcp; ip link set lo up; }
connect() {
  nvme_is_there
  SUBSYSTEM=$(plexum status nas --json | sed 's|.*nvme+tcp://[^/]*/\([^"]*\).*|\1|')
  exits 0 nvme connect $AT -n "$SUBSYSTEM" --reconnect-delay=1 --keep-alive-tmo=2 "$@"
  vm_wait 20 found || die "no disk"
}
found() {
  local file
  file=$(grep -ls "$SUBSYSTEM" /sys/class/nvme-subsystem/*/subsysnqn | head -n 1)
  DISK=/dev/$(ls "${file%/subsysnqn}" | grep -E '^nvme[0-9]+n[0-9]+$' | head -n 1); [ -b $DISK ]
}
disconnect() { exits 0 nvme disconnect -n "$SUBSYSTEM"; }
no_client() { ! plexum status nas | grep -qF "(1 client)"; }
grown() { [ $(blockdev --getsize64 $DISK) -gt $1 ]; }
disk_queue() { cat /sys/block/${DISK#/dev/}/queue/$1; }
fsck_finds_nothing() { e2fsck -fn $DISK >fsck.txt 2>&1 || { cat fsck.txt; exit 1; }; }
"#;

cases! {
    a_killed_server_is_followed_by_another_under_a_disk_over_nvme r#"
        new 5 12M a b c
        serve a b c --nvme 127.0.0.1:4420; connect
        mkfs.ext4 -q $DISK; mkdir m; mount $DISK m
        while [ ! -e stop ]; do
          fio --name=v --filename=m/load --ioengine=libaio --direct=1 --rw=randwrite --bsrange=4k-32k --iodepth=16 \
            --size=2M --verify=crc32c --verify_fatal=1 --do_verify=1 --output=fio.txt || { touch failed; break; }
        done & load=$!
        random data 16
        for round in $(seq $ROUNDS); do
          tries=0
          until read -r reads writes </sys/block/${DISK#/dev/}/inflight && [ $((reads + writes)) != 0 ]; do
            tries=$((tries + 1)); [ $tries -lt 20000 ] || die "no request under way"
          done
          kill_server
          { cp data m/of-$((round % 8)); sync m/of-$((round % 8)); } & writer=$!
          serve a b c --nvme 127.0.0.1:4420
          wait $writer || die "round $round: the writer failed"
          [ ! -e failed ] || { cat fio.txt; die "round $round: fio found something"; }
        done
        touch stop; wait $load; [ ! -e failed ] || { cat fio.txt; die "fio found something"; }
        echo 3 >/proc/sys/vm/drop_caches
        for copy in m/of-*; do cmp data $copy; done
        umount m; fsck_finds_nothing
        vm_wait 60 idle || die "the resync does not end"
        disconnect
        exits 0 plexum scrub nas --wait; exits 0 plexum status nas --json; says '"mismatch_bytes":0'
        exits 0 plexum stop nas
    "#
}

cases! { NIGHTLY:
    a_network_that_is_cut_costs_nvme_hosts_time_and_nothing_else r#"
        new 1 12M a b
        serve a b --nvme 127.0.0.1:4420; connect
        mkfs.ext4 -q $DISK; mkdir m; mount $DISK m; random data 16
        { for n in 1 2 3 4; do cp data m/of-$n; sync m/of-$n; done; } & writer=$!
        sleep 0.2; ip link set lo down
        vm_wait 60 no_client || die "the server keeps a silent host"
        ip link set lo up
        wait $writer || die "the writer failed"
        echo 3 >/proc/sys/vm/drop_caches
        for n in 1 2 3 4; do cmp data m/of-$n; done
        umount m; fsck_finds_nothing; disconnect; exits 0 plexum stop nas
    "#

    a_host_finds_a_volume_over_nvme_and_attaches_it r#"
        new 5 8M a b c
        exits 3 plexum serve a b c --nvme 0.0.0.0:4420; says insecure-listen
        serve a b c --nvme 127.0.0.1:4420 --allow-host $HOST
        nvme_is_there
        exits 0 nvme discover $AT; says "subnqn:  nqn.2014-08.org.nvmexpress:uuid:"; says "traddr:  127.0.0.1"
        if nvme discover ${AT/-q nqn/-q nqn.other} >/dev/null 2>&1; then die "another host is let in"; fi
        connect --nr-io-queues=2
        is size $(blockdev --getsize64 $DISK) $(plexum status nas --json | sed 's/.*"size_bytes":\([0-9]*\).*/\1/')
        is write_cache "$(disk_queue write_cache)" "write back"
        is fua $(disk_queue fua) 1
        is minimum_io_size $(disk_queue minimum_io_size) 524288
        is optimal_io_size $(disk_queue optimal_io_size) 1048576
        [ $(disk_queue discard_max_bytes) != 0 ] || die "no discards"
        [ $(disk_queue write_zeroes_max_bytes) != 0 ] || die "no zeroes"
        is wwid "$(cat /sys/block/${DISK#/dev/}/wwid)" "uuid.${SUBSYSTEM##*:}"
        exits 6 plexum stop nas; says "has clients: 1 on nvme+tcp://"
        random data 16
        dd if=data of=$DISK bs=256K oflag=direct status=none
        dd if=$DISK bs=64K count=16 iflag=direct status=none | cmp - data
        disconnect; exits 0 plexum stop nas
    "#

    what_is_written_over_nvme_with_digests_is_read_again r#"
        new 1 16M a b
        serve a b --nvme 127.0.0.1:4420; connect --hdr-digest --data-digest; random data 32
        dd if=data of=$DISK bs=256K oflag=direct status=none
        blkdiscard -z -o 1M -l 512K $DISK; dd if=/dev/zero of=data bs=512K seek=2 count=1 conv=notrunc status=none
        blkdiscard -o 12M -l 2M $DISK
        dd if=$DISK bs=64K count=32 iflag=direct status=none | cmp - data
        fio --name=v --filename=$DISK --ioengine=libaio --direct=1 --rw=randrw --bsrange=512-64k --bs_unaligned=0 \
          --iodepth=16 --size=8M --io_size=2M --offset=4M --verify=crc32c --verify_fatal=1 --fsync=32 --randseed=7 \
          --output=fio.txt || { cat fio.txt; exit 1; }
        mkfs.ext4 -q $DISK; mkdir m; mount $DISK m; cp data m; sync; fstrim m; umount m
        mount $DISK m; cmp data m/data; umount m; fsck_finds_nothing
        disconnect; exits 0 plexum scrub nas --wait; exits 0 plexum stop nas
    "#

    the_daemon_is_found_over_nvme_and_its_hosts_see_volumes_grow r#"
        new 5 8M a b c; truncate -s 8M d
        export XDG_CONFIG_HOME=$PWD/conf; mkdir -p conf/plexum
        printf '[nvme]\nlisten = "127.0.0.1:4420"\nallow-hosts = ["%s"]\n' $HOST >conf/plexum/plexum.toml
        start() { plexum daemon >daemon.txt 2>&1 & DAEMON=$!; vm_wait 20 daemon_answers || { cat daemon.txt; exit 1; }; }
        start
        exits 0 plexum serve a b c; says "nvme+tcp://127.0.0.1:4420/"
        connect; mkfs.ext4 -q $DISK; mkdir m; mount $DISK m; touch m/x
        kill -TERM $DAEMON; gone $DAEMON
        { touch m/y; sync m/y; } & writer=$!
        start; wait $writer || die "the writer failed"
        before=$(blockdev --getsize64 $DISK)
        exits 0 plexum grow nas --add d --wait
        vm_wait 30 grown $before || die "the host does not see that it has grown"
        resize2fs $DISK >/dev/null 2>&1; umount m; fsck_finds_nothing
        disconnect; exits 0 plexum stop nas; kill -TERM $DAEMON; gone $DAEMON
    "#
}
