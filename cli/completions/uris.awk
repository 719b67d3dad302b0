# Reads the output of dlock backends --json. Prints the beginning of a URI for each scheme.
BEGIN { RS = "{" }
match($0, /"schemes": [[][^]]*/) {
    n = split(substr($0, RSTART, RLENGTH), part, /"/)
    follows = /"local"/ ? ":" : "://"
    if (/"name": "quorum"/) follows = ":?of="
    for (i = 4; i <= n; i += 2) print part[i] follows
}
