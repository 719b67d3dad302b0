#!/bin/bash
# inspect, list, break and backends, for people and as JSON.
. "$(dirname "$0")/../../support/cli.sh"

# value EXPRESSION: of the JSON document `d` in $out.
value() { python3 -c 'import json, sys; d = json.loads(sys.argv[2]); print(eval(sys.argv[1]))' "$1" "$out"; }

odd=$'qu"ote\\ \xc3\xa9 \xff end'

describe "nothing is held"
prints "inspect" "1 free  free" "$DLOCK" inspect free
prints "inspect --json" '1 {"name": "free", "held": false, "holders": []}' "$DLOCK" inspect --json free
prints "list" "0 " "$DLOCK" list
prints "list --json" '0 {"prefix": "", "holders": []}' "$DLOCK" list --json
prints "break" "1 free  free" "$DLOCK" break free
prints "break --json" '1 {"name": "free", "broken": false}' "$DLOCK" break --json free

describe "something is held"
for name in beta "alpha two" "$odd" alpha; do hold "$name"; done
gives "inspect" 0 "$DLOCK" inspect alpha
equal "a heading" "$(sed -n '1s/  */ /gp' <<<"$out")" "NAME MODE HELD BY FOR WAITERS EXPIRES"
host=$(hostname | cut -c 1-40 | tr -c 'A-Za-z0-9.\n-' _)
pattern="^alpha  exclusive  $host\[$pid\] sleep  [0-9.]+s +0 +until released$"
[[ $(sed -n 2p <<<"$out") =~ $pattern ]] || fail "the holder, and since when" "$out"
gives "inspect --wide" 0 "$DLOCK" inspect --wide alpha
equal "a wide heading" "$(sed -n '1s/  */ /gp' <<<"$out")" "NAME MODE HELD BY FOR WAITERS EXPIRES FENCE TOKEN"
contains "the token" "$out" "@$host:$pid@sleep"
gives "break shows nothing" 64 "$DLOCK" break --wide alpha
gives "inspect --json" 0 "$DLOCK" inspect --json alpha
equal "its members" "$(value 'sorted(d) == ["held", "holders", "name"] and sorted(d["holders"][0])')" \
    "['fence', 'held_ms', 'host', 'label', 'limit', 'mode', 'name', 'pid', 'remaining_ms', 'token', 'until_released', 'waiters']"
equal "their values" "$(value '[d["held"], d["name"], [(h["name"], h["mode"], h["limit"], h["waiters"]) for h in d["holders"]]]')" \
    "[True, 'alpha', [('alpha', 'exclusive', 1, 0)]]"
equal "who" "$(value '[(h["host"], h["pid"], h["label"], h["held_ms"] >= 0) for h in d["holders"]]')" "[('$host', $pid, 'sleep', True)]"
equal "a fence is a string of digits" "$(value 'd["holders"][0]["fence"].isdigit()')" True
equal "remaining time" "$(value '(d["holders"][0]["remaining_ms"], d["holders"][0]["until_released"])')" "(None, True)"
run "$DLOCK" list
equal "list is sorted" "$(awk -F '  +' '{ printf "%s,", $1 }' <<<"$out")" $'NAME,alpha,alpha two,beta,qu"ote\\ \xc3\xa9 ? end,'
run "$DLOCK" list --json alpha
equal "list with a prefix" "$(value '[h["name"] for h in d["holders"]]')" "['alpha', 'alpha two']"
run "$DLOCK" list --json beta --backend "$DLOCK_URI"
equal "options may follow" "$status $(value 'len(d["holders"])')" "0 1"

