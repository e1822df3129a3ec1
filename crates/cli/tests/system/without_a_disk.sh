vm_wait 240 mountpoint -q /srv || die "the file system is not there without a disk"
[ "$(cat /srv/number)" -ge "$(told)" ] || die "what was written before the shutdown is not there"
is_verdict degraded || die "nobody notices that a disk is missing"
exits 0 systemctl start load
rounds
vm_do plug LATE
vm_wait 300 is_still || die "the late disk is not taken back"
rounds
# A disk says of itself that it ails. It is asked every ninety minutes, so the clock is set. QEMU's counts nothing, so
# that nobody can tell before.
asked() { plexum disks home | grep PULLED | grep -q 'cannot tell: every counter is zero'; }
ails() { plexum incident --json | grep 'SAYS THAT IT FAILS' | grep -q PULLED; }
vm_wait 120 asked || die "no disk has been asked how it is: $(plexum disks home)"
vm_do qmp '{"execute":"qom-set","arguments":{"path":"/machine/peripheral/PULLED","property":"smart_critical_warning","value":4}}' ||
    die "the disk cannot be made to say that it ails"
date -s '+2 hours' >/dev/null
exits 0 systemctl restart plexum
vm_wait 300 ails || die "nobody is told that a disk ails: $(plexum disks home)"
is_verdict ok || die "a volume is not served as before for a disk that says that it ails"
rounds
exits 0 systemctl stop load
exits 0 umount /srv
exits 0 systemctl stop plexum-attach@home
exits 0 plexum scrub home --wait
plexum status home --json | grep -q '"mismatch_bytes":0' || die "its copies differ"
exits 0 dpkg --purge plexum
[ ! -e /etc/plexum ] && [ ! -e /var/lib/plexum ] || die "the package leaves something"
exits 0 mdadm --examine "$(vm_dev STAYS)"
