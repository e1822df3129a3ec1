//! Whose a set is when its disks come: the kernel's md with udev's own rules beside Plexum's rule and daemon, and real
//! hot plug of SCSI disks. In User Mode Linux; one boot for all of it, since a boot costs seconds.

use std::path::Path;
use std::sync::LazyLock;

use plexum_oracle::{Batch, Folder, Job, Report};

/// Four disks: two of Plexum's mirror `nas`, two of md's mirror. A part ends the script when it goes wrong.
const SCRIPT: &str = r##"
unset XDG_RUNTIME_DIR XDG_STATE_HOME
mount -t tmpfs tmpfs /var/lib
plexum() { "$PLEXUM" "$@"; }
die() { put "$PART" 1; put "$PART.text" "$* | $(tr '\n' '|' </proc/mdstat) | $(tail -n 5 /tmp/log | tr '\n\t' '| ')"; exit 0; }
part() { [ -z "$PART" ] || put "$PART" 0; PART=$1; }
# until_ WHAT COMMAND...: tries again and again
until_() {
  local what=$1 tries=0; shift
  until "$@" >/dev/null 2>&1; do
    tries=$((tries+1)); [ $tries -lt 300 ] || die "not in time: $what; $(plexum status 2>&1 | tr '\n' '|')"; sleep 0.1
  done
}
settle() { udevadm settle -t 60 || die "udev does not settle"; }
daemon() {
  rm -f ready; mkfifo ready
  "$PLEXUM" daemon "$@" >ready 2>>/tmp/log &
  DAEMON=$!
  exec 9<ready
  read -r line <&9 || die "no daemon"
}
end_daemon() { kill -TERM $DAEMON; wait $DAEMON || die "the daemon ended with $?"; exec 9<&-; }
# disk HOST: its name now; none while it is out
disk() { local d; for d in /sys/class/scsi_host/host$1/device/target*/*/block/*; do [ -e "$d" ] && echo "${d##*/}"; done; }
have() { [ -n "$(disk $1)" ]; }
pull() { local d; d=$(disk $1); [ -z "$d" ] || echo 1 >/sys/block/$d/device/delete; }
push() { echo "- - -" >/sys/class/scsi_host/host$1/scan; until_ "disk $1 is there" have $1; }
pull_all() { local h; for h in $HOSTS; do pull $h; done; settle; }
md_has() { local d; d=$(disk $1); grep -q "\b$d\[" /proc/mdstat; }
stop_md() { until_ "md lets go" mdadm --stop --scan; ! grep -q ^md /proc/mdstat || die "md runs"; }

PART=
part the_disks_are_there
/run/modprobe sd_mod
/run/modprobe scsi_debug add_host=4 per_host_store=1 dev_size_mb=8 delay=0
HOSTS=$(ls /sys/class/scsi_host | sed 's/host//' | sort -n | tr '\n' ' ')
set -- $HOSTS; OUR1=$1 OUR2=$2 MD1=$3 MD2=$4
for h in $HOSTS; do until_ "disk $h is there" have $h; done
plexum create nas --level 1 --assume-clean --yes /dev/$(disk $OUR1) /dev/$(disk $OUR2) >>/tmp/log 2>&1 || die "create"
mdadm --create /dev/md0 --run --level=1 --raid-devices=2 --assume-clean /dev/$(disk $MD1) /dev/$(disk $MD2) >>/tmp/log 2>&1 || die "mdadm"
stop_md
daemon
plexum serve /dev/$(disk $OUR1) /dev/$(disk $OUR2) >>/tmp/log 2>&1 || die "serve"
end_daemon

part without_the_rule_md_takes_every_set
mkdir -p /run/udev
/lib/systemd/systemd-udevd --daemon >>/tmp/log 2>&1 || die "no udevd"
pull_all
for h in $HOSTS; do push $h; done; settle
md_has $OUR1 && md_has $OUR2 && md_has $MD1 || die "md has not taken them: the test shows nothing"
stop_md

part in_every_order_each_gets_its_own_sets
mkdir -p /run/udev/rules.d
sed "s#/usr/bin/plexum#$PLEXUM#g" $RULE >/run/udev/rules.d/63-plexum.rules
udevadm control --reload || die "reload"
for order in "1 2 3 4" "4 3 2 1" "2 4 1 3"; do
  pull_all
  for n in $order; do push $(echo $HOSTS | cut -d' ' -f$n); done; settle
  until_ "md has its own" md_has $MD1; until_ "md has its own" md_has $MD2
  ! md_has $OUR1 && ! md_has $OUR2 || die "md has taken one of ours: $order"
  stop_md
done
udevadm info --query=property --name=/dev/$(disk $OUR1) >props
grep -q ID_FS_TYPE=plexum_member props && grep -q PLEXUM_VOLUME=nas props || die "$(tr '\n' ' ' <props)"
udevadm info --query=property --name=/dev/$(disk $MD1) | grep -q ID_FS_TYPE=linux_raid_member || die "md's member"

part without_the_rule_md_has_them_again
rm /run/udev/rules.d/63-plexum.rules; udevadm control --reload
stop_md
udevadm trigger --action=add --subsystem-match=block; settle
until_ "md has them" md_has $OUR1
stop_md
part end
"##;

/// What came of all parts.
static REPORT: LazyLock<Report> = LazyLock::new(|| {
    let folder = Folder::new("plug").unwrap();
    let members = folder.members(1, 1 << 20).unwrap();
    let real = |path: &Path| path.canonicalize().unwrap().display().to_string();
    let plexum = real(Path::new(env!("CARGO_BIN_EXE_plexum")));
    let rule = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/udev/63-plexum.rules");
    let script = format!(
        "PLEXUM=/run/host{plexum} RULE=/run/host{}\n{SCRIPT}",
        real(&rule)
    );
    let mut batch = Batch::new();
    batch.add(Job::script("plug", &members, &script).with_limit(300));
    batch.run_faultless().remove(0)
});

/// A test for each part. One that was not reached has failed.
macro_rules! parts {
    ($($name:ident)*) => {
        $(#[test] fn $name() { check(stringify!($name)); })*
    };
}

parts! {
    without_the_rule_md_takes_every_set
    in_every_order_each_gets_its_own_sets
    without_the_rule_md_has_them_again
}

fn check(name: &str) {
    let report = &*REPORT;
    let text = report.value(&format!("{name}.text")).replace('|', "\n");
    assert_eq!(report.value(name), "0", "{text}");
}
