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
contains "a heading" "$out" "NAME   MODE       FENCE"
contains "the holder" "$out" "@$(hostname):"
contains "where it is" "$out" "WAITERS  HOST"
contains "where it is" "$out" "  PID"
host=$(hostname | cut -c 1-40 | tr -c 'A-Za-z0-9.\n-' _)
equal "host and process" "$(awk -F '  +' 'NR == 2 { print $6, $7 }' <<<"$out")" "$host $(sed 's/.*://' <<<"$out" | tail -n 1)"
gives "inspect --json" 0 "$DLOCK" inspect --json alpha
equal "its members" "$(value 'sorted(d) == ["held", "holders", "name"] and sorted(d["holders"][0])')" \
    "['fence', 'host', 'limit', 'mode', 'name', 'pid', 'remaining_ms', 'token', 'until_released', 'waiters']"
equal "their values" "$(value '[d["held"], d["name"], [(h["name"], h["mode"], h["limit"], h["waiters"]) for h in d["holders"]]]')" \
    "[True, 'alpha', [('alpha', 'exclusive', 1, 0)]]"
equal "host and process" "$(value '(d["holders"][0]["host"], d["holders"][0]["token"].endswith("@%s:%d" % (d["holders"][0]["host"], d["holders"][0]["pid"])))')" "('$host', True)"
equal "a fence is a string of digits" "$(value 'd["holders"][0]["fence"].isdigit()')" True
equal "remaining time" "$(value '(d["holders"][0]["remaining_ms"], d["holders"][0]["until_released"])')" "(None, True)"
run "$DLOCK" list
equal "list is sorted" "$(awk -F '  +' '{ printf "%s,", $1 }' <<<"$out")" $'NAME,alpha,alpha two,beta,qu"ote\\ \xc3\xa9 ? end,'
run "$DLOCK" list --json alpha
equal "list with a prefix" "$(value '[h["name"] for h in d["holders"]]')" "['alpha', 'alpha two']"
run "$DLOCK" list --json beta --backend "$DLOCK_URI"
equal "options may follow" "$status $(value 'len(d["holders"])')" "0 1"

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
contains "a heading" "$out" "               fence     wake      permit    list      export    volatile  floor
NAME                queue     shared    inspect   break     session   wanted"
contains "a row" "$out" "
file           x    -    x    x    x    x    x    x    -    x    -    x    -
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
