#!/bin/bash
# dlock doctor on files: what needs namespaces of its own. The rest is in tests/cli/doctor.sh.
. "$(dirname "$0")/lib.sh"

if ! unshare -Urm true 2>/dev/null; then
    echo "skipped: no namespaces to be had here"
    exit 77
fi
# inside COMMANDS: runs them and then the doctor on $work/locks.
inside() {
    # shellcheck disable=SC2016
    run unshare -Urm bash -c 'eval "$2" && exec "$DLOCK" doctor "file:$1"' - "$work/locks" "$1"
}
mkdir "$work/locks"
chmod 755 "$work/locks"

describe "no inotify"
inside 'echo 0 >/proc/sys/user/max_inotify_instances'
equal "status" "$status" 1
weak "inotify: " "fs.inotify.max_user_instances"
fine "room for more than 1000 lock files"

describe "a small file system"
inside 'mount -t tmpfs -o size=64k,mode=755 none "$1"'
equal "status" "$status" 1
weak "room for less than 1000 lock files" "make some"
fine "flock on a tmpfs file system"
fine "inotify wakes waiters"
inside 'mount -t tmpfs -o nr_inodes=100,mode=755 none "$1"'
equal "few inodes" "$status" 1
weak "room for less than 1000 lock files"
inside 'mount -t tmpfs -o mode=755 none "$1"'
equal "room enough" "$status" 0

finish
