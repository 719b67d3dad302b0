#!/bin/bash
# Shows the failures of a run of CTest, whose output is in FILE:
#
#     tests/support/failed.sh names FILE           the failed tests, one per line, each with its kind of failure
#     tests/support/failed.sh output FILE LINES    the end of the output of each failed test, LINES lines in all, and before it
#                                          the first failed assertion of cmocka, where the end leaves it out
#     tests/support/failed.sh first FILE           the failed tests, one per line, each with the first failure that it printed
#
# Prints nothing, and fails, if no test has failed.
set -euo pipefail
if [ $# -lt 2 ]; then
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2
    exit 64
fi
awk -v show="$1" -v most="${3:-60}" '
    function least(a, b) { return a < b ? a : b }

    listed && !/^[\t ]*[0-9]+ - / { listed = 0 }
    listed {
        sub(/^[\t ]*[0-9]+ - /, "")
        failed[++count] = $0
    }
    /^The following tests FAILED:/ { listed = 1 }

    / Test +#[0-9]+: |^ +Start +[0-9]+: | tests passed/ {
        test = ""
        if (index($0, "***")) {
            test = $0
            sub(/^.* Test +#[0-9]+: /, "", test)
            sub(/ *\.*\*\*\*.*$/, "", test)
        }
        next
    }
    test != "" && NF {
        line[test, ++lines[test]] = $0
        if (/^\[ *LINE *\]|\] --- \[ *LINE *\]/ && !(test in assertion)) assertion[test] = lines[test]
        if (/^\[  ERROR   \]|^FAILED|^# .*[a-z]:[0-9]+: |[Ee]rror: |: expected|Sanitizer: / && !(test in failure)) failure[test] = $0
    }

    END {
        if (show == "output") {
            each = least(12, int(most / (count ? count : 1)))
            if (each < 4) each = 4
            for (i = 1; i <= count && most >= each; i++) {
                test = failed[i]
                sub(/ \([^()]*\)$/, "", test)
                n = least(each, lines[test])
                most -= n
                if (n) print "--- " test
                first = lines[test] - n + 1
                for (k = assertion[test] - 2; k <= assertion[test] && k < first; k++) {
                    if (k > 0) print line[test, k]
                }
                for (k = first; k <= lines[test]; k++) print line[test, k]
            }
        } else if (show == "first") {
            for (i = 1; i <= count; i++) {
                test = failed[i]
                sub(/ \([^()]*\)$/, "", test)
                said = test in failure ? failure[test] : lines[test] ? line[test, lines[test]] : failed[i]
                if (test in assertion && !(said ~ /LINE/)) said = said " " line[test, assertion[test]]
                print test ": " said
            }
        } else {
            for (i = 1; i <= least(count, 40); i++) print failed[i]
            if (count > 40) print "and " count - 40 " more"
        }
        exit !count
    }
' "$2"
