#include "fixture.h"
#include "support/claim.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
    CAP_MS = 1000,     /* so often a waiter looks whatever it was told */
    SOME_LOOKS_MS = 80 /* the time without success until it has looked five times */
};

char last_log[512];

static void keep_log(const struct dlock_peer *peer, int level, const char *message) {
    (void)peer;
    (void)level;
    snprintf(last_log, sizeof last_log, "%s", message);
}

static const struct dlock_peer peer = {.abi = DLOCK_ABI, .client = "0123456789abcdef01234567", .log = keep_log};

static struct world only;
struct world *world = &only;

int world_begin(void **state) {
    (void)state;
    last_log[0] = '\0';
    place_make(world->dir, sizeof world->dir);
    world->conn = conn_open(world->dir);
    return 0;
}

int world_end(void **state) {
    (void)state;
    conn_close(world->conn);
    place_leave(world->dir);
    return 0;
}

const char *path_of(const char *file) {
    return path_in(world->dir, file);
}

/* ---- connections ---- */

int conn_try_keys(const char *path, const char *mode, const char *group, void **conn, struct dlock_error *err) {
    struct dlock_param params[2];
    struct dlock_uri uri = {.scheme = "file", .path = *path ? path : NULL, .params = params};
    if (mode) params[uri.n_params++] = (struct dlock_param){"mode", mode};
    if (group) params[uri.n_params++] = (struct dlock_param){"group", group};
    void *fresh = calloc(1, FILE_BACKEND->conn_size);
    assert_non_null(fresh);
    int rc = FILE_BACKEND->connect(fresh, &uri, &peer, 3000, err);
    if (rc == 0)
        *conn = fresh;
    else
        conn_close(fresh);
    return rc;
}

