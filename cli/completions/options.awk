# Reads the help of a command. Prints each option, the kind of its value, and its description, with tabs between them.
# These programs have no single quotes and no backslashes: they become arguments of awk in three shells.
function flush(  i, n, part, value, tab) {
    if (names == "") return
    tab = sprintf("%c", 9)
    sub(/;.*/, "", text)
    n = split(names, part, / /)
    for (i = 1; i <= n; i++) if (part[i] !~ /^-/) value = value part[i]
    gsub(/[^A-Z]/, "", value)
    if (value == "") value = "nothing"
    for (i = 1; i <= n; i++) {
        sub(/,$/, "", part[i])
        if (part[i] ~ /^-/) print part[i] tab value tab text
    }
    names = ""
}
/^ +-/ {
    flush()
    sub(/^ +/, "")
    at = index($0, "  ")
    names = substr($0, 1, at - 1)
    text = substr($0, at)
    sub(/^ +/, "", text)
    next
}
names != "" && /^         / { sub(/^ +/, ""); text = text " " $0; next }
{ flush() }
END { flush() }
