#!/bin/bash
# Tests `dlock bench --html`: the page is complete and has the same figures as --json, and texts from a server or a URI
# cannot break out of their places. Does not check the appearance.
. "$(dirname "$0")/../../support/cli.sh"

export DLOCK_PLUGIN_PATH=$DLOCK_TEST_BROKEN
page=$work/page.html
bench=("$DLOCK" bench --time 100ms --rounds 1 --threads 4 --waiters 3 --locks 5 --lease 100ms --html "$page")

# check_page [JSON]: checks the page, and sets $text to its text
check_page() {
    text=$(python3 "$(dirname "$0")/page.py" "$page" "$@" 2>&1) || fail "the page" "$text"
}

describe "all workloads"
gives "status" 0 "${bench[@]}" --json --floors "$DLOCK_TEST_FLOORS" "$DLOCK_URI" "file:$work/others"
check_page "$work/out"
contains "the verdict" "$text" "Exclusion held"
contains "what it begins with" "$text" "An uncontended acquire and release takes "
contains "where the lock is handed over" "$text" "; its hand-over to another process takes "
contains "what the chart of all shows" "$text" "file#2: cycle "
# Each server's crash is tried a few times only.
grep -qE 'a dead holder after [^;]*\(file(#2)?, [0-9]+ samples?\)' <<<"$text" || fail "few samples, where the page begins" "$text"
grep -qE '^crash.* of [0-9]+' <<<"$text" || fail "few samples, in the overview" "$text"
contains "a word on promises" "$text" "The servers promise different things"
contains "the version" "$text" "dlock $("$DLOCK" --version | grep -o '[0-9.]*$')"
contains "the kernel" "$text" "$(uname -r)"
contains "what the server is" "$text" "inotify wakes waiters"
contains "the command" "$text" "${bench[*]:2} --json"
contains "the floor" "$text" "Relative to the floor"
contains "other software" "$text" "Other software, on the same server: flock(1) of util-linux"
lacks "it in the title" "${text%%Exclusion held*}" "file, flock(1)"
equal "nothing is left beside it" "$(ls "$work"/page.html*)" "$page"
equal "its mode" "$(stat -c %a "$page")" "$(printf %o $((0666 & ~$(umask))))"

describe "labels"
run "${bench[@]}" --workload cycle --label "first=everybody://rapunzel:secret@127.0.0.1/" --label=second="$DLOCK_URI" "$DLOCK_URI"
check_page
contains "they come first" "$text" "Locks on first, second, file"
contains "what stands for them in the command" "$text" "--workload cycle first:… second:… file:…"
lacks "the password" "$(<"$page")" secret

describe "with the table, on a link, over an older page"
chmod 640 "$page"
ln -s page.html "$work/link"
gives "status" 0 "${bench[@]}" --workload cycle --html "$work/link"
contains "the table" "$out" WORKLOAD
check_page
lacks "the older page" "$text" hand-over
equal "the link and the mode stay" "$(readlink "$work/link") $(stat -c %a "$page")" "page.html 640"

describe "hostile words"
evil="<script>alert(1)</script><!--&quot;\"'&amp;]]>"
strange=$'\xff\x01'
# A file's name can have no slash.
gives "status" 0 "${bench[@]}" --workload cycle --floors "$evil$strange" "file:$work/${evil//\//|}"
check_page
contains "the command" "$text" "--floors '<script>alert(1)</script><!--&quot;\"'\\''&amp;]]>��'"
contains "the folder" "$text" "directory $work/<script>alert(1)<|script><!--"

describe "a hostile server"
gives "status" 69 "${bench[@]}" --json --workload cycle hostile: "$DLOCK_URI"
check_page "$work/out"
contains "the error" "$text" "hostile, cycle: </script>"
contains "the server" "$text" "weak: </script></title><!--<img src=x onerror=alert(1)>&\"'�"

describe "a backend that grants everybody"
gives "status" 1 "${bench[@]}" --workload hand-over-10ms "everybody://rapunzel:secret@127.0.0.1/?lease=7s"
check_page
contains "the verdict" "$text" "Exclusion was violated"
contains "which" "$text" "everybody, hand-over-10ms/4: two held"
lacks "the password" "$(<"$page")" secret
lacks "anything of the URI but its scheme" "$(<"$page")" rapunzel

describe "interrupted"
rm "$page"
begin "${bench[@]}" --time 60s --rounds 1000 --workload cycle "file:$work/fresh"
within 60 "it measures" [ -e "$work/fresh/dlock-bench:cycle:0" ]
kill -INT "$pid"
ends "status" 130 "$pid"
check_page
contains "it is said" "$text" "The run was interrupted"

describe "a page that cannot be written"
for place in "$work/no/page.html" "$work" ""; do
    gives "$place" 74 timeout 20 "$DLOCK" bench --time 1h --html "$place"
    contains "$place is named" "$err" "dlock: --html: cannot write \"$place\": "
    equal "$place: nothing was run" "$out" ""
done
gives "a full disk" 74 "${bench[@]}" --workload cycle --html /dev/full
contains "is said" "$err" 'dlock: --html: cannot write "/dev/full": No space left on device'
contains "after the table" "$out" "cycle "

finish
