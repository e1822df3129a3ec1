# What each boot finds.
set -u
die() {
    echo "FAILED: $*"
    plexum status --json
    plexum incident
    systemctl --no-pager status plexum 'plexum-attach@home' srv.mount load
    journalctl --no-pager -b -u plexum -u 'plexum-attach@home' -u srv.mount -u load | tail -60
    exit 1
}
# exits CODE COMMAND..: it ends with that.
exits() {
    wanted=$1; shift
    "$@" >said.txt 2>&1; code=$?
    [ $code = "$wanted" ] || { cat said.txt; die "$* ended with $code, not with $wanted"; }
}
verdict() { plexum status home --json | sed -n 's/.*"verdict":"\([a-z-]*\)".*/\1/p'; }
is_verdict() { [ "$(verdict)" = "$1" ]; }
is_still() { is_verdict ok && plexum status home --json | grep -q '"jobs":\[\]'; }
told() { cat /told 2>/dev/null || echo 0; }
# The load goes on: another three rounds.
rounds() {
    begun=$(told)
    vm_wait 300 passed || die "the load stands still at $begun"
    [ ! -e /failed ] || die "a write was refused"
}
passed() { [ "$(told)" -ge $((begun + 3)) ]; }
# A number on the volume; when that is durable, the same on the machine's own disk.
cat >/usr/local/bin/load <<'LOAD'
#!/bin/bash
number=$(cat /told 2>/dev/null || echo 0)
while :; do
    number=$((number + 1))
    { head -c 300000 /dev/urandom >/srv/data && echo $number >/srv/new && sync /srv/data /srv/new &&
        mv /srv/new /srv/number && sync -f /srv; } || { echo $number >/failed; sync /failed; }
    echo $number >/told.new; sync /told.new; mv /told.new /told; sync -f /
done
LOAD
chmod 755 /usr/local/bin/load
cat >/etc/systemd/system/load.service <<'UNIT'
[Unit]
RequiresMountsFor=/srv
[Service]
ExecStart=/usr/local/bin/load
UNIT
systemctl daemon-reload
# None of the sets is the kernel's.
no_md() { ! grep -q '^md' /proc/mdstat 2>/dev/null || { cat /proc/mdstat; die "md has taken a set"; }; }
