vm_wait 240 mountpoint -q /srv || die "the file system is not back after the boot"
found=$(cat /srv/number) || die "nothing is on it"
[ "$found" -ge "$(told)" ] || die "$(told) was durable, $found is there"
no_md
vm_wait 300 is_still || die "the volume does not get whole"
exits 0 systemctl start load
rounds
vm_do unplug PULLED
vm_wait 120 is_verdict degraded || die "nobody notices that a disk is pulled"
rounds
incident() { plexum incident | grep -q 'serial PULLED'; }
vm_wait 120 incident || die "no incident names the disk"
plexum status home | grep -q PULLED || die "the status forgets the disk"
vm_do plug PULLED
vm_wait 300 is_still || die "the disk is not taken back"
closed() { ! plexum status | grep -q incident; }
vm_wait 120 closed || die "the incident stays open"
rounds
no_md
