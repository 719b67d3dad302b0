# Reads CTest's output. On a terminal (-v terminal=1) one line says how far the tests are, and is written again with each
# test that ends; elsewhere a line for each tenth. Tests that fail are named at once.
match($0, /[0-9]+\/[0-9]+ Test +#[0-9]+: /) {
    split(substr($0, RSTART, RLENGTH), part, /[\/ ]/)
    done++
    all = part[2]
    test = $0
    sub(/^.*Test +#[0-9]+: /, "", test)
    sub(/ .*$/, "", test)
    if (index($0, "***") && !index($0, "***Skipped")) {
        failed++
        if (terminal) printf "\r\033[K"
        print "failed: " test
    }
    if (terminal) {
        printf "\r\033[K%d of %d%s: %s", done, all, failed ? ", " failed " failed" : "", test
    } else if (int(10 * done / all) > tenth) {
        tenth = int(10 * done / all)
        printf "%d of %d%s\n", done, all, failed ? ", " failed " failed" : ""
    }
    fflush()
}
END { if (terminal) printf "\r\033[K" }
