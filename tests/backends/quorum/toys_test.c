/* Members in this process that answer as each test says: late, never, or too much. */
#include "support/api.h"
#include "support/clock.h"
#include "support/test.h"

#include <dlock/backend.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { TOYS = 9, FOR_EVER_MS = 120000 };

/* ---- the members ------------------------------------------------------------------------------------------------- */

struct toy {
    atomic_int connect_ms; /* how long a connect takes */
    atomic_int begin_ms;   /* below 1000: when a request's answer begins; 0: no request is begun; -1: never */
    atomic_int connects, acquires, renews, releases; /* how many have begun */
} toy[TOYS];

/* A member's reaction to an acquire of a claim that would be granted. */
typedef int toy_script(int i, struct dlock_claim *claim, int timeout_ms, struct dlock_error *err);
static toy_script *_Atomic script;
static atomic_bool floods; /* members send wake-ups without end */
static atomic_bool over;   /* hanging calls continue */

struct toy_conn {
    int i;     /* its member's number */
    int timer; /* readable when the answer to a request begins, */
    int event; /* and when there are wake-ups */
};

static int toy_connect(void *memory, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                       struct dlock_error *err) {
    struct toy_conn *conn = memory;
    (void)peer, (void)timeout_ms, (void)err;
    conn->i = atoi(uri->path);
    conn->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    conn->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    sleep_ms(toy[conn->i].connect_ms);
    toy[conn->i].connects++;
    return conn->timer > 0 && conn->event > 0 ? 0 : DLOCK_ENOMEM;
}

static void toy_disconnect(void *memory) {
    struct toy_conn *conn = memory;
    if (conn->timer > 0) close(conn->timer);
    if (conn->event > 0) close(conn->event);
    conn->timer = conn->event = 0;
}

static int toy_begin(void *memory, enum dlock_operation operation, struct dlock_claim *claim, int *fd,
                     struct dlock_error *err) {
    const struct toy_conn *conn = memory;
    const int ms = toy[conn->i].begin_ms;
    (void)operation, (void)claim;
    if (ms == 0) return dlock_fail(err, DLOCK_ENOTSUP, "not now");
    const struct itimerspec at = {.it_value = {.tv_nsec = ms * 1000000L}};
    if (ms > 0) timerfd_settime(conn->timer, 0, &at, NULL);
    *fd = conn->timer;
    return 0;
}

static int grants(int i, struct dlock_claim *claim, int timeout_ms, struct dlock_error *err) {
    (void)i, (void)claim, (void)timeout_ms, (void)err;
    return 0;
}

static int toy_acquire(void *memory, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                       struct dlock_error *err) {
    static const struct itimerspec off;
    static _Atomic uint64_t last_fence = 1000;
    const struct toy_conn *conn = memory;
    toy_script *says = script;
    toy[conn->i].acquires++;
    timerfd_settime(conn->timer, 0, &off, NULL);
    for (size_t i = 0; i < n; i++) {
        claims[i]->fence = ++last_fence;
        claims[i]->result = 0;
        int rc = says(conn->i, claims[i], timeout_ms, err);
        if (rc != 0) return rc;
    }
    return 0;
}

static int toy_renew(void *memory, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                     struct dlock_error *err) {
    const struct toy_conn *conn = memory;
    (void)timeout_ms, (void)err;
    toy[conn->i].renews++;
    for (size_t i = 0; i < n; i++) claims[i]->result = 0;
    return 0;
}

static int toy_release(void *memory, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                       struct dlock_error *err) {
    const struct toy_conn *conn = memory;
    (void)timeout_ms, (void)err;
    for (size_t i = 0; i < n; i++) claims[i]->result = 0;
    toy[conn->i].releases++;
    return 0;
}

static int toy_listen(void *memory, int *fd, int timeout_ms, struct dlock_error *err) {
    const struct toy_conn *conn = memory;
    (void)timeout_ms, (void)err;
    *fd = conn->event;
    if (floods) eventfd_write(conn->event, 1);
    return 0;
}

static int toy_wake(void *memory, struct dlock_wake *out, struct dlock_error *err) {
    (void)memory, (void)err;
    if (!floods) return 0;
    *out = (struct dlock_wake){.kind = DLOCK_WAKE_WANTED, .name = "wanted"};
    return 1;
}

static atomic_bool checks_last;     /* until `over` */
static atomic_int checkers, shared; /* threads that check; how often two of them had one connection */

