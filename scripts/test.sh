#!/bin/sh
# test.sh - installs what the tests need and runs all of them: what CI runs. As root, or with sudo.
#
# The judges are other people's programs: the kernel's md driver (in User Mode Linux), mdadm, libnbd, QEMU, fio,
# file systems. A missing one is a failure, never a skipped test.
set -eu
cd "$(dirname "$0")/.."
started=$(date +%s)

. scripts/toolchain.sh
# shellcheck disable=SC2046 # one word for each package
sh scripts/install.sh $(grep -v '^#' scripts/packages.txt)
# The kernel of the guests: once, into the cache; nothing is fetched when it is there.
tries=1
until oracle/vm-oracle install --no-image --kernels 13; do
    [ $tries -lt 3 ] || {
        echo "error: the kernel for guests in QEMU cannot be fetched" >&2
        exit 1
    }
    tries=$((tries + 1))
    sleep 5
done
# mkfs, mdadm and dmsetup live here, and an ordinary user's path lacks it.
PATH="$PATH:/usr/sbin:/sbin"
export PATH
# OpenZFS in user space, as a judge: unpacked into a cache, not installed.
python3 oracle/zfs-oracle install
# A minimal toolchain lacks these two.
cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt
cargo clippy --version >/dev/null 2>&1 || rustup component add clippy
echo "packages and tools: $(($(date +%s) - started)) s"

exec cargo xtask ci "$@"
