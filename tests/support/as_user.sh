# Sourced. as_user USER: sets the array `as_user` to the words in front of a command that is to run as that user: none
# unless this is root. Where the folder / is closed to everybody else, as in a chroot that mktemp made, the command may
# search folders all the same, or it could not even find its libraries.
as_user() {
    as_user=(env)
    if [ "$(id -u)" != 0 ]; then return 0; fi
    as_user=(setpriv --reuid "$1" --regid "$1" --clear-groups)
    if [ $((0$(stat -c %a /) & 1)) = 0 ]; then
        # access(2) forgets capabilities without the last one.
        as_user+=(--inh-caps +dac_read_search --ambient-caps +dac_read_search --securebits +no_setuid_fixup)
    fi
}
