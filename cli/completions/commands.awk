# Reads the overview of dlock --help. Prints each command and its summary, with a tab between them.
/^  [a-z]+ / {
    name = $1
    sub(/^ +[a-z]+ +/, "")
    print name sprintf("%c", 9) $0
}
