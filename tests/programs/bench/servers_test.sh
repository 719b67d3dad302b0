#!/bin/bash
# Tests compare.sh with a server of every kind, in runs that are too short to measure anything: each server but a quorum
# has its floors and its own count of commands.
. "$(dirname "$0")/../../support/cli.sh"

compare=$(dirname "$0")/compare.sh
build=$(dirname "$(dirname "$DLOCK")")

# Longer sessions and timeouts, so that none ends early because the machine is busy.
for server in "${!DLOCK_TEST_URI_@}"; do
    uri=${!server/session=2s/session=30s}
    case $uri in *\?*) uri+='&timeout=30s' ;; *) uri+='?timeout=30s' ;; esac
    export "$server=$uri"
done

describe "every server"
run "$compare" "$build" --json --time 300ms --rounds 1 --workload cycle --workload crowd --workload renewal \
    --workload distinct --workload hand-over --threads 2 --waiters 3 --locks 20 --lease 600ms
equal "status" "$status" 0
python3 - "$out" <<'END' || fail "the results"
import json, sys
wrong, servers, peers = [], set(), set()
for row in json.loads(sys.argv[1])["results"]:
    workload, server = row["workload"], row["backend"]
    servers.add(server)
    if row["peer"]:
        peers.add((row["server"], workload))
    needs = ["ratio", "floor_per_second"] if workload in ("cycle", "distinct") else []
    if server not in ("file", "postgresql"): # file has no counter; other tests reset that of postgresql
        needs += {"crowd": ["commands_per_grant"], "renewal": ["commands_per_second"]}.get(workload, [])
    if server == "quorum": # it has no floor program, and each member counts separately
        needs = []
    # A ratio may be rounded to 0.0 if the machine was busy in those milliseconds, but it must exist.
    wrong += [f"{workload}, {server}: {name} is {row[name]}" for name in needs
              if row[name] is None or row[name] <= 0 and name != "ratio"]
    wrong += [f"{workload}, {server}: {row['error']}"] if row["error"] else []
print(*wrong, sep="\n")
# flock(1) has none of these workloads.
expected = {(peer, workload) for server, peer in (("redis", "redis-py"), ("zookeeper", "kazoo")) if server in servers
            for workload in ("cycle", "hand-over")}
print("rows of other software:", peers, "expected:", expected)
sys.exit(bool(wrong) or not servers or peers != expected)
END

describe "a password"
if "$DLOCK" backends --json | grep -q '"redis", "schemes"'; then
    use_redis
    redis-cli -p "${address##*:}" config set requirepass 'a@b%?' >/dev/null
    run "$DLOCK" bench --json --time 100ms --rounds 1 --workload cycle \
        "redis://:a%40b%25%3f@$address/3?quarantine=0"
    equal "status" "$status" 0
    contains "has a floor" "$out" '"floor_median_ns": '
    lacks "has a floor" "$out" '"ratio": null'
fi

finish
