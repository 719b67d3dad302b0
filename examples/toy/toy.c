/* A complete backend. Its "server" is a table in this process's memory; see docs/writing-a-backend.md. */
#include <dlock/backend.h>

#include <pthread.h>
#include <time.h>

enum { ROWS = 64 };
static struct row {
    char name[256], token[DLOCK_TOKEN_MAX + 1];
    uint64_t fence;
    int64_t end_us; /* end of the lease, after which the row is free */
} table[ROWS];
static uint64_t last_fence;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* Returns the row of the valid grant of `name`, or NULL; then *spare is a free row, if there is one. */
static struct row *find(const char *name, int64_t now_us, struct row **spare) {
    for (struct row *row = table; row < table + ROWS; row++) {
        if (row->end_us <= now_us)
            *spare = row;
        else if (strcmp(row->name, name) == 0)
            return row;
    }
    return NULL;
}

static void acquire(struct dlock_claim *claim, int64_t now_us) {
    struct row *spare = NULL, *row = find(claim->name, now_us, &spare);
    claim->result = DLOCK_EBUSY; /* retry_ms stays -1: the core polls */
    if (!row && spare) {
        row = spare;
        strcpy(row->name, claim->name);
        strcpy(row->token, claim->token);
        row->fence = ++last_fence;
    }
    if (!row || strcmp(row->token, claim->token) != 0) return;
    row->end_us = now_us + claim->lease_ms * 1000; /* the same token may ask again: same fence, new lease */
    claim->fence = row->fence;
    claim->result = 0;
}

/* Renews or, with a lease of 0, releases a grant; only for the token that has it. */
static void set_lease(struct dlock_claim *claim, int64_t lease_ms, int64_t now_us) {
    struct row *spare, *row = find(claim->name, now_us, &spare);
    claim->result = row && strcmp(row->token, claim->token) == 0 ? 0 : DLOCK_ELOST;
    if (claim->result == 0) row->end_us = now_us + lease_ms * 1000;
}

/* An operation gets n claims. Its return value is about the connection; each claim's `result` is about its lock. */
#define OPERATION(name, work)                                                                                      \
    static int name(void *c, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *e) { \
        struct timespec now;                                                                                       \
        (void)c, (void)timeout_ms, (void)e;                                                                        \
        pthread_mutex_lock(&mutex);                                                                                \
        clock_gettime(CLOCK_BOOTTIME, &now);                                                                       \
        int64_t now_us = now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;                                       \
        for (size_t i = 0; i < n; i++) work;                                                                       \
        pthread_mutex_unlock(&mutex);                                                                              \
        return 0;                                                                                                  \
    }
OPERATION(toy_acquire, acquire(claims[i], now_us))
OPERATION(toy_renew, set_lease(claims[i], claims[i]->lease_ms, now_us))
OPERATION(toy_release, set_lease(claims[i], 0, now_us))

static int toy_connect(void *c, const struct dlock_uri *uri, const struct dlock_peer *p, int ms,
                       struct dlock_error *e) {
    (void)c, (void)p, (void)ms;
    return uri->n_hosts ? dlock_fail(e, DLOCK_EINVAL, "toy: takes no host: the table is in this process") : 0;
}

static void toy_disconnect(void *c) {
    (void)c;
}

static const char *const schemes[] = {"toy", NULL};

DLOCK_BACKEND(toy) = {.abi = DLOCK_ABI,
                      .size = sizeof(struct dlock_backend),
                      .name = "toy",
                      .schemes = schemes,
                      .conn_size = 1,
                      .connect = toy_connect,
                      .disconnect = toy_disconnect,
                      .acquire = toy_acquire,
                      .renew = toy_renew,
                      .release = toy_release};
