# Sourced. as_user USER: sets the array `as_user` to the words to put in front of a command so that it runs as that
# user; no change of user unless this is root. Where only root may search the folder /, as in a chroot that mktemp made,
# the command gets the capability to search folders: without it, it could not even find its libraries.
as_user() {
    as_user=(env)
    if [ "$(id -u)" != 0 ]; then return 0; fi
    as_user=(setpriv --reuid "$1" --regid "$1" --clear-groups)
    if [ $((0$(stat -c %a /) & 1)) = 0 ]; then
        # Without the last option access(2) would ignore the capabilities.
        as_user+=(--inh-caps +dac_read_search --ambient-caps +dac_read_search --securebits +no_setuid_fixup)
    fi
}
