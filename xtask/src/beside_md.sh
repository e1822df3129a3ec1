# Counts what a request costs over md, and over Plexum's ways to the same members, in one boot. In a guest of vm-oracle
# with --count. Words: LEVEL MEMBERS WAY...
set -e
level=$1 members=$2; shift 2
export XDG_RUNTIME_DIR=/tmp/runtime XDG_STATE_HOME=/tmp/state; mkdir -p -m 700 $XDG_RUNTIME_DIR
cp "$(type -P plexum)" /tmp/bin-plexum # nothing that is counted may come from the host
mdadm --version >/dev/null 2>&1; fio --version >/dev/null; vm_local fio mdadm
for module in raid1 raid10 raid456 nbd; do modprobe $module; done
modprobe null_blk nr_devices=0
mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config

# A disk that keeps what is written, and answers after 10 us.
disk() {
  local of=/sys/kernel/config/nullb/$1; mkdir $of
  echo 64 >$of/size; echo 1 >$of/memory_backed; echo 2 >$of/irqmode; echo 10000 >$of/completion_nsec
  echo 512 >$of/blocksize; echo 2560 >$of/max_sectors; echo 1 >$of/power
}
disks=
for n in $(seq $members); do disk m$n; disks="$disks /dev/m$n"; done

# count DEVICE REQUESTS FIO'S WORDS...: thousands of instructions of the whole guest
count() {
  local device=$1 requests=$2; shift 2
  vm_count fio --name=c --filename=$device --ioengine=libaio --direct=1 --randseed=7 --allow_file_create=0 \
    --number_ios=$requests --output=/tmp/fio.txt "$@" | sed 's/.*total //'
}
# each NAME DEVICE: N requests against 2 N, after some that warm up
each() {
  local work
  for work in "randread 4k 1 400" "randwrite 4k 1 400" "randread 4k 32 1600" "randwrite 4k 32 1600" "read 1M 8 24" \
    "write 1M 8 24"; do
    set -- "$1" "$2" $work
    count "$2" $6 --rw=$3 --bs=$4 --iodepth=$5 >/dev/null
    local once=$(count "$2" $6 --rw=$3 --bs=$4 --iodepth=$5) twice=$(count "$2" $((2 * $6)) --rw=$3 --bs=$4 --iodepth=$5)
    echo "$1 $3 $4 $5 $(awk "BEGIN { print ($twice - $once) / $6 }")"
  done
}

chunk=; [ $level = 1 ] || chunk=--chunk=512
mdadm --create /dev/md0 --run --assume-clean --level=$level --raid-devices=$members --bitmap=internal $chunk $disks >&2
each md /dev/md0
mdadm --stop /dev/md0 >&2
for one in $disks; do mdadm --zero-superblock $one >&2; done

/tmp/bin-plexum create -y nas --force --level $level --assume-clean $disks >&2
for way; do
  if [ $way = ublk ]; then
    /tmp/bin-plexum serve $disks --ublk --background >&2
    device=/dev/plexum/nas
  else
    /tmp/bin-plexum serve $disks --background >&2
    /tmp/bin-plexum attach nas --by $way >&2
    device=$(readlink -f $XDG_RUNTIME_DIR/plexum/device/nas)
  fi
  each $way $device
  [ $way = ublk ] || /tmp/bin-plexum detach nas >&2
  /tmp/bin-plexum stop nas >&2
done
