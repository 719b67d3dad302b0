#!/bin/bash
# hung_test.sh BACKEND: a helper program that takes its time to start, or never does.
. "$(dirname "$0")/../../support/cli.sh"
: "${BUILD:?the folder of the build}"
backend=$1 server=DLOCK_TEST_URI_$1
export DLOCK_URI=${!server:?"no server for $1: run the tests with tests/run.sh"}
name=hung-$$

# The library of the build, with our helper in place of its own.
guardian=$(cd "$BUILD" && echo libexec/dlock/*/dlock-guardian)
mkdir -p "$work/tree/$(dirname "$guardian")"
cp -r "$BUILD/lib" "$work/tree/lib"
export LD_LIBRARY_PATH=$work/tree/lib
cat >"$work/tree/$guardian" <<END
#!/bin/sh
if [ -e "$work/hangs" ]; then echo \$\$ >"$work/sleeper"; exec sleep 1000; fi
if [ -e "$work/slow" ]; then sleep 10; fi
exec "$BUILD/$guardian" "\$@"
END
chmod +x "$work/tree/$guardian"
# It blocks the signals that it may.
end_sleeper() {
    if [ ! -s "$work/sleeper" ]; then return; fi
    kill -KILL "$(cat "$work/sleeper")"
    rm "$work/sleeper"
}
at_exit+=(end_sleeper)
guardian_of() { pgrep -f "dlock-guardian $1\$"; }
has_guardian() { guardian_of "$1" >/dev/null; }

describe "a lock outlives its guardian, and one in its place that never comes up"
case $DLOCK_URI in *\?*) slow="$DLOCK_URI&timeout=30s" ;; *) slow="$DLOCK_URI?timeout=30s" ;; esac
begin "$DLOCK" run -b "$slow" -l 3s "$name" -- sh -c "echo in >\"$work/in\"; sleep 9; echo done >\"$work/done\""
holder=$pid
within 20 "the command runs" written "$work/in"
within 20 "it has a guardian" has_guardian "$holder"
touch "$work/hangs"
kill -KILL "$(guardian_of "$holder")"
within 20 "another one is started" written "$work/sleeper"
within 30 "the command ends under its lock" written "$work/done"
end_sleeper
within 30 "dlock run ends" gone "$holder"
rm "$work/hangs"

describe "opening a client takes one time-out, for the guardian and the server together"
touch "$work/slow"
python3 -c '
import socket, sys, time
kept = socket.create_server(("127.0.0.1", 0))
print(kept.getsockname()[1], flush=True)
time.sleep(1000)' >"$work/port" &
started+=($!)
within 20 "there is a server that says nothing" written "$work/port"
SECONDS=0
gives "it cannot be reached" 69 "$DLOCK" run -b "$backend://127.0.0.1:$(cat "$work/port")?timeout=15s" "$name" -- true
if [ "$SECONDS" -ge 22 ]; then fail "it took $SECONDS s"; fi

finish
