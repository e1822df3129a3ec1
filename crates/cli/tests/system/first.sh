vm_wait 120 systemctl -q is-active plexum || die "the package has not started its daemon"
[ -e /usr/lib/udev/rules.d/64-md-raid-assembly.rules ] || [ -e /lib/udev/rules.d/64-md-raid-assembly.rules ] ||
    die "md's own rules are not there"
mkdir -p /etc/plexum/conf.d
printf '[start]\nwait = "5s"\n' >/etc/plexum/conf.d/start.toml
exits 0 plexum config check
exits 0 systemctl restart plexum
exits 0 plexum create home --level 1 $STAYS $PULLED $LATE --assume-clean -y
exits 0 plexum serve $STAYS $PULLED $LATE
exits 0 plexum attach home --wait 1
exits 0 mkfs.ext4 -q /run/plexum/device/home
exits 0 plexum detach home
echo '/run/plexum/device/home /srv ext4 nofail,x-systemd.requires=plexum-attach@home.service,x-systemd.before=local-fs.target' >>/etc/fstab
systemctl daemon-reload
exits 0 systemctl start srv.mount
exits 0 systemctl start load
rounds
before=$(systemctl show plexum --value --property=MainPID)
exits 0 dpkg -i /share/newer.deb
[ "$(dpkg-query -W -f '${Version}' plexum)" = 0.1.0+newer ] || die "it is not upgraded"
[ "$(systemctl show plexum --value --property=MainPID)" != "$before" ] || die "the old daemon runs on"
rounds
udevadm trigger --action=add --subsystem-match=block; udevadm settle
no_md
rounds
sync -f /etc
echo "told $(told)"
