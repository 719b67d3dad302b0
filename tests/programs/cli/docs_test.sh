#!/bin/bash
# The man pages, one for each command, name every option, variable and exit status that the help names, and no command
# that does not exist.
. "$(dirname "$0")/../../support/cli.sh"

man=$(dirname "$0")/../../../docs/man
commands=$("$DLOCK" --help | sed -n 's/^  \([a-z]*\) .*/\1/p')
commands=${commands/help/}

describe "commands"
if [ "$(wc -w <<<"$commands")" -lt 6 ]; then fail "the overview names fewer than six: $commands"; fi
for page in "$man"/dlock-*.1; do
    command=${page##*/dlock-}
    grep -qwF "${command%.1}" <<<"$commands" || fail "$page is about no command"
done
for command in $commands; do
    describe "$command"
    page=$man/dlock-$command.1
    if [ ! -e "$page" ]; then
        fail "there is no $page"
        continue
    fi
    grep -q "^\.\(It \)\?Xr dlock-$command 1$\|^\.It .*Xr dlock-$command 1" "$man/dlock.1" || fail "dlock.1 does not lead to it"
    grep -q "^\.Nm dlock $command\$" "$page" || fail "it is not in the synopsis of $page"
    summary=$("$DLOCK" --help | sed -n "s/^  $command  *//p")
    equal "what it does, in one line" "$(sed -n 's/^\.Nd //p' "$page")" "$summary"
    help=$("$DLOCK" "$command" --help)
    options=$(grep -E '^ +-' <<<"$help" | grep -oE -- '(^|[ ,])--?[A-Za-z][a-z-]*' | tr -d ' ,')
    if [ -z "$options" ]; then fail "no options in its help"; fi
    for option in $options; do
        grep -qE "^\.It .*Fl ${option#-}( |\$)" "$page" || fail "$option is not in $page"
    done
    known=$(grep -oE '^\.It .*' "$page" | grep -oE -- 'Fl [-a-zA-Z]+|, [a-z]( |$)' | sed 's/Fl /-/; s/, /-/; s/ $//' | sort -u)
    for option in $known; do
        grep -qxF -- "$option" <<<"$options" || fail "$page has $option, which the help has not"
    done
    examples=$(sed '1,/^Examples:$/d' <<<"$help")
    case "$(wc -l <<<"$examples")" in
    2 | 3) ;;
    *) fail "its help does not end with two or three examples" "$help" ;;
    esac
    while read -r example; do
        contains "an example" "$example" "dlock $command"
        grep -qF -- "$example" "$page" || fail "the example \"$example\" is not in $page"
    done <<<"$examples"
    statuses=$(sed -n '/^Exit status/,/^$/p' <<<"${help/128 + n/}" | tr '\n' ' ' | grep -oE '(^|[ (])[0-9]+ ' | tr -d ' (')
    for number in $statuses; do
        grep -q "^\.It $number\$" "$page" "$man/dlock.1" || fail "exit status $number is not in $page"
    done
done

describe "variables"
for variable in DLOCK_URI DLOCK_NAME DLOCK_FENCE DLOCK_TOKEN DLOCK_PLUGIN_PATH; do
    grep -q "^\.\(It \)\?Ev $variable" "$man/dlock.1" || fail "$variable is not in the man page"
done

finish
