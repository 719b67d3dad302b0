# Completion for fish. Commands, options and their values are read from the help of the installed command.

function __dlock_program
    set -l words (commandline -opc)
    set -l program (string replace -r '^~/' "$HOME/" -- $words[1])
    command $program $argv 2>/dev/null </dev/null
end

function __dlock_commands
    __dlock_program --help | awk '@DLOCK_COMMANDS_AWK@'
end

# Completes a value of the given kind, of an option or an argument.
function __dlock_value # KIND CURRENT
    switch $argv[1]
        case URI
            if string match -q 'file:*' -- $argv[2]
                string replace -r -- '^' file: (__fish_complete_directories (string replace file: '' -- $argv[2]) '')
            else
                __dlock_program backends --json | awk '@DLOCK_URIS_AWK@'
            end
        case FILE
            __fish_complete_path $argv[2]
        case FOLDER
            __fish_complete_directories $argv[2] ''
        case WORD
            printf '%s\n' term kill warn
    end
end

function __dlock_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l command $words[2]
    if test (count $words) -lt 2
        __dlock_commands
        printf '%s\n' --help --version
        return
    end
    set -l options
    set -l values
    set -l lines (__dlock_program help $command | awk '@DLOCK_OPTIONS_AWK@')
    for line in $lines
        set -l fields (string split \t -- $line)
        set -a options $fields[1]
        set -a values $fields[2]
    end

    # Finds out whether the current word is an option's value, an option, or the argument after `names` others.
    set -l i 3
    set -l names 0
    set -l ended
    while test $i -le (count $words)
        set -l option $words[$i]
        set i (math $i + 1)
        if test -z "$ended"; and test "$option" = --
            set ended yes
        else if test -z "$ended"; and string match -qr -- '^-.' $option
            set -l at (contains -i -- $option $options)
            if test -n "$at"; and test $values[$at] != nothing
                if test $i -gt (count $words)
                    __dlock_value $values[$at] $current
                    return
                end
                set i (math $i + 1)
            end
        else
            set names (math $names + 1)
            if test $command = run
                break
            end
        end
    end
    if test "$command $names" = 'run 1' # after the name: -c or --, then the words of another command
        if test "$words[$i]" = --
            set i (math $i + 1)
        else if string match -q -- '-*' "$words[$i]$current"
            printf '%s\n' -c --command --
            return
        end
        complete -C (string join ' ' -- (string escape -- $words[$i..-1]) $current)
        return
    end
    if test -z "$ended"; and string match -q -- '--*=*' $current
        set -l parts (string split -m 1 = -- $current)
        set -l at (contains -i -- $parts[1] $options)
        if test -n "$at"
            string replace -r -- '^' "$parts[1]=" (__dlock_value $values[$at] $parts[2])
        end
    else if test -z "$ended"; and string match -q -- '-*' $current
        printf '%s\n' $lines | string replace -r '\t[A-Za-z]+\t' \t
    else
        switch $command$names
            case help0
                __dlock_commands
            case schema0
                __dlock_program backends --json | grep -o '{"name": "[^"]*' | cut -d'"' -f4
            case doctor0 'bench*'
                __dlock_value URI $current
        end
    end
end

complete -c dlock -f -a '(__dlock_complete)'