int conn_try(const char *path, void **conn, struct dlock_error *err) {
    return conn_try_keys(path, NULL, NULL, conn, err);
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

struct dlock_claim reader_of(const char *name) {
    struct dlock_claim claim = claim_of(name);
    claim.mode = DLOCK_SHARED;
    return claim;
}

struct dlock_claim permit_of(const char *name, uint32_t limit) {
    struct dlock_claim claim = claim_of(name);
    claim.mode = DLOCK_PERMIT;
    claim.limit = limit;
    return claim;
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

void give_up(void *conn, struct dlock_claim *claim) {
    assert_int_equal(release(conn, claim), DLOCK_ELOST);
}

int listen_on(void *conn) {
    struct dlock_error err = {0, ""};
    int fd = -1;
    assert_int_equal(FILE_BACKEND->listen(conn, &fd, 3000, &err), 0);
    assert_true(fd >= 0);
    return fd;
}

int drain(void *conn, enum dlock_wake_kind kind, char name[256]) {
    struct dlock_error err = {0, ""};
    struct dlock_wake wake;
    int n = 0;
    while (FILE_BACKEND->wake(conn, &wake, &err) == 1) {
        assert_int_equal(wake.kind, kind);
        if (name) snprintf(name, 256, "%s", wake.name ? wake.name : "");
        assert_true(++n < 10000);
    }
    return n;
}

bool readable(int fd, int ms) {
    struct pollfd polled = {fd, POLLIN, 0};
    return poll(&polled, 1, ms) == 1;
}

void acquire_waiting(void *conn, struct dlock_claim *claim) {
    int64_t start = now_ms();
    int fd = listen_on(conn), result, in_vain = 0;
    bool told = false;
    while (result = acquire(conn, claim), result == DLOCK_EBUSY) {
        if (now_ms() - start > 10000) fail_msg("no lock after 10 s");
        int pause = claim->retry_ms < 0 ? 5 : (int)claim->retry_ms;
        in_vain = readable(fd, pause) ? 0 : pause;
        told = drain(conn, DLOCK_WAKE_LOOK, NULL) > 0 || told;
    }
    assert_int_equal(result, 0);
    bool late = drain(conn, DLOCK_WAKE_LOOK, NULL) > 0; /* it ended between the last pause and the last look */
    if (!late && (in_vain >= CAP_MS || (in_vain >= SOME_LOOKS_MS && !told)))
        fail_msg("nothing told of the end of the lock");
}

void acquire_told(void *conn, struct dlock_claim *claim) {
    int fd = listen_on(conn), result;
    while (result = acquire(conn, claim), result == DLOCK_EBUSY) {
        if (!readable(fd, 10000)) fail_msg("nobody told of the release");
        drain(conn, DLOCK_WAKE_LOOK, NULL);
    }
    assert_int_equal(result, 0);
}

bool is_held(void *conn, const char *name) {
    struct dlock_claim claim = claim_of(name);
    int result = acquire(conn, &claim);
    assert_true(result == 0 || result == DLOCK_EBUSY);
    assert_int_equal(release(conn, &claim), result == 0 ? 0 : DLOCK_ELOST);
    return result != 0;
}

/* ---- other processes ---- */

pid_t child_start(int (*run)(void *arg), void *arg) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves no process behind */
    FILE_BACKEND->abandon(world->conn);
    _exit(run(arg));
}

void meet(_Atomic int *arrived, int n) {
    for (++*arrived; *arrived < n;) usleep(200);
}

struct child {
    int (*run)(void *arg);
    void *arg;
    _Atomic int *arrived;
    int n;
};

static int run_together(void *arg) {
    const struct child *child = arg;
    meet(child->arrived, child->n);
    return child->run(child->arg);
}

void children_run(int (*run)(void *arg), void *args, size_t size, int n) {
    pid_t pids[16];
    struct child child = {run, args, shared_new(sizeof *child.arrived), n};
    assert_in_range(n, 1, 16);
    for (int i = 0; i < n; i++, child.arg = (char *)child.arg + size) pids[i] = child_start(run_together, &child);
    for (int i = 0; i < n; i++) assert_int_equal(child_end(pids[i]), 0);
    shared_end((void *)(uintptr_t)child.arrived, sizeof *child.arrived);
}

void *shared_new(size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    return memory;
}

void shared_end(void *memory, size_t size) {
    munmap(memory, size);
}

struct holder {
    struct dlock_claim claim;
    int report;
};

static int hold(void *arg) {
    struct holder *holder = arg;
    char token[DLOCK_TOKEN_MAX + 1];
    snprintf(token, sizeof token, "0123456789abcdef01234567.1@test:%ld", (long)getpid());
    holder->claim.token = token;
    void *conn = conn_open(world->dir);
    if (acquire(conn, &holder->claim) != 0) return 1;
    if (write(holder->report, &holder->claim.fence, sizeof holder->claim.fence) != sizeof holder->claim.fence) return 1;
    for (;;) pause();
}

pid_t holder_start(const char *name, uint64_t *fence) {
    return holder_start_as(claim_of(name), fence);
}

pid_t holder_start_as(struct dlock_claim claim, uint64_t *fence) {
    int ends[2];
    uint64_t got = 0;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    struct holder holder = {claim, ends[1]};
    pid_t pid = child_start(hold, &holder);
    close(ends[1]);
    assert_int_equal(read(ends[0], &got, sizeof got), sizeof got);
    close(ends[0]);
    if (fence) *fence = got;
    return pid;
}

/* ---- looking ---- */

static int see(const struct dlock_info *info, void *arg) {
    struct seen *seen = arg;
    assert_int_equal(info->size, sizeof *info);
    assert_int_equal(info->waiters, 0);
    assert_true(info->remaining_ms == DLOCK_FOREVER);
    if (seen->n < (int)(sizeof seen->holders / sizeof *seen->holders)) {
        snprintf(seen->holders[seen->n].name, sizeof seen->holders[0].name, "%s", info->name);
        snprintf(seen->holders[seen->n].token, sizeof seen->holders[0].token, "%s", info->token);
        seen->holders[seen->n].mode = info->mode;
        seen->holders[seen->n].limit = info->limit;
        seen->holders[seen->n].fence = info->fence;
    }
    return ++seen->n == seen->stop_after;
}

struct seen inspect(void *conn, const char *name) {
    struct dlock_error err = {0, ""};
    struct seen seen = {0};
    assert_int_equal(FILE_BACKEND->inspect(conn, name, see, &seen, 60000, &err), 0);
    return seen;
}

int list(void *conn, const char *prefix, int stop_after, int timeout_ms) {
    struct dlock_error err = {0, ""};
    struct seen seen = {.stop_after = stop_after};
    char cursor[256] = "";
    int pages = 1, more;
    while ((more = FILE_BACKEND->list(conn, prefix, cursor, see, &seen, timeout_ms, &err)) == 1)
        assert_true(++pages < 10000);
    assert_int_equal(more, 0);
    return seen.n;
}

bool saw(const struct seen *seen, const struct dlock_claim *claim) {
    for (int i = 0; i < seen->n; i++)
        if (strcmp(seen->holders[i].token, claim->token) == 0)
            return strcmp(seen->holders[i].name, claim->name) == 0 && seen->holders[i].mode == claim->mode &&
                   seen->holders[i].fence == claim->fence &&
                   seen->holders[i].limit == (claim->mode == DLOCK_PERMIT ? claim->limit : 1);
    return false;
}
