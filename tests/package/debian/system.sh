#!/bin/bash
# system.sh SCRIPT FILE…: runs SCRIPT as root in a minimal system like this one, made with debootstrap and gone afterwards, with
# these files, which lie in its /given there. It has this machine's network and nothing else of it.
set -euo pipefail
# In a separate mount namespace: mounts made here are not seen outside, and do not outlive this script.
if [ -z "${DLOCK_SYSTEM:-}" ]; then DLOCK_SYSTEM=1 exec unshare --mount --propagation private "$0" "$@"; fi
script=$1
shift
. /etc/os-release
components=main
if [ "$ID" = ubuntu ]; then components=main,universe; fi
mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
    sed -n 's/^URIs: *//p; s/^deb  *\(\[[^]]*\] *\)\{0,1\}\([a-z]*:[^ ]*\).*/\2/p' | grep -v security | sed -n 1p || true)

top=$(mktemp -d "${TMPDIR:-/var/tmp}/dlock-system.XXXXXX")
# Never rm: /dev is this machine's, as long as it is mounted there. What is in the tmpfs ends with it.
leave() {
    umount -l "$top/root/dev" "$top/root/proc" "$top" 2>/dev/null
    rmdir "$top"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP
mount -t tmpfs -o size=2g tmpfs "$top" # no disk is waited for; it is away with this script
root=$top/root
# shellcheck disable=SC2086
debootstrap --variant=minbase --components="$components" "$VERSION_CODENAME" "$root" $mirror >"$top/log" 2>&1 || {
    tail -n 20 "$top/log" >&2
    exit 1
}
cp /etc/resolv.conf "$root/etc/resolv.conf"
for settings in $(grep -l '^Acquire::' /etc/apt/apt.conf.d/* 2>/dev/null || true); do cp "$settings" "$root/etc/apt/apt.conf.d/"; done
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
mkdir "$root/given"
cp "$script" "$@" "$root/given/"
status=0
chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 http_proxy="${http_proxy:-}" \
    bash "/given/$(basename "$script")" || status=$?
exit "$status"