describe "labels"
hold --label $'50% off \xc3\xa9' labelled
run "$DLOCK" list --json labelled
equal "a label" "$(value '[h["label"] for h in d["holders"]]')" "['50% off é']"
hold -b "$DLOCK_URI?label=of%20the%20uri" labelled-2
run "$DLOCK" list labelled-2
contains "the URI's counts more than the command" "$out" "] of the uri  "
hold -b "$DLOCK_URI?label=of%20the%20uri" --label "" labelled-3
run "$DLOCK" list labelled-3
contains "and less than --label" "$out" "[$pid]  "
gives "too long" 64 "$DLOCK" run --label "$(printf '%049d' 0)" s true
equal "the message" "$err" "dlock: the label is longer than 48 bytes"
gives "an escape sequence" 64 "$DLOCK" run --label $'\e[2J' s true
equal "is not repeated" "$err" "dlock: the label has a control character"
export SHELL # bash sets it without
label() { "$DLOCK" run s -c "$1" | python3 -c 'import json, sys; print(json.load(sys.stdin)["holders"][0]["label"])'; }
equal "a shell line's first word" "$(label "\"$DLOCK\" inspect --json s")" "$(basename "${SHELL:-/bin/sh}")"
equal "of a path" "$(label "$DLOCK inspect --json s")" "$(basename "$DLOCK")"
equal "but no value" "$(label "PASSWORD=secret $DLOCK inspect --json s")" "$(basename "${SHELL:-/bin/sh}")"
ln -s "$DLOCK" "$work/"$'a\e[2J\x9b\xc3\xa9'"$(printf 'x%.0s' {1..60})"
"$DLOCK" run s "$work/"a* inspect --json s >"$work/out"
out=$(<"$work/out")
equal "of a hostile name" "$(value 'd["holders"][0]["label"]')" "a?[2J?é$(printf 'x%.0s' {1..40})"

describe "--watch"
begin_heard "$DLOCK" inspect --watch watched
watcher=$pid
within 10 "free" grep -q '  free$' "$work/bg.out"
cp "$work/bg.out" "$work/first"
"$DLOCK" run watched -- sh -c "until grep -q 'held by sh on $host, pid ' '$work/bg.out'; do sleep 0.1; done"
within 10 "free again" eval '[ "$(grep -c "  free$" "$work/bg.out")" = 2 ]'
equal "a line for each change" "$(sed 's/^[-0-9]* [0-9:]*  //; s/, pid.*//' "$work/bg.out")" "free
held by sh on $host
free"
kill "$watcher"

describe "names that are awkward in JSON"
gives "status" 0 "$DLOCK" inspect --json "$odd"
json_of <<<"$out" || fail "this is no JSON" "$out"
equal "what is not UTF-8 becomes U+FFFD" "$(value 'd["name"] == d["holders"][0]["name"] == "qu\"ote\\ \u00e9 \ufffd end"')" True
run "$DLOCK" list --json
json_of <<<"$out" || fail "this is no JSON" "$out"
iconv -f UTF-8 -t UTF-8 "$work/out" >/dev/null || fail "this is no UTF-8"
run "$DLOCK" inspect "$odd"
iconv -f UTF-8 -t UTF-8 "$work/out" >/dev/null || fail "the table is no UTF-8"

describe "break"
hold -l 3 victim
prints "break" "0 victim  broken" "$DLOCK" break victim
ends "its holder" 75 "$pid"
contains "is told" "$(<"$work/bg.err")" 'lost the lock "victim"'
hold -l 3 victim
prints "break --json" '0 {"name": "victim", "broken": true}' "$DLOCK" break --json victim
ended "$pid"

describe "backends"
gives "status" 0 "$DLOCK" backends
contains "a heading" "$out" "               fence       shared      list        session     floor
                   queue       permit      break       volatile    lease
NAME                   wake        inspect     export      wanted
"
contains "a row" "$out" "
file           x   -   x   x   x   x   x   x   -   x   -   x   -   -
"
contains "its scheme" "$out" "
file           file (threadsafe) (local)
"
run "$DLOCK" backends --json
equal "file is there" "$status $(value '[(b["schemes"], b["error"]) for b in d["backends"] if b["name"] == "file"]')" \
    "0 [(['file'], None)]"
equal "members" "$(value 'all(sorted(b) == ["capabilities", "error", "name", "path", "schemes"] for b in d["backends"])')" True
equal "capabilities are words" "$(value '"fence" in [b for b in d["backends"] if b["name"] == "file"][0]["capabilities"]')" True
mkdir "$work/modules"
echo "no module" >"$work/modules/dlock-broken.so"
run env DLOCK_PLUGIN_PATH="$work/modules" "$DLOCK" backends --json
equal "one that cannot be loaded" "$status $(value '[bool(b["error"]) for b in d["backends"] if b["name"] == "broken"]')" "0 [True]"
run env DLOCK_PLUGIN_PATH="$work/modules" "$DLOCK" backends
contains "and in the list" "$out" "broken         $work/modules/dlock-broken.so:"

describe "failures write nothing to stdout"
for command in "inspect --json x" "list --json" "break --json x"; do
    # shellcheck disable=SC2086
    prints "$command" "69 " "$DLOCK" $command -b nosuchserver:x
done

finish
