#!/bin/bash
# models_test.sh MODEL.pml: searches all states of the model, and with DLOCK_FULL=1 those of each of its mutations, in which
# the search must find an error.
set -euo pipefail
name=$(basename "$1" .pml)
folder=$(mktemp -d "${TMPDIR:-/tmp}/dlock-model.XXXXXX")
trap 'rm -rf "$folder"' EXIT
cp "$1" "$folder"
cd "$folder"
model=$name.pml

# search MUTATION OPTIONS…: prints pan's report. Succeeds if the search found no error; ends the test if it was not
# complete.
search() {
    spin -a "-DMUTATION=$1" "$model" >spin.log 2>&1 || { cat spin.log && exit 1; }
    "${CC:-cc}" "${@:2}" -w -DSAFETY -o pan pan.c
    ./pan -m1000000 -w22 >report 2>&1 || true
    if ! grep -q "State-vector" report || grep -qE "max search depth too small|out of memory|aborted" report; then
        cat report
        echo "the search is incomplete: it ran out of depth or memory"
        exit 1
    fi
    cat report
    grep -q "errors: 0" report
}

if ! search 0 -O1; then
    spin -t -p -g "-DMUTATION=0" "$model" | tail -n 200
    echo "$name: the search found an error in the model or in the algorithm that it models; the trace is above"
    exit 1
fi
if [ -z "${DLOCK_FULL:-}" ]; then exit; fi
for mutation in $(sed -n 's/.*MUTATION [!=]= \([0-9]\).*/\1/p' "$model" | sort -u); do
    # An error is found in less time than -O1 takes to compile, and most errors are found sooner from the other end.
    if search "$mutation" -O0 -DREVERSE -DT_REVERSE >/dev/null; then
        echo "$name: mutation $mutation is not caught"
        exit 1
    fi
    echo "$name: mutation $mutation is caught: $(sed -n 's/^pan:[0-9]*: *//p' report | head -n 1)"
done
