#!/bin/bash
# compare.sh BUILD [OPTION…]: runs `dlock bench` with the floors on a server of every kind for which the build folder
# has a backend. Uses the servers that DLOCK_TEST_URI_… name; for the other kinds starts private servers, and stops them
# again. OPTIONs are those of `dlock bench`.
set -euo pipefail
if [ $# -lt 1 ] || [ ! -x "$1/bin/dlock" ]; then
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2
    exit 64
fi
build=$(realpath "$1")
shift
servers=$(dirname "$(realpath "$0")")/../../servers
folder=$(mktemp -d "${TMPDIR:-/tmp}/dlock-bench.XXXXXX")
chmod a+x "$folder" # for servers that run as another user
export DLOCK_TEST_DIR=$folder/work
mkdir "$DLOCK_TEST_DIR"

started=()
stop_servers() {
    local status=$? server
    trap - EXIT
    for server in "${started[@]}"; do "$servers/$server.sh" stop "$folder" || true; done
    rm -rf "$folder"
    exit "$status"
}
trap stop_servers EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

uris=()
for server in file redis memcached zookeeper etcd postgresql mysql quorum; do
    if ! "$build/bin/dlock" backends --json | grep -q "\"name\": \"$server\""; then continue; fi
    uri=DLOCK_TEST_URI_$server
    if [ -z "${!uri:-}" ]; then
        started+=("$server")
        settings=$("$servers/$server.sh" start "$folder")
        uris+=("$(sed -n "s/^$uri=//p" <<<"$settings")")
    else
        uris+=("${!uri}")
    fi
done
"$build/bin/dlock" bench "$@" "${uris[@]}"
