#!/bin/bash
# plugin_test.sh BUILD | --prefix PREFIX: does what docs/writing-a-backend.md says, step by step in an empty folder, with a dlock
# that it installs from BUILD under a temporary prefix, or that is installed under PREFIX already (and is left as it
# was, but for the new module). The conformance suite is one of the steps. Then the backend meets files that are not
# its own. CFLAGS and LDFLAGS are passed on.
set -euo pipefail
. "$(dirname "$0")/../common.sh" plugin
example=$source/examples/sqlite-backend
need_packages cmake make gcc libc6-dev libsqlite3-dev python3 binutils procps

case "${1:-}" in
--prefix) prefix=$(cd "$2" && pwd) ;;
'' | -*)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2
    exit 64
    ;;
*)
    prefix=$folder/prefix
    cmake --install "$1" --prefix "$prefix" >"$folder/log" 2>&1 || { cat "$folder/log" >&2; fail "installing"; }
    ;;
esac

# Nothing may leak in from outside.
unset DLOCK_PLUGIN_PATH DLOCK_URI LD_LIBRARY_PATH
export CMAKE_PREFIX_PATH=$prefix PATH=$prefix/bin:$PATH

# ---- the page, literally: its blocks of code are appended to the two files, its blocks of commands are run
mkdir "$folder/blocks" "$folder/empty"
awk -v blocks="$folder/blocks" '
    /^<!-- run by / { other = 1 } # of another test
    other         { other = !/^```$/; next }
    /^```[a-z]+$/ { out = sprintf("%s/%03d.%s", blocks, ++n, substr($0, 4)); next }
    /^```$/       { close(out); out = ""; next }
    out           { print > out }
' "$source/docs/writing-a-backend.md"
cd "$folder/empty"
for block in "$folder"/blocks/*; do
    case "$block" in
    *.c)
        if [ -e sqlite.c ]; then echo >>sqlite.c; fi
        cat "$block" >>sqlite.c
        ;;
    *.cmake) cat "$block" >>CMakeLists.txt ;;
    *.sh)
        set -x
        # shellcheck source=/dev/null
        . "$block"
        { set +x; } 2>/dev/null
        ;;
    *) fail "what is a block of ${block##*.}?" ;;
    esac
done

# ---- what came of it
module=$PWD/build/dlock-sqlite.so
for file in "$example"/*; do diff -u "$file" "${file##*/}" || fail "the page and ${file#"$source/"} differ"; done
[ "$(cat ./*.c | wc -l)" -le 200 ] || fail "more than 200 lines of C"
if nm -D --undefined-only "$module" | grep dlock; then fail "the module takes more of dlock than a header"; fi
[ "$(nm -D --defined-only "$module" | grep -c ' dlock_')" = 1 ] || fail "the module exports more than its table"
dlock backends | grep -q sqlite || fail "the installed module is not found"

# ---- a child that outlives its parent's client; the suite's children do not
here=$source/tests/package/plugin lib=$(dirname "$(find "$prefix" -name libdlock.so | head -n 1)")
# shellcheck disable=SC2086
gcc -Wall -Wextra -Werror ${CFLAGS:-} -I "$prefix/include" "$here/fork.c" -o "$folder/fork" ${LDFLAGS:-} \
    -L "$lib" -Wl,-rpath,"$lib" -ldlock
ASAN_OPTIONS=detect_leaks=0 timeout 60 "$folder/fork" sqlite:fork.db || fail "fork"

# ---- files that are not ours
refused() { # MENTION URI
    if dlock run -b "$2" name -- true 2>"$folder/error"; then fail "$2 is accepted"; fi
    grep -qF -- "$1" "$folder/error" || fail "$2: no \"$1\" in: $(cat "$folder/error")"
}
head -c 8192 /dev/urandom >noise.db
python3 - <<'END'
import sqlite3
for path, script in {
    "other.db": "CREATE TABLE locks (id)",
    "view.db": "CREATE VIEW locks AS SELECT x'61' AS name, 't' AS token, 1 AS fence, 9e18 AS expires_us",
    "huge.db": "CREATE TABLE locks (name BLOB PRIMARY KEY, token TEXT, fence INTEGER, expires_us INTEGER);"
               "INSERT INTO locks VALUES (x'6e616d65', 't', 9223372036854775807, 0)",
    "long.db": "CREATE TABLE locks (name BLOB PRIMARY KEY, token TEXT, fence INTEGER, expires_us INTEGER);"
               "INSERT INTO locks VALUES (zeroblob(1000), 't', 1, 9e18), (x'62', printf('%1000d', 1), 1, 9e18),"
               " (x'6100', 't', 1, 9e18), ('text', 't', 1, 9e18), (NULL, NULL, NULL, NULL)",
}.items():
    sqlite3.connect(path).executescript(script)
END
refused "not a database" "sqlite:noise.db"
refused "no such column" "sqlite:other.db"
refused "view" "sqlite:view.db"
refused "fence" "sqlite:huge.db"
refused "unable to open" "sqlite:no/such/folder.db"
refused "unable to open" "sqlite:$PWD"
refused "write sqlite:" "sqlite://host/path"
refused "write sqlite:" "sqlite:"
dlock run -b sqlite:long.db name -- dlock list -b sqlite:long.db >listed
grep -q '^name' listed || fail "not listed among rows of somebody else's: $(cat listed)"
dlock run -b sqlite::memory: name -- test -f :memory: || fail "a database in memory would lock nobody out"

# A holder whose database is taken away loses its lock, and is told.
status=0
dlock run -b 'sqlite:gone.db?lease=600ms' name -- sh -c 'rm gone.db*; exec sleep 30' 2>error || status=$?
if [ "$status" = 0 ] || ! grep -qi lost error; then fail "status $status without a database: $(cat error)"; fi

# A dlock that is killed: its guardian ends the command, and then the lock, whose lease lies in the file.
dlock run -b 'sqlite:killed.db?lease=10m' name -- sh -c 'echo $$ >command; exec sleep 600' &
killed=$!
for ((i = 0; i < 600; i++)); do
    if [ -s command ]; then break; fi
    sleep 0.1
done
guardian=$(pgrep -f "^dlock-guardian $killed\$")
kill -KILL "$killed"
wait "$killed" 2>/dev/null || true
status=0
timeout 60 dlock run -b sqlite:killed.db -w 30 name -- ps -o stat= -p "$(cat command)" >states || status=$?
if grep -v '^Z' states; then fail "the command of a killed dlock goes on"; fi
if [ "$status" -gt 1 ] || [ "$(dlock list -b sqlite:killed.db | grep -c '^name')" != 0 ]; then
    fail "status $status: the lock of a killed dlock is not free"
fi
timeout 60 tail --pid="$guardian" -f /dev/null || fail "the guardian of a killed dlock goes on" # while its database is there
echo "plugin: OK"
