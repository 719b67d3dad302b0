#include "fixture.h"
#include "support/claim.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

char last_log[512];

static void keep_log(const struct dlock_peer *peer, int level, const char *message) {
    (void)peer;
    (void)level;
    snprintf(last_log, sizeof last_log, "%s", message);
}

static const struct dlock_peer peer = {DLOCK_ABI, "0123456789abcdef01234567", 0, keep_log};

int world_begin(void **state) {
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    last_log[0] = '\0';
    place_make(world->dir, sizeof world->dir);
    world->conn = conn_open(world->dir);
    *state = world;
    return 0;
}

int world_end(void **state) {
    struct world *world = *state;
    conn_close(world->conn);
    place_remove(world->dir);
    free(world);
    return 0;
}

const char *path_of(const struct world *world, const char *file) {
    return path_in(world->dir, file);
}

/* ---- connections ---- */

int conn_try(const char *path, void **conn, struct dlock_error *err) {
    struct dlock_uri uri = {.scheme = "file", .path = *path ? path : NULL};
    void *fresh = calloc(1, FILE_BACKEND->conn_size);
    assert_non_null(fresh);
    int rc = FILE_BACKEND->connect(fresh, &uri, &peer, 3000, err);
    if (rc == 0)
        *conn = fresh;
    else
        conn_close(fresh);
    return rc;
}

void *conn_open(const char *path) {
    struct dlock_error err;
    void *conn = NULL;
    if (conn_try(path, &conn, &err) != 0) fail_msg("%s", err.message);
    return conn;
}

void conn_close(void *conn) {
    FILE_BACKEND->disconnect(conn);
    free(conn);
}

/* ---- claims ---- */

struct dlock_claim claim_of(const char *name) {
    static char tokens[64][DLOCK_TOKEN_MAX + 1];
    static unsigned next;
    char *token = tokens[next % 64];
    snprintf(token, sizeof tokens[0], "0123456789abcdef01234567.%x@test:%ld", ++next, (long)getpid());
    return (struct dlock_claim){.name = name, .token = token, .lease_ms = 10000};
}

static int operate(dlock_batch *batch, void *conn, struct dlock_claim *claim) {
    struct dlock_error err = {0, ""};
    assert_int_equal(claim_run(batch, conn, claim, 3000, &err), 0);
    return claim->result;
}

int acquire(void *conn, struct dlock_claim *claim) {
    return operate(FILE_BACKEND->acquire, conn, claim);
}
int renew(void *conn, struct dlock_claim *claim) {
    return operate(FILE_BACKEND->renew, conn, claim);
}
int release(void *conn, struct dlock_claim *claim) {
    return operate(FILE_BACKEND->release, conn, claim);
}

int64_t acquire_waiting(void *conn, struct dlock_claim *claim) {
    struct dlock_error err = {0, ""};
    struct dlock_wake wake;
    int64_t start = now_ms();
    int fd = -1, result;
    assert_int_equal(FILE_BACKEND->listen(conn, &fd, 3000, &err), 0);
    while (result = acquire(conn, claim), result == DLOCK_EBUSY) {
        struct pollfd readable = {fd, POLLIN, 0};
        if (now_ms() - start > 5000) fail_msg("no lock after 5 s");
        poll(&readable, 1, claim->retry_ms < 0 ? 5 : (int)claim->retry_ms);
        while (FILE_BACKEND->wake(conn, &wake, &err) == 1) assert_int_equal(wake.kind, DLOCK_WAKE_LOOK);
    }
    assert_int_equal(result, 0);
    return now_ms() - start;
}

bool is_held(void *conn, const char *name) {
    struct dlock_claim claim = claim_of(name);
    int result = acquire(conn, &claim);
    assert_int_equal(release(conn, &claim), 0);
    assert_true(result == 0 || result == DLOCK_EBUSY);
    return result != 0;
}

/* ---- other processes ---- */

pid_t child_start(int (*run)(const struct world *world, void *arg), const struct world *world, void *arg) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0) return pid;
    FILE_BACKEND->abandon(world->conn);
    _exit(run(world, arg));
}

struct holder {
    const char *name;
    int report;
};

static int hold(const struct world *world, void *arg) {
    struct holder *holder = arg;
    struct dlock_claim claim = claim_of(holder->name);
    void *conn = conn_open(world->dir);
    if (acquire(conn, &claim) != 0) return 1;
    if (write(holder->report, &claim.fence, sizeof claim.fence) != sizeof claim.fence) return 1;
    for (;;) pause();
}

pid_t holder_start(const struct world *world, const char *name, uint64_t *fence) {
    int ends[2];
    uint64_t got = 0;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    struct holder holder = {name, ends[1]};
    pid_t pid = child_start(hold, world, &holder);
    close(ends[1]);
    assert_int_equal(read(ends[0], &got, sizeof got), sizeof got);
    close(ends[0]);
    if (fence) *fence = got;
    return pid;
}