/* Stays until another thread checks as well, and for a moment more. */
static int toy_check(void *memory, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err) {
    static void *_Atomic checked;
    struct dlock_finding fine = {.size = sizeof fine, .what = "it plays"};
    void *used = NULL, *mine = memory;
    (void)timeout_ms, (void)err;
    if (!atomic_compare_exchange_strong(&checked, &used, memory) && used == memory) shared++;
    for (int64_t until = now_ms() + 20000; checkers < 2 && now_ms() < until;) sleep_ms(1);
    for (int64_t until = now_ms() + FOR_EVER_MS; checks_last && !over && now_ms() < until;) sleep_ms(1);
    sleep_ms(50);
    each(&fine, arg);
    atomic_compare_exchange_strong(&checked, &mine, NULL);
    return 0;
}

static atomic_int pages; /* how many pages a member's list has begun; it has no end */

static int toy_inspect(void *memory, const char *name, dlock_each each, void *arg, int timeout_ms,
                       struct dlock_error *err) {
    (void)memory, (void)name, (void)each, (void)arg, (void)timeout_ms, (void)err;
    return 0;
}

static int toy_list(void *memory, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
                    struct dlock_error *err) {
    struct dlock_info info = {.size = sizeof info, .mode = DLOCK_EXCLUSIVE, .limit = 1, .name = "n", .token = "t"};
    (void)memory, (void)prefix, (void)timeout_ms, (void)err;
    each(&info, arg);
    snprintf(cursor, 256, "%d", ++pages);
    sleep_ms(1);
    return 1;
}

static int toy_break(void *memory, const char *name, int timeout_ms, struct dlock_error *err) {
    (void)memory, (void)name, (void)timeout_ms;
    return dlock_fail(err, DLOCK_ELOST, "nobody holds it");
}

static const struct dlock_backend toys = {
    .abi = DLOCK_ABI,
    .size = sizeof toys,
    .name = "toys",
    .schemes = (const char *const[]){"toys", NULL},
    .caps = DLOCK_CAP_LOCAL | DLOCK_CAP_FENCE | DLOCK_CAP_FLOOR | DLOCK_CAP_QUEUE | DLOCK_CAP_WAKE | DLOCK_CAP_SHARED |
            DLOCK_CAP_INSPECT | DLOCK_CAP_LIST | DLOCK_CAP_BREAK,
    .conn_size = sizeof(struct toy_conn),
    .connect = toy_connect,
    .disconnect = toy_disconnect,
    .acquire = toy_acquire,
    .renew = toy_renew,
    .release = toy_release,
    .listen = toy_listen,
    .wake = toy_wake,
    .check = toy_check,
    .inspect = toy_inspect,
    .list = toy_list,
    .break_lock = toy_break,
    .begin = toy_begin,
};

static int toys_register(void **state) {
    struct dlock_error err = {0};
    (void)state;
    if (dlock_register(&toys, &err) != 0) fail_msg("%s", err.message);
    return 0;
}

static int toys_new(void **state) {
    (void)state;
    memset(toy, 0, sizeof toy);
    script = grants;
    floods = over = checks_last = false;
    checkers = shared = 0;
    return 0;
}

static int toys_end(void **state) {
    (void)state;
    over = true;
    return 0;
}

