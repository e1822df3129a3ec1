vm_wait 240 mountpoint -q /srv || die "the file system is not there without a disk"
[ "$(cat /srv/number)" -ge "$(told)" ] || die "what was written before the shutdown is not there"
is_verdict degraded || die "nobody notices that a disk is missing"
exits 0 systemctl start load
rounds
vm_do plug LATE
vm_wait 300 is_still || die "the late disk is not taken back"
rounds
exits 0 systemctl stop load
exits 0 umount /srv
exits 0 systemctl stop plexum-attach@home
exits 0 plexum scrub home --wait
plexum status home --json | grep -q '"mismatch_bytes":0' || die "its copies differ"
exits 0 dpkg --purge plexum
[ ! -e /etc/plexum ] && [ ! -e /var/lib/plexum ] || die "the package leaves something"
exits 0 mdadm --examine "$(vm_dev STAYS)"
