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
# An initramfs with md's hook beside Plexum's: what udev says in it of a member.
sed -i 's/^MODULES=.*/MODULES=list/' /etc/initramfs-tools/initramfs.conf
# The kernel came without a package, and so without what says how its initramfs may be packed.
config=/boot/config-$(uname -r)
[ -e "$config" ] || printf 'CONFIG_RD_GZIP=y\nCONFIG_RD_ZSTD=y\n' >"$config"
exits 0 mkinitramfs -o /tmp/initramfs "$(uname -r)"
exits 0 unmkinitramfs /tmp/initramfs /tmp/tree
tree=/tmp/tree; [ ! -d $tree/main ] || tree=$tree/main
find $tree -name 64-md-raid-assembly.rules | grep -q . || die "md's rules are not in the initramfs"
grep -q '^ARRAY <ignore> UUID=' $tree/etc/mdadm/mdadm.conf || die "md's script in the initramfs takes Plexum's set"
for folder in dev proc sys run; do
    mkdir -p $tree/$folder
    # A slave: what is taken away below must stay in the system itself.
    mount --rbind /$folder $tree/$folder && mount --make-rslave $tree/$folder
done
# A new udevadm runs no program in a test: that the rule asks is one thing, what it is told is another.
there=$(chroot $tree udevadm test --action=add /sys/class/block/$(basename $STAYS) 2>&1)
grep -q '63-plexum.rules.*udev-claim' <<<"$there" || die "in the initramfs nobody asks whose a member is: $there"
uuid=$(sed -n 's/.*ID_FS_UUID=//p' <<<"$there" | head -n 1)
type_there() { ID_FS_UUID=$uuid chroot $tree /usr/lib/plexum/udev-claim | sed -n 's/^ID_FS_TYPE=//p'; }
[ "$(type_there)" = plexum_member ] || die "in the initramfs a member is '$(type_there)'"
# Without the list it stays md's.
rm $tree/usr/lib/plexum/claims
[ -z "$(type_there)" ] || die "without the list a member is '$(type_there)'"
for folder in run sys proc dev; do umount -l $tree/$folder; done
