//! Volumes of ZFS pools as disks of a real kernel, by the servers that other volumes have too.

/// Functions of these cases. `pool` makes one of two members, with the volume `tank/vol`, which is served as nas.
pub const MORE: &str = r#"
pool() {
  exits 0 plexum pool create tank mirror --member-size 96M a b
  exits 0 plexum pool create-volume tank/vol 24M a b
}
serve_pool() { serve --write --name nas --dataset tank/vol a b "$@"; }
pool_is_sound() { exits 0 plexum pool check a b; exits 0 plexum pool scrub a b; }
"#;

cases! { NIGHTLY:
    a_volume_of_a_zfs_pool_is_a_block_device_that_outlives_its_server r#"
        pool; serve_pool --ublk; says "$DEV"
        is size $(blockdev --getsize64 $DEV) 25165824
        is write_cache "$(queue write_cache)" "write back"
        exits 0 plexum status nas; says "$DEV   (0 clients)"
        mkfs.ext4 -q $DEV; mkdir m; mount $DEV m; random data 32; cp data m; sync
        exits 6 plexum stop nas; says "in use: the mount"
        kill_server
        { cp data m/other; sync m/other; } & writer=$!
        serve_pool; says "$DEV"
        wait $writer || die "the writer failed"
        echo 3 >/proc/sys/vm/drop_caches
        cmp data m/data; cmp data m/other
        kill -TERM $SERVER; gone $SERVER
        [ -b $DEV ] || die "the device is gone"
        serve_pool; cmp data m/other; umount m
        e2fsck -fn $DEV >fsck.txt 2>&1 || { cat fsck.txt; exit 1; }
        exits 0 plexum stop nas; nothing_left; pool_is_sound
        exits 0 plexum pool snapshot tank/vol@now a b
        serve --name nas --dataset tank/vol@now a b --ublk
        is ro $(blockdev --getro $DEV) 1
        exits 0 plexum stop nas; nothing_left
    "#

    a_volume_of_a_zfs_pool_is_a_disk_over_nvme_also_for_the_next_server r#"
        pool; serve_pool --nvme 127.0.0.1:4420 --allow-host $HOST
        nvme_is_there
        if nvme discover ${AT/-q nqn/-q nqn.other} >/dev/null 2>&1; then die "another host is let in"; fi
        connect
        is size $(blockdev --getsize64 $DISK) 25165824
        [ $(disk_queue discard_max_bytes) != 0 ] || die "no discards"
        is wwid "$(cat /sys/block/${DISK#/dev/}/wwid)" "uuid.${SUBSYSTEM##*:}"
        exits 6 plexum stop nas; says "has clients: 1 on nvme+tcp://"
        mkfs.ext4 -q $DISK; mkdir m; mount $DISK m; random data 32; cp data m; sync
        kill_server
        { cp data m/other; sync m/other; } & writer=$!
        serve_pool --nvme 127.0.0.1:4420
        wait $writer || die "the writer failed"
        echo 3 >/proc/sys/vm/drop_caches
        cmp data m/data; cmp data m/other; rm m/data; sync; fstrim m; umount m; fsck_finds_nothing
        disconnect; exits 0 plexum stop nas; pool_is_sound
    "#

    file_systems_and_verified_loads_live_on_a_volume_of_a_zfs_pool r#"
        exits 0 plexum pool create tank raidz1 --member-size 224M a b c
        exits 0 plexum pool create-volume tank/vol 304M a b c
        serve --write --name nas --dataset tank/vol a b c --ublk; mkdir m; random data 64
        for kind in ext4 xfs; do
          wipefs -qa $DEV; mkfs.$kind -q $DEV
          mount $DEV m; cp data m; mkdir m/d; sync; rm -r m/d; fstrim m; umount m
          mount $DEV m; cmp data m/data
          # Through the file system, where blocks come, go and are overwritten.
          fio --name=v --directory=m --ioengine=libaio --direct=1 --rw=randwrite --bsrange=4k-64k --iodepth=16 --numjobs=2 \
            --size=8M --fsync=32 --verify=crc32c --verify_fatal=1 --do_verify=1 --loops=2 --randseed=7 --output=fio.txt \
            || { cat fio.txt; exit 1; }
          umount m
        done
        xfs_repair -n $DEV >/dev/null 2>&1 || die "xfs_repair finds something"
        fio --name=v --filename=$DEV --ioengine=libaio --direct=1 --rw=randrw --bsrange=512-64k --bs_unaligned=0 \
          --iodepth=16 --size=16M --io_size=4M --offset=8M --verify=crc32c --verify_fatal=1 --fsync=32 --randseed=7 \
          --output=fio.txt || { cat fio.txt; exit 1; }
        exits 0 plexum stop nas; nothing_left
        exits 0 plexum pool check a b c; exits 0 plexum pool scrub a b c
    "#
}
