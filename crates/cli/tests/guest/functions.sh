# What the cases have in common. A case runs in a subshell in an empty folder; `set -e` ends it.
export PATH=$PATH:/usr/sbin:/sbin XDG_RUNTIME_DIR=/tmp/runtime
mkdir -p -m 700 $XDG_RUNTIME_DIR
export XDG_STATE_HOME=/tmp/state
DEV=/dev/plexum/nas
# From memory: its pages would come from the host one by one, at each start.
mkdir -p /tmp/bin; cp "$(type -P plexum)" /tmp/bin; PATH=/tmp/bin:$PATH

die() { echo "$*"; exit 1; }
# exits CODE WORDS...: runs the command, which must end so; what it says is in the files out and err
exits() {
  local want=$1 code=0; shift
  "$@" >out 2>err || code=$?
  [ $code = $want ] || { echo "exit code $code of: $*"; cat out err; exit 1; }
}
says() { grep -qF -- "$1" out err || { echo "does not say: $1"; cat out err; exit 1; }; }
is() { [ "$2" = "$3" ] || die "$1 is $2 and not $3"; }
queue() { cat /sys/block/$(basename "$(readlink -f $DEV)")/queue/$1; }
# serve WORDS...: serves in the background; $SERVER is its process
serve() {
  exits 0 plexum serve "$@" --background
  SERVER=$(plexum status nas --json | sed 's/.*"server_pid":\([0-9]*\).*/\1/')
}
gone() { while kill -0 $1 2>/dev/null; do sleep 0.05; done; }
kill_server() { kill -KILL $SERVER; gone $SERVER; }
new() { plexum create -y nas --level "$1" --member-size "$2" --assume-clean ${@:3} >/dev/null; }
nothing_left() {
  [ ! -e /dev/plexum ] || die "left: $(ls -l /dev/plexum)"
  # The kernel lets go of a device when its last file is closed, which a dead server's may be a moment later.
  vm_wait 20 no_device || die "left: $(ls -d /dev/ublkb* /dev/ublkc*)"
  ! grep -E "ublk" /proc/mounts || die "still mounted"
}
no_device() { ! ls /dev/ublkb* /dev/ublkc* >/dev/null 2>&1; }
random() { dd if=/dev/urandom of="$1" bs=64K count=$2 status=none; }
ended() {
  set +e
  ip link set lo up
  grep nvme /proc/mounts | while read -r device place rest; do umount -l $place; done
  nvme disconnect-all >/dev/null 2>&1
  pkill -KILL -x plexum
  plexum stop --force nas >/dev/null 2>&1 # else an unmounting would wait for a server
  plexum detach nas >/dev/null 2>&1
  grep ublk /proc/mounts | while read -r device place rest; do umount -l $place; done
}
# run NAME: the case of that name
run() {
  local began=$SECONDS code=0
  modprobe ublk_drv; rm -rf /tmp/case /tmp/state; mkdir /tmp/case; cd /tmp/case
  # Not as a part of `||`: there `set -e` would end nothing.
  ( set -e; trap ended EXIT; "$1" ) >"$OUT/$1.text" 2>&1 </dev/null &
  wait $! || code=$?
  echo $code >"$OUT/$1.code"
  echo "$1: $code, $((SECONDS - began)) s"
}
