#!/bin/sh
# install.sh PACKAGE... - installs the Debian packages that are missing, as root or through sudo.
#
# Does nothing, and needs no rights and no network, when all of them are there. Never asks a question.
set -eu

missing=
for package in "$@"; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

command -v apt-get >/dev/null || {
    echo "error: missing:$missing" >&2
    echo "  this is no Debian system; install what these packages hold by hand" >&2
    exit 1
}
if [ "$(id -u)" = 0 ]; then
    as_root=env
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as_root='sudo -n env'
elif command -v sudo >/dev/null && [ -t 0 ]; then
    as_root='sudo env'
else
    echo "error: missing packages:$missing" >&2
    echo "  run this as root or with sudo, or install them first:" >&2
    echo "    apt-get install -y --no-install-recommends$missing" >&2
    exit 1
fi

echo "installing:$missing"
# Without --no-install-recommends mdadm brings a mail server.
# The list of packages of a fresh machine may be empty or old: it is fetched first.
try() { $as_root DEBIAN_FRONTEND=noninteractive apt-get -q -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120 "$@" </dev/null; }
try update || echo "warning: the list of packages could not be refreshed; trying with the old one" >&2
# shellcheck disable=SC2086 # one word for each package
try install -y --no-install-recommends $missing || {
    echo "error: cannot install:$missing" >&2
    exit 1
}
