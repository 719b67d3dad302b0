/* Prints what <dlock/dlock.h> looks like in memory, and its numbers: abi_test.py compares it with what ctypes was told. */
#include <dlock/dlock.h>

#include <stdio.h>

#define STRUCT(type) printf("struct %s %zu\n", #type, sizeof(struct type))
#define FIELD(type, field) \
    printf("field %s.%s %zu %zu\n", #type, #field, offsetof(struct type, field), sizeof(((struct type *)NULL)->field))
#define NUMBER(name) printf("number %s %lld\n", #name, (long long)(DLOCK_##name))

static void structs(void) {
    STRUCT(dlock_error);
    FIELD(dlock_error, code);
    FIELD(dlock_error, message);
    STRUCT(dlock_info);
    FIELD(dlock_info, size);
    FIELD(dlock_info, name);
    FIELD(dlock_info, token);
    FIELD(dlock_info, mode);
    FIELD(dlock_info, waiters);
    FIELD(dlock_info, limit);
    FIELD(dlock_info, fence);
    FIELD(dlock_info, remaining_ms);
    FIELD(dlock_info, host);
    FIELD(dlock_info, pid);
    FIELD(dlock_info, label);
    FIELD(dlock_info, held_ms);
    STRUCT(dlock_backend_info);
    FIELD(dlock_backend_info, name);
    FIELD(dlock_backend_info, schemes);
    FIELD(dlock_backend_info, caps);
    FIELD(dlock_backend_info, path);
    FIELD(dlock_backend_info, error);
    FIELD(dlock_backend_info, schema);
    STRUCT(dlock_finding);
    FIELD(dlock_finding, size);
    FIELD(dlock_finding, health);
    FIELD(dlock_finding, what);
    FIELD(dlock_finding, advice);
    STRUCT(dlock_stats);
    FIELD(dlock_stats, size);
    FIELD(dlock_stats, grants);
    FIELD(dlock_stats, local_grants);
    FIELD(dlock_stats, reentries);
    FIELD(dlock_stats, losses);
    FIELD(dlock_stats, renewals);
    FIELD(dlock_stats, renewal_failures);
    FIELD(dlock_stats, reconnects);
    FIELD(dlock_stats, waiting);
    FIELD(dlock_stats, waits);
    FIELD(dlock_stats, wait_us);
    FIELD(dlock_stats, wait_counts);
    FIELD(dlock_stats, held);
    FIELD(dlock_stats, last_answer_ms);
    STRUCT(dlock_client_options);
    FIELD(dlock_client_options, size);
    FIELD(dlock_client_options, flags);
    FIELD(dlock_client_options, log);
    FIELD(dlock_client_options, log_arg);
    FIELD(dlock_client_options, label);
    STRUCT(dlock_options);
    FIELD(dlock_options, size);
    FIELD(dlock_options, mode);
    FIELD(dlock_options, owner);
    FIELD(dlock_options, limit);
    FIELD(dlock_options, flags);
    FIELD(dlock_options, lease_ms);
    FIELD(dlock_options, on_lost);
    FIELD(dlock_options, on_lost_arg);
    FIELD(dlock_options, on_wanted);
    FIELD(dlock_options, on_wanted_arg);
}

int main(void) {
    structs();
    NUMBER(FOREVER);
    NUMBER(TOKEN_MAX);
    NUMBER(LABEL_MAX);
    NUMBER(TICKET_MAX);
    NUMBER(LEASE_MIN_MS);
    NUMBER(LEASE_MAX_MS);
    NUMBER(EXCLUSIVE);
    NUMBER(SHARED);
    NUMBER(PERMIT);
    NUMBER(OWNER_HANDLE);
    NUMBER(FIXED_LEASE);
    NUMBER(WAIT_BUCKETS);
    NUMBER(CLIENT_LAZY);
    NUMBER(CLIENT_MANUAL);
    NUMBER(CLIENT_GUARDIAN);
    NUMBER(FINE);
#define X(name, number, text, action) printf("error %s %d %s\n", #name, number, text);
    DLOCK_ERRORS(X)
#undef X
#define X(name, bit, word, meaning) printf("capability %d %s\n", bit, word);
    DLOCK_CAPS(X)
#undef X
    printf("version %s\n", DLOCK_VERSION);
    return 0;
}
