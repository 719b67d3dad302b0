# Completion for bash. Commands, options and their values are read from the help of the installed command.

_dlock_program() {
    local program=${COMP_WORDS[0]/#\~\//$HOME/}
    command "$program" "$@" 2>/dev/null </dev/null
}

# Joins the pieces into which bash cuts words at each ":" and "=". Sets `words`, the words up to the cursor, and `at`,
# for each word the index in COMP_WORDS of its last piece.
_dlock_join() {
    local i piece glue=
    words=() at=()
    for ((i = 0; i <= COMP_CWORD; i++)); do
        piece=${COMP_WORDS[i]}
        if [[ ${#words[@]} -gt 1 && ($glue || $piece == [:=]*) ]]; then
            words[-1]+=$piece
            at[-1]=$i
        else
            words+=("$piece") at+=("$i")
        fi
        glue=
        if [[ $piece == *[:=] ]]; then glue=yes; fi
    done
}

# Offers the candidates that begin as the current word. Where bash cuts at ":" or "=", offers only what follows the last
# of these in the current word.
_dlock_reply() { # CURRENT CANDIDATE…
    local current=$1 cut= mark word
    shift
    for mark in : =; do
        if [[ $COMP_WORDBREAKS == *$mark* && $current == *$mark* && ${#current} -gt ${#cut} ]]; then
            word=${current%"${current##*"$mark"}"}
            if [ ${#word} -gt ${#cut} ]; then cut=$word; fi
        fi
    done
    for word; do
        if [[ $word == "$current"* ]]; then COMPREPLY+=("${word#"$cut"}"); fi
    done
}

# Completes a value of the given kind, of an option or an argument.
_dlock_value() { # KIND CURRENT [BEFORE IT]
    local candidates
    case "$1" in
    URI)
        if [[ $2 == file:* ]]; then
            mapfile -t candidates < <(compgen -d -- "${2#file:}")
            candidates=("${candidates[@]/#/file:}")
        else
            mapfile -t candidates < <(_dlock_program backends --json | awk '@DLOCK_URIS_AWK@')
        fi
        compopt -o nospace
        _dlock_reply "$2" "${candidates[@]}"
        ;;
    FILE | FOLDER)
        compopt -o filenames
        mapfile -t COMPREPLY < <(if [ "$1" = FILE ]; then compgen -f -- "$2"; else compgen -d -- "$2"; fi)
        ;;
    WORD) _dlock_reply "$2" term kill warn ;;
    *) ;;
    esac
}

_dlock() {
    local words at current command options option value rest i=2 names=0 ended=
    _dlock_join
    COMPREPLY=()
    current=${words[-1]}
    if [ ${#words[@]} -le 2 ]; then
        mapfile -t rest < <(_dlock_program --help | awk '@DLOCK_COMMANDS_AWK@' | cut -f1)
        _dlock_reply "$current" "${rest[@]}" --help --version
        return
    fi
    command=${words[1]}
    local -A takes=()
    while IFS=$'\t' read -r option value rest; do
        takes[$option]=$value
    done < <(_dlock_program help "$command" | awk '@DLOCK_OPTIONS_AWK@')

    # Finds out whether the current word is an option's value, an option, or the argument after `names` others.
    for (( ; i < ${#words[@]} - 1; i++)); do
        option=${words[i]}
        if [[ ! $ended && $option == -- ]]; then
            ended=yes
        elif [[ ! $ended && $option == -?* ]]; then
            if [[ $option != *=* && ${takes[$option]:-nothing} != nothing ]]; then
                if ((++i == ${#words[@]} - 1)); then
                    _dlock_value "${takes[$option]}" "$current"
                    return
                fi
            fi
        else
            names=$((names + 1))
            if [[ $command == run ]]; then
                i=$((i + 1))
                break
            fi
        fi
    done
    if [[ $command == run && $names == 1 ]]; then # after the name: -c or --, then the words of another command
        if [[ ${words[i]} == -- && $i -lt $((${#words[@]} - 1)) ]]; then
            i=$((i + 1))
        elif [[ ${words[i]} == -* ]]; then
            _dlock_reply "$current" -c --command --
            return
        fi
        if declare -F _comp_command_offset >/dev/null; then
            _comp_command_offset "${at[i]}"
        elif declare -F _command_offset >/dev/null; then
            _command_offset "${at[i]}"
        elif [ "$i" = $((${#words[@]} - 1)) ]; then
            mapfile -t COMPREPLY < <(compgen -c -- "$current")
        else
            compopt -o default
        fi
        return
    fi
    if [[ ! $ended && $current == --*=* ]]; then
        option=${current%%=*}
        _dlock_value "${takes[$option]:-nothing}" "${current#*=}"
    elif [[ ! $ended && $current == -* ]]; then
        _dlock_reply "$current" "${!takes[@]}"
    else
        case "$command$names" in
        help0)
            mapfile -t rest < <(_dlock_program --help | awk '@DLOCK_COMMANDS_AWK@' | cut -f1)
            _dlock_reply "$current" "${rest[@]}"
            ;;
        schema0)
            mapfile -t rest < <(_dlock_program backends --json | grep -o '{"name": "[^"]*' | cut -d'"' -f4)
            _dlock_reply "$current" "${rest[@]}"
            ;;
        doctor0 | bench*) _dlock_value URI "$current" ;;
        esac
    fi
}
complete -F _dlock dlock
