# From the overview: each command and what it does, with a tab between them.
/^  [a-z]+ / {
    name = $1
    sub(/^ +[a-z]+ +/, "")
    print name sprintf("%c", 9) $0
}
