# toolchain.sh - sourced: finds cargo, also where sudo has reset PATH and HOME.
if ! command -v cargo >/dev/null; then
    owner=$(getent passwd "${SUDO_USER:-$(id -un)}" | cut -d: -f6)
    for folder in "$HOME/.cargo" "$owner/.cargo" /usr/local/cargo; do
        [ -x "$folder/bin/cargo" ] || continue
        PATH="$folder/bin:$PATH"
        CARGO_HOME=$folder
        if [ -d "${folder%/*}/.rustup" ]; then
            RUSTUP_HOME="${folder%/*}/.rustup"
        elif [ -d "${folder%/*}/rustup" ]; then
            RUSTUP_HOME="${folder%/*}/rustup"
        fi
        export PATH CARGO_HOME RUSTUP_HOME
        break
    done
fi
command -v cargo >/dev/null || {
    echo "error: cargo not found: install a Rust toolchain first (https://rustup.rs)" >&2
    exit 1
}
CARGO_NET_RETRY=${CARGO_NET_RETRY:-5}
export CARGO_NET_RETRY
