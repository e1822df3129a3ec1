#!/bin/sh
# demo.sh [OPTION]... - builds Plexum and runs `plexum demo`. Needs a Rust toolchain; no root, no configuration.
#
# Options are those of `plexum demo`: --seed N, --level L, --members N, --json, --keep DIR.
set -eu
cd "$(dirname "$0")/.."

. scripts/toolchain.sh
# rustc links with the system's C compiler; nothing else of the system is needed.
command -v cc >/dev/null || sh scripts/install.sh gcc libc6-dev

target=${CARGO_TARGET_DIR:-target}
if [ ! -x "$target/release/plexum" ]; then
    # Measured: 11 to 16 minutes of a processor, more of them share the work but for the last crates.
    cores=$(nproc 2>/dev/null || echo 1)
    least=$(((11 + cores - 1) / cores))
    echo "building Plexum, this once: about $((least > 2 ? least : 2)) to $((16 / cores + 2)) minutes on $cores processors" >&2
fi

# Says now and then that it lives. On a terminal cargo does so itself.
tell_progress() {
    trap 'kill "$nap"; exit' TERM
    seconds=0
    while kill -0 $$ 2>/dev/null; do
        sleep 10 &
        nap=$!
        wait "$nap"
        seconds=$((seconds + 10))
        crates=$(find "$target/release/deps" -name '*.rlib' 2>/dev/null | wc -l)
        echo "    building for $seconds s, $crates crates are done" >&2
    done
}
teller=
[ -t 2 ] || {
    tell_progress &
    teller=$!
    trap 'kill "$teller" 2>/dev/null || true' EXIT
}
cargo build --release --locked --package plexum-cli --bin plexum >&2
[ -z "$teller" ] || kill "$teller"
exec "$target/release/plexum" demo "$@"
