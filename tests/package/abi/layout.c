/* The plugin ABI as bytes, on 64-bit machines. These numbers never change: an appended member gets its own line here,
 * and raises DLOCK_ABI. */
#include <dlock/backend.h>

#if UINTPTR_MAX == UINT64_MAX

#define SIZE(type, size) _Static_assert(sizeof(struct type) == (size), "the size of struct " #type)
#define AT(type, member, offset) \
    _Static_assert(offsetof(struct type, member) == (offset), "the place of " #type "." #member)

AT(dlock_backend, abi, 0);
AT(dlock_backend, size, 4);
AT(dlock_backend, name, 8);
AT(dlock_backend, schemes, 16);
AT(dlock_backend, keys, 24);
AT(dlock_backend, caps, 32);
AT(dlock_backend, conn_size, 40);
AT(dlock_backend, connect, 48);
AT(dlock_backend, disconnect, 56);
AT(dlock_backend, acquire, 64);
AT(dlock_backend, renew, 72);
AT(dlock_backend, release, 80);
AT(dlock_backend, abandon, 88);
AT(dlock_backend, listen, 96);
AT(dlock_backend, wake, 104);
AT(dlock_backend, inspect, 112);
AT(dlock_backend, list, 120);
AT(dlock_backend, break_lock, 128);
AT(dlock_backend, check, 136);
AT(dlock_backend, schema, 144);
AT(dlock_backend, descriptors, 152);
AT(dlock_backend, accepts, 160);
AT(dlock_backend, variant, 168);
AT(dlock_backend, probe, 176);
AT(dlock_backend, begin, 184);
AT(dlock_backend, waiters, 192);
SIZE(dlock_backend, 200);

AT(dlock_host, host, 0);
AT(dlock_host, address, 8);
AT(dlock_host, port, 16);
SIZE(dlock_host, 24);

AT(dlock_param, key, 0);
AT(dlock_param, value, 8);
SIZE(dlock_param, 16);

AT(dlock_uri, scheme, 0);
AT(dlock_uri, user, 8);
AT(dlock_uri, password, 16);
AT(dlock_uri, path, 24);
AT(dlock_uri, hosts, 32);
AT(dlock_uri, n_hosts, 40);
AT(dlock_uri, params, 48);
AT(dlock_uri, n_params, 56);
SIZE(dlock_uri, 64);

AT(dlock_peer, abi, 0);
AT(dlock_peer, client, 8);
AT(dlock_peer, quarantine_ms, 16);
AT(dlock_peer, log, 24);
AT(dlock_peer, open_member, 32);
AT(dlock_peer, prefix, 40);
AT(dlock_peer, connect_again, 48);
SIZE(dlock_peer, 56);

AT(dlock_member, backend, 0);
AT(dlock_member, opened, 8);
AT(dlock_member, where, 16);
AT(dlock_member, connect, 24);
AT(dlock_member, close, 32);
SIZE(dlock_member, 40);

AT(dlock_claim, name, 0);
AT(dlock_claim, token, 8);
AT(dlock_claim, mode, 16);
AT(dlock_claim, limit, 20);
AT(dlock_claim, flags, 24);
AT(dlock_claim, lease_ms, 32);
AT(dlock_claim, result, 40);
AT(dlock_claim, fence, 48);
AT(dlock_claim, server_us, 56);
AT(dlock_claim, kept_ms, 64);
AT(dlock_claim, retry_ms, 72);
AT(dlock_claim, state, 80);
AT(dlock_claim, hints, 112);
AT(dlock_claim, ready_ms, 120);
AT(dlock_claim, floor, 128);
SIZE(dlock_claim, 136);

AT(dlock_wake, kind, 0);
AT(dlock_wake, name, 8);
AT(dlock_wake, token, 16);
AT(dlock_wake, fence, 24);
AT(dlock_wake, server_us, 32);
AT(dlock_wake, kept_ms, 40);
SIZE(dlock_wake, 48);

AT(dlock_info, size, 0);
AT(dlock_info, name, 8);
AT(dlock_info, token, 16);
AT(dlock_info, mode, 24);
AT(dlock_info, waiters, 28);
AT(dlock_info, limit, 32);
AT(dlock_info, fence, 40);
AT(dlock_info, remaining_ms, 48);
AT(dlock_info, host, 56);
AT(dlock_info, pid, 64);
AT(dlock_info, label, 72);
AT(dlock_info, held_ms, 80);
SIZE(dlock_info, 88);

AT(dlock_client_options, size, 0);
AT(dlock_client_options, flags, 8);
AT(dlock_client_options, log, 16);
AT(dlock_client_options, log_arg, 24);
AT(dlock_client_options, label, 32);
AT(dlock_client_options, event, 40);
AT(dlock_client_options, event_arg, 48);
SIZE(dlock_client_options, 56);

AT(dlock_options, size, 0);
AT(dlock_options, mode, 8);
AT(dlock_options, owner, 12);
AT(dlock_options, limit, 16);
AT(dlock_options, flags, 20);
AT(dlock_options, lease_ms, 24);
AT(dlock_options, on_lost, 32);
AT(dlock_options, on_lost_arg, 40);
AT(dlock_options, on_wanted, 48);
AT(dlock_options, on_wanted_arg, 56);
SIZE(dlock_options, 64);

AT(dlock_backend_info, name, 0);
AT(dlock_backend_info, schemes, 8);
AT(dlock_backend_info, caps, 16);
AT(dlock_backend_info, path, 24);
AT(dlock_backend_info, error, 32);
AT(dlock_backend_info, schema, 40);
SIZE(dlock_backend_info, 48);

AT(dlock_stats, size, 0);
AT(dlock_stats, grants, 8);
AT(dlock_stats, local_grants, 16);
AT(dlock_stats, reentries, 24);
AT(dlock_stats, losses, 32);
AT(dlock_stats, renewals, 40);
AT(dlock_stats, renewal_failures, 48);
AT(dlock_stats, reconnects, 56);
AT(dlock_stats, waiting, 64);
AT(dlock_stats, waits, 72);
AT(dlock_stats, wait_us, 80);
AT(dlock_stats, wait_counts, 88);
AT(dlock_stats, held, 280);
AT(dlock_stats, last_answer_ms, 288);
AT(dlock_stats, holds, 296);
AT(dlock_stats, hold_us, 304);
AT(dlock_stats, hold_counts, 312);
AT(dlock_stats, quarantines, 504);
SIZE(dlock_stats, 512);

AT(dlock_event, size, 0);
AT(dlock_event, kind, 8);
AT(dlock_event, dropped, 12);
AT(dlock_event, name, 16);
AT(dlock_event, token, 24);
AT(dlock_event, text, 32);
AT(dlock_event, fence, 40);
AT(dlock_event, waited_us, 48);
AT(dlock_event, held_us, 56);
SIZE(dlock_event, 64);

AT(dlock_finding, size, 0);
AT(dlock_finding, health, 8);
AT(dlock_finding, what, 16);
AT(dlock_finding, advice, 24);
SIZE(dlock_finding, 32);

#endif

/* Everywhere. */
_Static_assert(sizeof(struct dlock_error) == 512, "struct dlock_error never grows");
_Static_assert(offsetof(struct dlock_error, message) == 4, "the place of dlock_error.message");
_Static_assert(DLOCK_EXCLUSIVE == 0 && DLOCK_SHARED == 1 && DLOCK_PERMIT == 2, "modes");
_Static_assert(DLOCK_OWNER_THREAD == 0 && DLOCK_OWNER_HANDLE == 1, "owners");
_Static_assert(DLOCK_WAIT_BUCKETS == 24 && DLOCK_WAIT_BOUND_US(0) == 100 && DLOCK_WAIT_BOUND_US(22) == 419430400,
               "buckets of waits");
_Static_assert(DLOCK_FIXED_LEASE == 1 && DLOCK_NO_REENTRY == 2, "flags");
_Static_assert(DLOCK_CLIENT_LAZY == 1 && DLOCK_CLIENT_MANUAL == 2 && DLOCK_CLIENT_GUARDIAN == 4 &&
                   DLOCK_CLIENT_SPARE_GROUP == 8,
               "client flags");
_Static_assert(DLOCK_CLAIM_QUEUE == 1 && DLOCK_CLAIM_LINGER == 2 && DLOCK_CLAIM_DEAD == 4, "claim flags");
_Static_assert(DLOCK_HINT_UNHEARD == 1 && DLOCK_HINT_LISTEN == 2 && DLOCK_HINT_RESENT == 4, "claim hints");
_Static_assert(DLOCK_WAKE_LOOK == 1 && DLOCK_WAKE_GRANTED == 2 && DLOCK_WAKE_LOST == 3 && DLOCK_WAKE_WANTED == 4 &&
                   DLOCK_WAKE_HEARD == 5 && DLOCK_WAKE_BROKEN == 6,
               "kinds of wakes");
_Static_assert(DLOCK_CAP_FENCE == 1 && DLOCK_CAP_QUEUE == 2 && DLOCK_CAP_WAKE == 4 && DLOCK_CAP_SHARED == 8 &&
                   DLOCK_CAP_PERMIT == 16 && DLOCK_CAP_INSPECT == 32 && DLOCK_CAP_LIST == 64 &&
                   DLOCK_CAP_BREAK == 128 && DLOCK_CAP_EXPORT == 256 && DLOCK_CAP_SESSION == 512 &&
                   DLOCK_CAP_THREADSAFE == 1024 && DLOCK_CAP_VOLATILE == 2048 && DLOCK_CAP_LOCAL == 4096 &&
                   DLOCK_CAP_WANTED == 8192 && DLOCK_CAP_PRIVATE == 16384 && DLOCK_CAP_FLOOR == 32768 &&
                   DLOCK_CAP_LEASE == 65536,
               "capabilities");
