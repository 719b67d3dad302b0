/* What a module does to the process that has loaded it: descriptors, memory, threads, time. A busy machine must not look
 * like a fault, so a fault counts if it comes each time that the same is done. */
#include "contract/contract.h"
#include "support/claim.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PASSES = 4 };

/* ---- descriptors ------------------------------------------------------------------------------------------------- */

/* Calls each(fd, known) for all open descriptors. Returns how many there are. */
static int walk_descriptors(void (*each)(int fd, bool *known), bool *known) {
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    if (!folder) return 0; /* without /proc nothing can be said */
    for (struct dirent *entry; (entry = readdir(folder));) {
        int fd = atoi(entry->d_name);
        if (entry->d_name[0] == '.' || fd == dirfd(folder)) continue;
        count++;
        if (each) each(fd, known);
    }
    closedir(folder);
    return count;
}

enum { DESCRIPTORS = 1024 };

static void note(int fd, bool *known) {
    if (fd < DESCRIPTORS) known[fd] = true;
}

/* A child that inherits one end of a pipe or a socket pair can do little with it, and client libraries make such. */
static void check_close_on_exec(int fd, bool *known) {
    char link[64], target[256] = "";
    struct sockaddr_storage peer;
    socklen_t length = sizeof peer;
    if (fd >= DESCRIPTORS || known[fd] || fcntl(fd, F_GETFD) & FD_CLOEXEC) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, target, sizeof target - 1) < 0) return;
    bool to_a_peer = getpeername(fd, (struct sockaddr *)&peer, &length) == 0 && length > sizeof(sa_family_t);
    if (target[0] == '/' || to_a_peer) FAIL("descriptor %d (%s) is not close-on-exec", fd, target);
}

static void descriptors_are_close_on_exec(void) {
    static bool known[DESCRIPTORS];
    struct grant grant;
    if (strcmp(backend->name, "zookeeper") == 0) return; /* its client library's are not: see its page */
    walk_descriptors(note, known);
    grant_new(&grant, 0, suite.name);
    GRANTED(queue_up(&grant));
    GRANTED(renew(&grant));
    walk_descriptors(check_close_on_exec, known);
    GRANTED(release(&grant));
    walk_descriptors(check_close_on_exec, known);
}

/* ---- leaks ------------------------------------------------------------------------------------------------------- */

enum { ROUNDS = 192, CONNECTIONS = 16, LEAK_BYTES = 32 * 1024 }; /* of one pass */

/* 0 where the C library does not tell, and with a sanitizer. */
static int64_t allocated(void) {
    int64_t bytes = 0;
#ifdef __GLIBC_PREREQ
#if __GLIBC_PREREQ(2, 33)
    struct mallinfo2 info = mallinfo2();
    bytes = (int64_t)(info.uordblks + info.hblkhd);
#endif
#endif
    return bytes;
}

static void use(int rounds, int connections) {
    struct grant grant;
    for (int i = 0; i < rounds + connections; i++) {
        if (i >= rounds) client_dies(0);
        grant_new(&grant, 0, suite.name);
        GRANTED(await_free(&grant));
        GRANTED(renew(&grant));
        GRANTED(release(&grant));
    }
}

