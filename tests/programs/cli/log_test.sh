#!/bin/bash
# run --log: a line for each run, whatever its end; and log, which shows them.
. "$(dirname "$0")/../../support/cli.sh"

file=$work/runs.log
field() { tail -n 1 "$file" | python3 -c 'import json, sys; print(json.load(sys.stdin).get(sys.argv[1]))' "$1"; }

describe "a run that ends"
gives "the command's status" 3 "$DLOCK" run --log "$file" --label "a \"b\"" job -- sh -c 'exit 3'
equal "what it was" "$(field name) $(field label) $(field got) $(field status) $(field lost)" 'job a "b" True 3 False'
equal "who" "$(field host)" "$(hostname)"
if [ "$(field held_ms)" -lt 0 ] || [ "$(field waited_ms)" -lt 0 ]; then fail "times"; fi
if [[ ! "$(field fence)" =~ ^[1-9][0-9]+$ ]]; then fail "the fence"; fi

describe "runs that get no lock say who has it"
hold --label nightly.sh job
gives "busy" 1 "$DLOCK" run --log "$file" -n job true
contains "the holder" "$(field got) $(field status) $(field why)" "False 1 held by nightly.sh on "
gives "timed out" 1 "$DLOCK" run --log "$file" -w 0.2 job true
if [ "$(field waited_ms)" -lt 200 ]; then fail "the wait"; fi
kill -TERM "$holder"
wait "$holder"
gives "no server" 69 "$DLOCK" run --log "$file" -b redis://127.0.0.1:1 job true
contains "said" "$(field why)" "could not be used"

describe "a run that is killed by a signal, and one that loses its lock"
begin "$DLOCK" run --log "$file" job -- sleep 1000
within 10 "held" is_held job
kill -TERM "$pid"
ended "$pid"
equal "the signal" "$(field status)" 143
begin "$DLOCK" run -l 1 --log "$file" job -- sleep 1000
within 10 "held" is_held job
run "$DLOCK" break job
ended "$pid"
equal "lost" "$(field lost) $(field status)" "True 75"

describe "a log that cannot be written"
gives "said before the lock is asked for" 74 "$DLOCK" run --log "$work" job touch "$work/never"
contains "why" "$err" "cannot write the log $work: Is a directory"
if [ -e "$work/never" ]; then fail "the command ran"; fi
gives "a full disk changes nothing" 3 "$DLOCK" run --log /dev/full job -- sh -c 'exit 3'
contains "but is said" "$err" "cannot write the log /dev/full: No space left"

describe "dlock log"
run "$DLOCK" log "$file"
equal "status" "$status $err" "0 "
equal "a heading, and a line for each" "$(head -n 1 <<<"$out" | xargs) $(wc -l <<<"$out")" "START NAME BY WAITED HELD RESULT 7"
contains "a result" "$out" "status 3"
contains "a refusal" "$out" "not run: held by nightly.sh"
contains "a loss" "$out" "lost, status 75"
echo "nonsense" >>"$file"
gives "another lock" 0 "$DLOCK" run --log "$file" other true
run "$DLOCK" log --name other "$file"
equal "by its name" "$status $(wc -l <<<"$out")" "0 2"
contains "a bad line is named" "$err" "$file:7: skipped"
run "$DLOCK" log --since 1h --json - <"$file"
equal "as they are" "$(wc -l <<<"$out")" 7
equal "none is so new" "$("$DLOCK" log --json --since 2999-01-01 "$file" 2>/dev/null)" ""
equal "all are newer" "$("$DLOCK" log --json --since 2000-01-01 "$file" 2>/dev/null | wc -l)" 7
gives "no time" 64 "$DLOCK" log --since yesterday "$file"
contains "what to write" "$err" "a duration, such as 12h"
gives "no file" 74 "$DLOCK" log "$work/none"
printf '%s\n' '{"start": "x", "name": "\u00", "status": 1}' '{"start": "x"' '{' '{"a": {}}' '' >"$work/bad"
run "$DLOCK" log "$work/bad"
equal "damaged lines" "$status $(wc -l <<<"$out") $(grep -c skipped <<<"$err")" "0 1 5"

describe "lines of runs at the same time do not mix"
rm "$file"
for i in {1..20}; do "$DLOCK" run --log "$file" "job$i" true & runs[i]=$!; done
wait "${runs[@]}"
equal "whole lines" "$("$DLOCK" log --json "$file" | wc -l)" 20

finish
