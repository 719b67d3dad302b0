#!/bin/bash
# Exit statuses and the command line of `dlock run`.
. "$(dirname "$0")/../../support/cli.sh"

describe "the command's status is passed on"
for code in 0 1 7 63 75 126 255; do
    gives "exit $code" "$code" "$DLOCK" run s -- sh -c "exit $code"
    equal "exit $code is silent" "$out$err" ""
done
for sig in 1 2 3 6 9 15; do
    gives "death by signal $sig" $((128 + sig)) "$DLOCK" run s -- sh -c "ulimit -c 0; kill -$sig \$\$"
done

describe "commands that do not start release the lock"
touch "$work/plain"
printf '#!/nonexistent/interpreter\n' >"$work/script"
chmod +x "$work/script"
gives "not found" 127 "$DLOCK" run s no-such-command-anywhere
contains "not found is explained" "$err" no-such-command-anywhere
gives "free after 127" 0 "$DLOCK" run -n s true
for command in "$work/plain" "$work"; do
    gives "not executable: $command" 126 "$DLOCK" run s "$command"
    gives "free after 126" 0 "$DLOCK" run -n s true
done
gives "without its interpreter" 127 "$DLOCK" run s "$work/script"

describe "busy and timed out"
hold held
gives "-n" 1 "$DLOCK" run -n held true
equal "-n is silent" "$out$err" ""
for option in -nE9 --nb\ -E9 --nonblock\ --conflict-exit-code=9 "-w 0 -E 9" "-n -w 1000 -E 9"; do
    # shellcheck disable=SC2086
    gives "$option" 9 "$DLOCK" run $option held true
done
for option in "-w .3" "--wait 0.3" "--timeout=300ms"; do
    before=$(date +%s%3N)
    # shellcheck disable=SC2086
    run "$DLOCK" run -E 33 $option held true
    took=$(($(date +%s%3N) - before))
    equal "$option" "$status" 33
    if [ "$took" -lt 290 ] || [ "$took" -gt 5000 ]; then fail "$option took $took ms"; fi
done
gives "-E 0" 0 "$DLOCK" run -E 0 -n held false
gives "-v -n" 1 "$DLOCK" run -v -n held true
who="\"held\" is held by sleep on [^ ]*, pid $holder, for [0-9]+ s"
[[ $err =~ ^"dlock: "$who$ ]] || fail "-v says who has it" "$err"
run "$DLOCK" run -n held true
equal "without it nothing is said, for cron" "$status $err" "1 "
run "$DLOCK" run -v -w 10ms held true
[[ $err =~ "dlock: "$who$ ]] || fail "nor after a wait" "$err"
"$DLOCK" run -v -w 60 held true 2>"$work/waiter" &
waiter=$!
started+=("$waiter")
within 10 "-v says whom it waits for" grep -q "waiting for \"held\": held by sleep on .*, pid $holder, for .* (lease: until released)" "$work/waiter"
kill -TERM "$holder"
ends "the holder's status" 143 "$holder"
ends "a waiter gets it" 0 "$waiter"
contains "-v says that it got it" "$(<"$work/waiter")" 'got "held", fence '

describe "a line for the shell"
prints "with \$SHELL" "5 /bin/bash s" env SHELL=/bin/bash "$DLOCK" run s -c 'echo "$BASH" "$DLOCK_NAME"; exit 5'
prints "without \$SHELL" "6 hello" env -u SHELL "$DLOCK" run s --command 'echo hello; exit 6'
gives "-c without a line" 64 "$DLOCK" run s -c
gives "-c with too much" 64 "$DLOCK" run s -c 'true' more
gives "a line without -c" 127 "$DLOCK" run s 'echo hello'
contains "what to do is said" "$err" "dlock: use -c for a shell line: dlock run NAME -c 'LINE'"

describe "where options end"
prints "-- before the name" "0 x" "$DLOCK" run -- s echo -n x
prints "-- before the command" "0 x" "$DLOCK" run s -- echo -n x
for option in -n --hold --backend=redis://:hunter2@h; do
    gives "$option behind the name" 64 "$DLOCK" run s "$option" 1 true
    equal "the message" "$(sed -n 1p <<<"$err")" \
        "dlock: an option follows NAME: put it before NAME, or -- before a COMMAND that begins with -"
done
gives "but behind --" 127 "$DLOCK" run s -- -n
prints "flock's options, and the command's own" "0 " "$DLOCK" run -xeo --exclusive --close s echo -n

describe "wrong usage: words_test.sh has more of it"
wrong() { # WHAT ARGUMENT…
    local what=$1
    shift
    gives "$what" 64 "$DLOCK" "$@"
    if [ -z "$err" ]; then fail "$what says nothing"; fi
    equal "$what writes nothing to stdout" "$out" ""
}
wrong "no command"
wrong "no name" run
wrong "no command to run" run s
wrong "no command behind --" run s --
for bad in x "" -1 1y; do
    wrong "-w '$bad'" run -w "$bad" s true
    wrong "-l '$bad'" run -l "$bad" s true
done
wrong "-l 0" run -l 0 s true
wrong "-l below what the library takes" run -l 1ms s true
for bad in x "" -1 256 1x; do wrong "-E '$bad'" run -E "$bad" s true; done
for bad in x "" 0 -1 1x; do wrong "-p '$bad'" run -p "$bad" s true; done
wrong "an empty URI" run -b "" s true
contains "is no default" "$err" "URI: no scheme"
wrong "a URI that names no folder" run -b file:/dev/null/locks s true
wrong "a name with a newline" run $'a\nb' true
wrong "an empty name" run "" true
wrong "a name that is too long" run "$(printf '%0201d' 0)" true
for command in inspect break; do
    wrong "$command without a name" "$command"
    wrong "$command with two" "$command" a b
done
wrong "list with two" list a b
wrong "backends with one" backends a
wrong "help for what is not there" help bogus

describe "help and version"
for arguments in --help -h help "help run" "run --help" "run -h" "acquire --help" "renew --help" \
    "release --help" "inspect --help" "list --help" "break --help" \
    "backends --help"; do
    # shellcheck disable=SC2086
    gives "$arguments" 0 "$DLOCK" $arguments
    contains "$arguments" "$out" Usage:
    equal "$arguments is silent on stderr" "$err" ""
done
gives "--version" 0 "$DLOCK" --version
contains "--version" "$out" "dlock "
"$DLOCK" --version >/dev/full 2>/dev/null
equal "a full disk is noticed" "$?" 74
"$DLOCK" inspect nobody >/dev/full 2>/dev/null
equal "an answer that nobody got is none" "$?" 74
"$DLOCK" --version 2>/dev/null >&-
equal "a closed standard output is noticed" "$?" 74

describe "messages have no control sequences of terminals"
name=$'\xc2\x9b31m\x9b\xff… é\u202egpj.\u200b' # U+009B is what ESC [ is; the next two bytes are not UTF-8
hold "$name"
run "$DLOCK" run -v -n "$name" true
equal "they are masked" "$status ${err%% by *}" '1 dlock: "?31m??… é?gpj.?" is held'
run "$DLOCK" list
lacks "nor has a list" "$out" $'\u202e'
run "$DLOCK" list --json
contains "JSON escapes them" "$out" '\u202egpj.\u200b'
kill "$pid"

finish
