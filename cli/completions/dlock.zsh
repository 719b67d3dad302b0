#compdef dlock
# Completion for zsh. Commands, options and their values are read from the help of the installed command.

_dlock_program() { command ${~words_before[1]} "$@" 2>/dev/null </dev/null }

_dlock_commands() {
    local line
    local -a commands
    for line in ${(f)"$(_dlock_program --help | awk '@DLOCK_COMMANDS_AWK@')"}; do
        commands+=("${line%%$'\t'*}:${line#*$'\t'}")
    done
    _describe -t commands command commands
}

# Completes a value of the given kind, of an option or an argument.
_dlock_value() { # KIND
    local -a candidates
    case $1 in
    (URI)
        if [[ $PREFIX == file:* ]]; then
            compset -P file:
            _files -/
        else
            candidates=(${(f)"$(_dlock_program backends --json | awk '@DLOCK_URIS_AWK@')"})
            compadd -S '' -- $candidates
        fi
        ;;
    (FILE) _files ;;
    (FOLDER) _files -/ ;;
    (WORD) compadd -- term kill warn ;;
    (TIME|N|CODE|SHELLLINE|NAME|PREFIX) _message $1 ;;
    esac
}

_dlock() {
    local -a words_before=("${words[@]}") options fields
    local -A takes
    local command=$words[2] line option ended
    integer i names=0

    if (( CURRENT == 2 )); then
        _dlock_commands
        compadd -- --help --version
        return
    fi
    for line in ${(f)"$(_dlock_program help $command | awk '@DLOCK_OPTIONS_AWK@')"}; do
        fields=("${(@ps:\t:)line}")
        takes[$fields[1]]=$fields[2]
        options+=("$fields[1]:$fields[3]")
    done

    # Finds out whether the current word is an option's value, an option, or the argument after `names` others.
    for (( i = 3; i < CURRENT; i++ )); do
        option=$words[i]
        if [[ -z $ended && $option == -- ]]; then
            ended=yes
        elif [[ -z $ended && $option == -?* ]]; then
            if [[ $option != *=* && ${takes[$option]:-nothing} != nothing ]]; then
                if (( ++i == CURRENT )); then
                    _dlock_value $takes[$option]
                    return
                fi
            fi
        else
            (( names++ ))
            if [[ $command == run ]]; then
                (( i++ ))
                break
            fi
        fi
    done
    if [[ $command == run ]] && (( names == 1 )); then # after the name: -c or --, then the words of another command
        if [[ $words[i] == -- ]] && (( i < CURRENT )); then
            (( i++ ))
        elif [[ $words[i] == -* ]]; then
            compadd -- -c --command --
            return
        fi
        shift $(( i - 1 )) words
        (( CURRENT -= i - 1 ))
        _normal
        return
    fi
    if [[ -z $ended && $PREFIX == --*=* ]]; then
        option=${PREFIX%%=*}
        compset -P '*='
        _dlock_value ${takes[$option]:-nothing}
    elif [[ -z $ended && $PREFIX == -* ]]; then
        _describe -o option options
    else
        case $command$names in
        (help0) _dlock_commands ;;
        (schema0) compadd -- ${(f)"$(_dlock_program backends --json | grep -o '{"name": "[^"]*' | cut -d'"' -f4)"} ;;
        (doctor0|bench*) _dlock_value URI ;;
        (*) _message argument ;;
        esac
    fi
}

_dlock "$@"
