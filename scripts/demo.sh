#!/bin/sh
# demo.sh [OPTION]... - builds Plexum and runs `plexum demo`. Needs a Rust toolchain; no root, no configuration.
#
# Options are those of `plexum demo`: --seed N, --level L, --members N, --json, --keep DIR.
set -eu
cd "$(dirname "$0")/.."

. scripts/toolchain.sh
# rustc links with the system's C compiler; nothing else of the system is needed.
command -v cc >/dev/null || sh scripts/install.sh gcc libc6-dev

cargo build --release --locked --package plexum-cli --bin plexum >&2
exec "${CARGO_TARGET_DIR:-target}/release/plexum" demo "$@"
