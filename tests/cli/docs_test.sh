#!/bin/bash
# The man page names every command, option, variable and exit status that the help names.
. "$(dirname "$0")/lib.sh"

page=$(dirname "$0")/../../docs/man/dlock.1
commands=$("$DLOCK" --help | sed -n 's/^  \([a-z]*\) .*/\1/p')

describe "commands"
if [ "$(wc -w <<<"$commands")" -lt 6 ]; then fail "the overview names fewer than six: $commands"; fi
for command in $commands; do
    grep -q "^\.Nm dlock $command\$" "$page" || fail "$command is not in the synopsis"
    if [ "$command" = help ]; then continue; fi
    grep -q "^\.Ss dlock $command\$" "$page" || fail "$command has no section"

    describe "$command"
    help=$("$DLOCK" "$command" --help)
    options=$(grep -E '^ +-' <<<"$help" | grep -oE -- '(^|[ ,])--?[A-Za-z][a-z-]*' | tr -d ' ,')
    if [ -z "$options" ]; then fail "no options in its help"; fi
    for option in $options; do
        grep -qE "^\.(It|Op|Nm|Fl).*Fl ${option#-}( |\$)" "$page" || fail "$option is not in the man page"
    done
    statuses=$(sed -n '/^Exit status/,$p' <<<"${help/128 + n/}" | tr '\n' ' ' | grep -oE '(^|[ (])[0-9]+ ' | tr -d ' (')
    for number in $statuses; do
        grep -q "^\.It $number\$" "$page" || fail "exit status $number is not in the man page"
    done
done

describe "variables"
for variable in DLOCK_URI DLOCK_NAME DLOCK_FENCE DLOCK_TOKEN DLOCK_PLUGIN_PATH; do
    grep -q "^\.\(It \)\?Ev $variable" "$page" || fail "$variable is not in the man page"
done

finish
