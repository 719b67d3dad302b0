# Sourced by the tests of what others get, with the test's name: they run in `folder`, which is removed in the end. `source` is
# this project's root.
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$source/tests/packages.sh"

test_name=$1
fail() {
    echo "$test_name: FAILED: $*" >&2
    exit 1
}

folder=$(mktemp -d "${DLOCK_TEST_DIR:-${TMPDIR:-/tmp}}/dlock-$test_name.XXXXXX")
trap 'rm -rf "$folder"' EXIT
quietly() { "$@" >"$folder/log" 2>&1 || { cat "$folder/log" >&2; fail "$*"; }; }