/* A client of the first n, each of which has its connection and nothing to do. */
static dlock_client *client_of(int n, const char *query) {
    char uri[400];
    size_t used = (size_t)snprintf(uri, sizeof uri, "quorum:?%s", query);
    for (int i = 0; i < n; i++) used += (size_t)snprintf(uri + used, sizeof uri - used, "&of=toys:%d", i);
    dlock_client *client = api_client("%s", uri);
    dlock_lock *lock = api_lock(client, "first", NULL);
    assert_int_equal(dlock_acquire(lock, 20000, NULL), 0);
    assert_int_equal(dlock_release(lock, NULL), 0);
    dlock_free(lock);
    for (int i = 0; i < n; i++)
        for (int64_t until = now_ms() + 20000; toy[i].releases == 0; sleep_ms(1))
            if (now_ms() > until) fail_msg("member %d has nothing to release", i);
    sleep_ms(20);
    return client;
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static int count_finding(const struct dlock_finding *finding, void *arg) {
    if (strstr(finding->what, "it plays")) ++*(int *)arg;
    return 0;
}

static void *check(void *client) {
    static _Thread_local int seen;
    checkers++;
    int rc = dlock_check(client, count_finding, &seen, NULL);
    return (void *)(intptr_t)(rc == 0 ? seen : rc);
}

/* Each uses a connection to every member, as its only thread. */
TEST(two_threads_may_check_at_a_time) {
    pthread_t other;
    void *theirs;
    SCOPED_CLIENT *client = client_of(3, "timeout=120s");
    assert_int_equal(pthread_create(&other, NULL, check, client), 0);
    void *ours = check(client);
    assert_int_equal(pthread_join(other, &theirs), 0);
    assert_int_equal((intptr_t)ours, 3);
    assert_int_equal((intptr_t)theirs, 3);
    assert_int_equal(shared, 0);
}

/* A check that gives up, since another one lasts, leaves the connection that both use to acquires. */
TEST(a_check_that_gives_up_stops_no_acquire) {
    pthread_t other;
    void *theirs;
    SCOPED_CLIENT *client = client_of(3, "timeout=4s");
    SCOPED_LOCK *lock = api_lock(client, "n", NULL);
    checks_last = true;
    assert_int_equal(pthread_create(&other, NULL, check, client), 0);
    for (int64_t until = now_ms() + 20000; toy[0].connects < 2; sleep_ms(1))
        if (now_ms() > until) fail_msg("no check has begun");
    assert_int_equal((intptr_t)check(client), DLOCK_EBUSY);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    over = true;
    assert_int_equal(pthread_join(other, &theirs), 0);
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

static int see_nothing(const struct dlock_info *info, void *arg) {
    (void)info, (void)arg;
    fail_msg("a holder is shown before the last page");
    return 1;
}

/* It ends with the call's time, and keeps no lock of the client from its renewals. */
TEST(a_list_without_end_stops_nothing) {
    SCOPED_CLIENT *client = client_of(3, "lease=1s&timeout=2s");
    SCOPED_LOCK *held = api_lock(client, "held", NULL);
    assert_int_equal(dlock_acquire(held, 0, NULL), 0);
    const int renewals = toy[0].renews;
    assert_int_equal(dlock_list(client, "", see_nothing, NULL, NULL), DLOCK_EUNAVAILABLE);
    assert_true(pages > 3);
    assert_true(toy[0].renews > renewals);
    assert_true(dlock_held(held));
}

/* ---- wake-ups ---------------------------------------------------------------------------------------------------- */

static int is_busy(int i, struct dlock_claim *claim, int timeout_ms, struct dlock_error *err) {
    (void)i, (void)timeout_ms, (void)err;
    claim->result = DLOCK_EBUSY;
    claim->retry_ms = 100;
    return 0;
}

/* A member that sends useless wake-ups faster than they can be read keeps neither waits from their end nor locks from
 * their renewals. */
TEST(wake_ups_without_end_stop_nothing) {
    SCOPED_CLIENT *client = client_of(3, "lease=3s");
    SCOPED_LOCK *held = api_lock(client, "held", NULL), *lock = api_lock(client, "busy", NULL);
    assert_int_equal(dlock_acquire(held, 0, NULL), 0);
    script = is_busy;
    floods = true;
    assert_int_equal(dlock_acquire(lock, 1000, NULL), DLOCK_ETIMEDOUT);
    const int renewals = toy[0].renews;
    for (int64_t until = now_ms() + 20000; toy[0].renews == renewals && now_ms() < until;) sleep_ms(5);
    assert_true(toy[0].renews > renewals);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

enum { ROUND = 600 /* bytes that a request to three members has at least */ };
static atomic_int failures; /* how many of the next such allocations fail */

#ifdef __SANITIZE_THREAD__
enum { FAILS = false }; /* the sanitizer has its own calloc */
#else
enum { FAILS = true };

/* In place of the C library's for the whole program. */
__attribute__((visibility("default"))) void *calloc(size_t n, size_t size) {
    static void *(*next)(size_t, size_t);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "calloc"); /* first while there is one thread */
    if (n == 1 && size >= ROUND && failures > 0 && failures-- > 0) return NULL;
    return next(n, size);
}
#endif

/* Connecting again would need more memory than the request. */
TEST(a_renewal_without_memory_keeps_the_members) {
    if (!FAILS) skip();
    SCOPED_CLIENT *client = client_of(3, "lease=3s");
    SCOPED_LOCK *lock = api_lock(client, "held", NULL);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    failures = 1;
    for (int64_t until = now_ms() + 20000; failures > 0 && now_ms() < until;) sleep_ms(5);
    assert_int_equal(failures, 0);
    const int renewals = toy[0].renews;
    for (int64_t until = now_ms() + 20000; toy[0].renews == renewals && now_ms() < until;) sleep_ms(5);
    assert_true(toy[0].renews > renewals);
    for (int i = 0; i < 3; i++) assert_int_equal(toy[i].connects, 1);
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

/* The first member ends in its answer, and is connected again; the second one hangs. */
static int one_ends_one_hangs(int i, struct dlock_claim *claim, int timeout_ms, struct dlock_error *err) {
    (void)claim, (void)timeout_ms;
    if (i == 0 && toy[0].connects == 1) {
        sleep_ms(150);
        return dlock_fail(err, DLOCK_EUNAVAILABLE, "it has ended");
    }
    for (int64_t until = now_ms() + FOR_EVER_MS; i == 1 && !over && now_ms() < until;) sleep_ms(1);
    return 0;
}

/* The answer of a member that gets the request again decides, although the caller polls another one's connection. */
TEST(an_answer_to_a_worker_ends_the_callers_wait) {
    SCOPED_CLIENT *client = client_of(3, "timeout=120s");
    SCOPED_LOCK *lock = api_lock(client, "n", NULL);
    assert_int_equal(toy[0].connects, 1);
    toy[0].begin_ms = toy[2].begin_ms = 1;
    toy[1].begin_ms = -1;
    toy[0].connect_ms = 300;
    script = one_ends_one_hangs;
    const int64_t begun_ms = now_ms();
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_true(now_ms() - begun_ms < 50000);
    assert_int_equal(toy[0].connects, 2);
    over = true;
}

static _Thread_local bool calls;  /* this thread has called the library */
static _Thread_local int read_ms; /* for how long it was to read answers */

static int stops_short(int i, struct dlock_claim *claim, int timeout_ms, struct dlock_error *err) {
    (void)i, (void)claim;
    if (!calls) return 0;
    read_ms += timeout_ms;
    sleep_ms(timeout_ms);
    return dlock_fail(err, DLOCK_EUNAVAILABLE, "the rest of the answer does not come");
}

/* However many members stop in the middle of their answers: the call ends 100 ms after its deadline. */
TEST(stops_in_many_answers_end_with_the_deadline) {
    SCOPED_CLIENT *client = client_of(TOYS, "timeout=500ms");
    SCOPED_LOCK *lock = api_lock(client, "n", NULL);
    for (int i = 0; i < TOYS; i++) toy[i].begin_ms = 1;
    script = stops_short;
    calls = true;
    dlock_acquire(lock, 0, NULL); /* on a slow machine a worker may be faster */
    calls = false;
    assert_in_range(read_ms, 0, 500 + 100);
}

/* ---- majorities -------------------------------------------------------------------------------------------------- */

static int grants_by_half(int i, struct dlock_claim *claim, int timeout_ms, struct dlock_error *err) {
    (void)timeout_ms, (void)err;
    if (i % 2) claim->result = DLOCK_EBUSY;
    return 0;
}

/* Half of the members may have granted the lock to another client. */
TEST(half_of_the_members_is_no_majority) {
    for (int members = 4; members <= 6; members += 2) {
        toys_new(NULL);
        SCOPED_CLIENT *client = client_of(members, "timeout=20s");
        SCOPED_LOCK *lock = api_lock(client, "n", NULL);
        script = grants_by_half;
        /* Busy, but for a member whose answer comes too late on a busy machine. */
        for (int i = 0; i < 10; i++) assert_int_not_equal(dlock_acquire(lock, 0, NULL), 0);
        script = grants;
        assert_int_equal(dlock_acquire(lock, 20000, NULL), 0);
    }
}

static int two_keep_it_longer(int i, struct dlock_claim *claim, int timeout_ms, struct dlock_error *err) {
    (void)timeout_ms, (void)err;
    claim->kept_ms = i < 2 ? 9000 : 3000;
    return 0;
}

/* Any three of five members have one that keeps the grant for three seconds. */
TEST(a_grant_lasts_as_long_as_at_a_majority) {
    SCOPED_CLIENT *client = client_of(5, "timeout=20s&lease=10s");
    SCOPED_LOCK *lock = api_lock(client, "n", NULL);
    script = two_keep_it_longer;
    for (int i = 0; i < 20; i++) {
        assert_int_equal(dlock_acquire(lock, 20000, NULL), 0);
        assert_in_range(dlock_remaining_ms(lock), 0, 3000);
        assert_int_equal(dlock_release(lock, NULL), 0);
    }
}

TESTS(toys_new, toys_end, toys_register, NULL)
