# shellcheck shell=bash
# Sourced by the tests of dlock doctor against real servers, which they start themselves, with good settings and bad ones.
#
#     settings URI [STATUS]   runs the doctor, without its try; it must exit with STATUS, default 0. Sets $out
#     fine TEXT               $out has a fine line that begins with TEXT
#     weak TEXT [ADVICE]      … a weak one, and below it ADVICE somewhere
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../../../support/cli.sh"
. "$here/../../../servers/common.sh"
# shellcheck disable=SC2034 # for common.sh
folder=$work
chmod a+x "$work" # for servers that run as another user

settings() {
    run "$DLOCK" doctor --no-try "$1"
    equal "status" "$status" "${2:-0}"
}

fine() { contains "fine: $1" $'\n'"$out" $'\n'"fine  $1"; }

weak() {
    local line advice
    contains "weak: $1" $'\n'"$out" $'\n'"weak  $1"
    line=$(grep -nF "weak  $1" <<<"$out" | head -n 1 | cut -d: -f1)
    advice=$(sed -n "$((${line:-0} + 1))p" <<<"$out")
    contains "advice for: $1" "$advice" "      "
    contains "advice for: $1" "$advice" "${2:-}"
}
