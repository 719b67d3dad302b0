# Sourced by the tests of examples: a folder for their output, which their clean_up deletes.
work=$(mktemp -d "${DLOCK_TEST_DIR:-${TMPDIR:-/tmp}}/examples.XXXXXX")
export XDG_STATE_HOME=$work/state

fail() {
    echo "examples: FAILED: $*" >&2
    cat "$work"/*.out "$work"/*.err >&2 || true
    exit 1
}
# Waits until a file contains a text.
until_says() {
    local i
    for ((i = 0; i < 200; i++)); do
        if grep -q -- "$2" "$1" 2>/dev/null; then return 0; fi
        sleep 0.1
    done
    fail "no \"$2\" in $1"
}
