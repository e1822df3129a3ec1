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
# What judges fetch for themselves: once, into a cache; nothing is fetched when it is there.
fetch() {
    tries=1
    until "$@"; do
        [ $tries -lt 3 ] || {
            echo "error: cannot be fetched: $*" >&2
            exit 1
        }
        tries=$((tries + 1))
        sleep 5
    done
}
# The kernel of the guests.
fetch oracle/vm-oracle install --no-image --kernels 13
# mkfs, mdadm and dmsetup live here, and an ordinary user's path lacks it.
PATH="$PATH:/usr/sbin:/sbin"
export PATH
# OpenZFS in user space, as a judge: unpacked into a cache, not installed.
fetch python3 oracle/zfs-oracle install
# A minimal toolchain lacks these two.
cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt
cargo clippy --version >/dev/null 2>&1 || rustup component add clippy
echo "packages and tools: $(($(date +%s) - started)) s"

exec cargo xtask ci "$@"
