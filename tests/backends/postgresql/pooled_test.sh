#!/bin/sh
# pooled_test.sh CONFORMANCE: the conformance suite's cases without wake-ups, through the pooler of pooler.sh. The
# pooler may still execute the request of a client that has hung up: such a grant ends with its lease.
set -eu
for case in blocking_acquire_is_granted exclusion_among_processes_and_threads exclusion_with_many_names \
    exclusion_when_holders_die renewal_outlives_three_leases renewal_of_many_locks holder_stopped break_is_reported \
    fixed_lease_ends cancel_races_with_the_grant clients_leave_nothing_behind list_by_prefix \
    names_of_every_kind; do
    "$1" "postgresql://dlock@127.0.0.1:$DLOCK_TEST_POOLER/transactions?listen=off&lease=1s&quarantine=0" "$case"
done