static void nothing_leaks(void) {
    int64_t more_bytes = 0;
    int descriptors, more = 0;
    use(ROUNDS / 4, 4); /* what is kept for later is there then */
    for (int pass = 0; pass < PASSES; pass++) {
        descriptors = walk_descriptors(NULL, NULL);
        int64_t bytes = allocated();
        use(ROUNDS, CONNECTIONS);
        more = walk_descriptors(NULL, NULL) - descriptors;
        more_bytes = allocated() - bytes;
        if (more <= 0 && more_bytes < LEAK_BYTES) return;
    }
    FAIL("each %d acquires, renewals, releases and %d connections leave %d descriptors, %" PRId64 " bytes", ROUNDS,
         CONNECTIONS, more, more_bytes);
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

enum { CALL_MS = 50, LATE_MS = 150, CALLS = 24 };

/* For how long this thread could run, but no processor was free. */
static int64_t kept_from_running_ms(void) {
    int64_t waited_ns = 0;
    FILE *file = fopen("/proc/thread-self/schedstat", "re");
    if (!file) return 0;
    if (fscanf(file, "%*s %" SCNd64, &waited_ns) != 1) waited_ns = 0;
    fclose(file);
    return waited_ns / 1000000;
}

/* Returns whether the call took longer than it may. After an error its connection is ended. */
static bool is_late(dlock_batch *operation, struct grant *grant) {
    struct dlock_error err = {0};
    struct line *line = line_of(grant->client);
    int64_t kept = kept_from_running_ms(), begun = now_ms();
    if (claim_run(operation, line->conn, &grant->claim, CALL_MS, &err) != 0) grant->claim.result = err.code;
    int64_t took = now_ms() - begun - (kept_from_running_ms() - kept);
    if (err.code == DLOCK_EUNAVAILABLE) client_dies(grant->client);
    return took > CALL_MS + LATE_MS;
}

/* Also those few that a mistake makes late. */
static void calls_return_in_time(void) {
    struct grant grant;
    int late = 0;
    for (int pass = 0; pass < PASSES; pass++) {
        late = 0;
        for (int i = 0; i < CALLS; i++) {
            grant_new(&grant, 3, suite.name);
            grant.claim.lease_ms = 1000; /* of an acquire that is given up and still carried out */
            late += is_late(backend->acquire, &grant);
            if (grant.claim.result == 0) late += is_late(backend->renew, &grant);
            if (grant.claim.result == 0) late += is_late(backend->release, &grant);
        }
        if (late <= 1) return;
    }
    FAIL("%d of %d calls that had %d ms return more than %d ms late", late, 3 * CALLS, CALL_MS, LATE_MS);
}

/* Whatever the wake-ups do: nobody sends one when a holder is dead. Other cases of the conformance suite, which run at the
 * same time, may. */
static void a_waiter_notices_the_end_of_a_lease(void) {
    struct grant dead, waiting;
    grant_new(&dead, 0, suite.name);
    grant_new(&waiting, 1, suite.name);
    dead.claim.lease_ms = 1000;
    listens(1);
    GRANTED(acquire(&dead));
    BUSY(queue_up(&waiting));
    int64_t begun = now_ms();
    GRANTED(await(&waiting, PATIENCE_MS / 2));
    EXPECT(now_ms() - begun < PATIENCE_MS / 3);
    GRANTED(release(&waiting));
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

enum { THREADS = 4, TOGETHER_MS = 500 };

/* A grant of a name of its own, again and again. */
static void *use_alone(void *arg) {
    int client = *(int *)arg;
    char name[DLOCK_NAME_MAX + 1];
    struct grant grant;
    uint64_t fence = 0;
    tagged_name(name, (const char[]){(char)('a' + client), 0});
    int64_t until = now_ms() + TOGETHER_MS;
    while (now_ms() < until) {
        grant_new(&grant, client, name);
        GRANTED(await_free(&grant));
        EXPECT(grant.claim.fence > fence);
        fence = grant.claim.fence;
        GRANTED(renew(&grant));
        GRANTED(release(&grant));
    }
    return NULL;
}

static void connections_of_threads_share_nothing(void) {
    static int clients[THREADS] = {0, 1, 2, 3};
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) line_of(i);
    for (int i = 0; i < THREADS; i++) threads[i] = start_thread(use_alone, &clients[i]);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

const struct contract_case contract_manners[] = {
    PROMISE(descriptors_are_close_on_exec, 0), /* first: nothing is connected */
    PROMISE(nothing_leaks, 0),
    PROMISE(calls_return_in_time, 0),
    PROMISE(a_waiter_notices_the_end_of_a_lease, NEEDS_LEASES | DLOCK_CAP_WAKE),
    PROMISE(connections_of_threads_share_nothing, 0),
    {0},
};
