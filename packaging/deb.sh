#!/bin/sh
# deb.sh BINARY OUT.deb [VERSION] - makes the Debian package of the `plexum` that is in BINARY.
#
# The same input gives the same bytes: every time in it is that of the newest commit, or SOURCE_DATE_EPOCH.
# PLEXUM_DEB_COMPRESSION is how dpkg-deb compresses: as well as it can when it is not set; a test is in a hurry.
set -eu
binary=$(realpath "$1")
out=$(realpath -m "$2")
cd "$(dirname "$0")/.."
version=${3:-$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.toml)}
export SOURCE_DATE_EPOCH
export LC_ALL=C
umask 022

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
# put MODE FROM TO: a file, its folders made.
put() { install -D -m "$1" "$2" "$tree/$3"; }

put 755 "$binary" usr/bin/plexum
strip "$tree/usr/bin/plexum"

put 644 packaging/etc/plexum.toml etc/plexum/plexum.toml
put 644 packaging/systemd/plexum.service lib/systemd/system/plexum.service
put 644 packaging/systemd/plexum-attach@.service lib/systemd/system/plexum-attach@.service
drop_in=run-plexum-attach-.mount.d/kept.conf
put 644 "packaging/systemd/$drop_in" "lib/systemd/system/$drop_in"
put 755 packaging/systemd/plexum-generator lib/systemd/system-generators/plexum-generator
for rule in packaging/udev/*.rules; do
    [ ! -e "$rule" ] || put 644 "$rule" "lib/udev/rules.d/${rule##*/}"
done
put 755 packaging/initramfs/hooks/plexum usr/share/initramfs-tools/hooks/plexum
put 755 packaging/initramfs/udev-claim usr/lib/plexum/udev-claim # the hook takes it along

mkdir -p "$tree/usr/share/man/man1"
"$tree/usr/bin/plexum" man --out "$tree/usr/share/man/man1" --quiet
gzip -9n "$tree"/usr/share/man/man1/*.1
share=$tree/usr/share
mkdir -p "$share/bash-completion/completions" "$share/zsh/vendor-completions" "$share/fish/vendor_completions.d"
"$binary" completions bash >"$share/bash-completion/completions/plexum"
"$binary" completions zsh >"$share/zsh/vendor-completions/_plexum"
"$binary" completions fish >"$share/fish/vendor_completions.d/plexum.fish"

doc=usr/share/doc/plexum
put 644 packaging/debian/copyright "$doc/copyright"
put 644 CHANGELOG.md "$doc/CHANGELOG.md"
date=$(date -u -R -d "@$SOURCE_DATE_EPOCH")
maintainer=$(sed -n 's/^Maintainer: //p' packaging/debian/control)
printf 'plexum (%s) unstable; urgency=medium\n\n  * What is new is in CHANGELOG.md.gz.\n\n -- %s  %s\n' \
    "$version" "$maintainer" "$date" >"$tree/$doc/changelog"
gzip -9n "$tree/$doc/changelog" "$tree/$doc/CHANGELOG.md"
for page in docs/admin/*.md; do
    [ ! -e "$page" ] || put 644 "$page" "$doc/admin/${page##*/}"
done

# What the loader asks of the C library: the highest version of a symbol.
glibc=$(objdump -T "$tree/usr/bin/plexum" | grep -o 'GLIBC_2\.[0-9]*' | sort -uV | tail -n 1)
installed=$(du -sk --apparent-size "$tree" | cut -f 1)
mkdir "$tree/DEBIAN"
sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$(dpkg --print-architecture)/" \
    -e "s/@INSTALLED_KIB@/$installed/" -e "s/@GLIBC@/${glibc#GLIBC_}/" \
    packaging/debian/control >"$tree/DEBIAN/control"
install -m 755 packaging/debian/postinst packaging/debian/prerm packaging/debian/postrm "$tree/DEBIAN/"
echo /etc/plexum/plexum.toml >"$tree/DEBIAN/conffiles"
echo 'activate-noawait update-initramfs' >"$tree/DEBIAN/triggers"
(cd "$tree" && find . -type f ! -path './DEBIAN/*' -printf '%P\n' | sort | xargs -d '\n' md5sum) >"$tree/DEBIAN/md5sums"

find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
chmod 755 "$tree"
mkdir -p "$(dirname "$out")"
# shellcheck disable=SC2086 # several words
dpkg-deb --root-owner-group ${PLEXUM_DEB_COMPRESSION:--Zxz} --threads-max=1 --build "$tree" "$out" >/dev/null
