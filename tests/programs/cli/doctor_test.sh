#!/bin/bash
# doctor and schema. DLOCK_TEST_MODULES is the folder of tests/package/abi's modules, which have nothing to check and no schema;
# DLOCK_TEST_SCHEMA is PostgreSQL's script.
. "$(dirname "$0")/../../support/cli.sh"
: "${DLOCK_TEST_MODULES:?}"

value() { python3 -c 'import json, sys; d = json.loads(sys.argv[2]); print(eval(sys.argv[1]))' "$1" "$out"; }

describe "all is fine"
mkdir "$work/locks"
chmod 755 "$work/locks"
gives "status" 0 "$DLOCK" doctor
equal "each line says so" "$(awk '{ print $1 }' <<<"$out" | sort -u)" fine
contains "what it looked at" "$out" "fine  directory $work/locks, mode 0755"
whole=$out
without_number() { sed 's/dlock:doctor:[0-9a-f]*/dlock:doctor:N/'; }
run env -u DLOCK_URI "$DLOCK" doctor "file:$work/locks"
equal "the URI alone" "$status $(without_number <<<"$out")" "0 $(without_number <<<"$whole")"
run env -u DLOCK_URI "$DLOCK" doctor -b "file:$work/locks"
equal "the URI with -b" "$status $(without_number <<<"$out")" "0 $(without_number <<<"$whole")"
run "$DLOCK" doctor --json
equal "JSON" "$status $(value '(sorted(d), d["backend"], d["health"])')" \
    "0 (['backend', 'capabilities', 'findings', 'health'], 'file', 'fine')"
equal "its findings" "$(value '(set(tuple(sorted(f)) for f in d["findings"]), set((f["health"], f["advice"]) for f in d["findings"]))')" \
    "({('advice', 'health', 'what')}, {('fine', None)})"
equal "as many as there are lines" "$(value 'len(d["findings"])')" "$(wc -l <<<"$whole")"

contains "and tried it" "$out" 'granted and released the lock \"dlock:doctor:'
run "$DLOCK" doctor --no-try
lacks "unless told not to" "$out" dlock:doctor:

describe "something is weak"
chmod 777 "$work/locks"
gives "status" 1 "$DLOCK" doctor
contains "what" "$out" "weak  directory $work/locks, mode 0777"$'\n'"      anybody may delete"
contains "no lock is granted there, either" "$out" "weak  does not grant and release locks: "
run "$DLOCK" doctor --no-try --json
equal "JSON" "$status $(value '(d["health"], [f["what"][-4:] for f in d["findings"] if f["health"] == "weak"])')" "1 ('weak', ['0777'])"
equal "its advice" "$(value '[f["advice"][-16:] for f in d["findings"] if f["advice"]]')" "['chmod +t, or o-w']"
prints "and no lock is granted" "69 " "$DLOCK" run job true
contains "with the advice" "$err" "$work/locks: anybody may delete"
chmod 1777 "$work/locks"
gives "with the sticky bit it is still weak" 1 "$DLOCK" doctor
contains "since" "$out" "weak  directory $work/locks, mode 1777"$'\n'"      anybody can create a lock's file first"
gives "unless that is what is wanted" 0 "$DLOCK" doctor "file:$work/locks?mode=0666"
contains "and said" "$out" "lock files are made with mode 0666"

describe "it cannot be asked"
export DLOCK_PLUGIN_PATH=$DLOCK_TEST_MODULES
prints "a backend without that operation" "69 " "$DLOCK" doctor --json toy:x
contains "why" "$err" "backend toy cannot look at its server's settings"
for uri in nosuchserver:x redis://127.0.0.1:1; do
    prints "$uri" "69 " "$DLOCK" doctor "$uri"
done

describe "wrong usage"
for arguments in "file:a file:b" "-b file:a file:b" "--nosuch" "-b" "redis://:hunter2@h?nosuch=hunter2" "://:hunter2@h"; do
    # shellcheck disable=SC2086
    prints "$arguments" "64 " "$DLOCK" doctor $arguments
    lacks "$arguments" "$err" hunter2
done

describe "schema"
prints "none is needed" "0 " "$DLOCK" schema file
contains "and it says so" "$err" "backend file needs nothing on its server"
prints "by a scheme" "0 " "$DLOCK" schema alias
contains "which is another backend's" "$err" "backend aliased needs nothing"
prints "one that cannot be loaded" "69 " "$DLOCK" schema needy
contains "says why" "$err" "backend needy cannot be loaded: "
for arguments in "" "file file" "redis://:hunter2@h" "nosuch" "--nosuch file"; do
    # shellcheck disable=SC2086
    prints "schema $arguments" "64 " "$DLOCK" schema $arguments
    lacks "schema $arguments" "$err" hunter2
done
run env -u DLOCK_PLUGIN_PATH "$DLOCK" schema nosuch
contains "the known ones" "$err" "there are: "
if env -u DLOCK_PLUGIN_PATH "$DLOCK" backends | grep -q '^postgresql '; then
    for word in postgresql postgres; do
        "$DLOCK" schema "$word" | cmp - "$DLOCK_TEST_SCHEMA" ||
            fail "dlock schema $word is not the script in the build"
    done
fi

finish
