#!/bin/sh
# oci.sh BINARY FOLDER - makes an image of the statically linked `plexum` in BINARY, FROM nothing, as an OCI layout.
#
# Source: OCI Image Format Specification 1.0: image-layout, manifest, config. The same input gives the same bytes.
set -eu
binary=$(realpath "$1")
out=$(realpath -m "$2")
cd "$(dirname "$0")/.."
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.toml)}
export LC_ALL=C
umask 022

if readelf -l "$binary" | grep -q INTERP; then
    echo "error: $binary is not statically linked: there is no loader in an empty image" >&2
    exit 1
fi
case $(uname -m) in
x86_64) architecture=amd64 ;;
aarch64) architecture=arm64 ;;
*) architecture=$(uname -m) ;;
esac

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
install -D -m 755 "$binary" "$tree/image/usr/bin/plexum"
strip "$tree/image/usr/bin/plexum"
mkdir -p "$tree/image/run" "$tree/image/var/lib/plexum" "$tree/image/etc/plexum"
mkdir -m 1777 "$tree/image/tmp"

rm -rf "$out"
mkdir -p "$out/blobs/sha256"
# blob FILE: moves it to its name; prints the name.
blob() {
    sum=$(sha256sum "$1" | cut -d ' ' -f 1)
    mv "$1" "$out/blobs/sha256/$sum"
    echo "$sum"
}
bytes() { stat -c %s "$out/blobs/sha256/$1"; }

tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=ustar \
    -C "$tree/image" -cf "$tree/layer" etc run tmp usr var
unpacked=$(sha256sum "$tree/layer" | cut -d ' ' -f 1)
gzip -9n "$tree/layer"
layer=$(blob "$tree/layer.gz")

created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
cat >"$tree/config" <<EOF
{"created":"$created","architecture":"$architecture","os":"linux",
"config":{"Entrypoint":["/usr/bin/plexum"],"Cmd":["daemon"],"Env":["PATH=/usr/bin"],"StopSignal":"SIGTERM",
"Volumes":{"/run/plexum":{},"/var/lib/plexum":{}}},
"rootfs":{"type":"layers","diff_ids":["sha256:$unpacked"]}}
EOF
config=$(blob "$tree/config")
type=application/vnd.oci.image
cat >"$tree/manifest" <<EOF
{"schemaVersion":2,"mediaType":"$type.manifest.v1+json",
"config":{"mediaType":"$type.config.v1+json","digest":"sha256:$config","size":$(bytes "$config")},
"layers":[{"mediaType":"$type.layer.v1.tar+gzip","digest":"sha256:$layer","size":$(bytes "$layer")}]}
EOF
manifest=$(blob "$tree/manifest")
cat >"$out/index.json" <<EOF
{"schemaVersion":2,"mediaType":"$type.index.v1+json","manifests":[
{"mediaType":"$type.manifest.v1+json","digest":"sha256:$manifest","size":$(bytes "$manifest"),
"platform":{"architecture":"$architecture","os":"linux"},
"annotations":{"org.opencontainers.image.ref.name":"latest"}}]}
EOF
echo '{"imageLayoutVersion":"1.0.0"}' >"$out/oci-layout"
