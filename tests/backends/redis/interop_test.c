/* One key, several kinds of clients: redis-cli with the documented commands, redis-py's Lock, and us. */
#include "api.h"
#include "support/group.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAME "shared between clients"

static dlock_client *client;
static dlock_lock *lock;

static int setup(void **state) {
    (void)state;
    ask_text(&server, "FLUSHALL");
    client = api_open(&server, "quarantine=0");
    lock = api_lock(client, NAME, NULL);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    dlock_free(lock);
    dlock_close(client);
    return 0;
}

/* ---- redis-cli --------------------------------------------------------------------------------------------------- */

/* redis-cli's output for these arguments of a shell line. */
static const char *cli(const char *arguments) {
    static char out[256];
    char command[512];
    FILE *pipe;
    snprintf(command, sizeof command, "redis-cli -p %d --raw %s", server.port, arguments);
    pipe = popen(command, "r");
    assert_non_null(pipe);
    if (!fgets(out, sizeof out, pipe)) *out = '\0';
    out[strcspn(out, "\n")] = '\0';
    assert_int_equal(pclose(pipe), 0);
    return out;
}

#define CLI_TAKE "set '" NAME "' my-random-value NX PX 30000"
/* The script of the Redis documentation. */
#define CLI_RELEASE                                                                                          \
    "eval 'if redis.call(\"get\",KEYS[1]) == ARGV[1] then return redis.call(\"del\",KEYS[1]) else return 0 " \
    "end' 1 '" NAME "' my-random-value"

TEST(redis_cli_and_we_exclude_each_other) {
    struct dlock_error err = {0};
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_string_equal(cli(CLI_TAKE), "");
    assert_string_equal(cli(CLI_RELEASE), "0");
    assert_true(dlock_held(lock));
    assert_int_equal(dlock_release(lock, NULL), 0);

    assert_string_equal(cli(CLI_TAKE), "OK");
    assert_int_equal(dlock_acquire(lock, 0, &err), DLOCK_EBUSY);
    assert_int_equal(dlock_acquire(lock, 200, &err), DLOCK_ETIMEDOUT);
    assert_string_equal(cli(CLI_RELEASE), "1");
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(dlock_release(lock, NULL), 0);
}

/* No message announces the release of such a holder: we ask often enough. */
TEST(a_wait_for_a_foreign_holder_ends_soon) {
    struct api_worker waiter = {.lock = lock, .timeout_ms = 20000, .rounds = 1};
    int64_t released;
    assert_string_equal(cli(CLI_TAKE), "OK");
    api_begin(&waiter);
    sleep_ms(1000);
    assert_string_equal(cli(CLI_RELEASE), "1");
    released = now_ms();
    api_end(&waiter);
    if (waiter.code) fail_msg("%s", waiter.err.message);
    assert_true(waiter.got_it_ms - released < 1000);
}

TEST(a_late_release_spares_the_foreign_holder) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    dlock_lock *brief;
    options.lease_ms = 100;
    options.flags = DLOCK_FIXED_LEASE;
    brief = api_lock(client, NAME, &options);
    assert_int_equal(dlock_acquire(brief, 0, NULL), 0);
    sleep_ms(150);
    assert_string_equal(cli(CLI_TAKE), "OK");
    assert_int_equal(dlock_release(brief, NULL), DLOCK_ELOST);
    assert_string_equal(cli("get '" NAME "'"), "my-random-value");
    dlock_free(brief);
}

static int count(const struct dlock_info *info, void *arg) {
    assert_string_equal(info->token, "my-random-value");
    assert_int_equal(info->fence, 0);
    ++*(int *)arg;
    return 0;
}

TEST(data_that_never_ends_is_not_broken) {
    struct dlock_error err;
    assert_string_equal(cli("set '" NAME "' precious"), "OK");
    assert_int_equal(dlock_break(client, NAME, &err), DLOCK_EINVAL);
    assert_non_null(strstr(err.message, "redis-cli"));
    assert_string_equal(cli("get '" NAME "'"), "precious");
}

TEST(a_foreign_holder_can_be_seen_and_broken) {
    int seen = 0;
    assert_string_equal(cli(CLI_TAKE), "OK");
    assert_int_equal(dlock_inspect(client, NAME, count, &seen, NULL), 0);
    assert_int_equal(seen, 1);
    assert_int_equal(dlock_break(client, NAME, NULL), 0);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(dlock_release(lock, NULL), 0);
}

/* ---- redis-py ---------------------------------------------------------------------------------------------------- */

static struct {
    pid_t pid;
    FILE *orders, *answers;
} python;

static void python_begin(void) {
    char port[16];
    int to[2], from[2];
    assert_int_equal(pipe(to), 0);
    assert_int_equal(pipe(from), 0);
    snprintf(port, sizeof port, "%d", server.port);
    python.pid = fork();
    if (python.pid == 0) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        close(to[1]);
        close(from[0]);
        execl("/usr/bin/python3", "python3", DLOCK_FOREIGN_LOCK, port, NAME, (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    python.orders = fdopen(to[1], "w");
    python.answers = fdopen(from[0], "r");
}

static void python_order(const char *order) {
    fprintf(python.orders, "%s\n", order);
    fflush(python.orders);
}

static const char *python_answer(void) {
    static char out[128];
    if (!fgets(out, sizeof out, python.answers)) fail_msg("foreign_lock.py ended: is python3-redis installed?");
    out[strcspn(out, "\n")] = '\0';
    return out;
}

static const char *python_do(const char *order) {
    python_order(order);
    return python_answer();
}

static void python_end(void) {
    int status;
    fclose(python.orders);
    fclose(python.answers);
    waitpid(python.pid, &status, 0);
    assert_int_equal(status, 0);
}

TEST(redis_py_and_we_exclude_each_other) {
    struct api_worker waiter = {.lock = lock, .timeout_ms = 20000, .rounds = 1};
    char pretend[160] = "token ";
    struct dlock_error err = {0};
    python_begin();
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_string_equal(python_do("try"), "busy");
    assert_string_equal(python_do("token somebody-else"), "done");
    assert_string_equal(python_do("release"), "LockNotOwnedError");
    python_order("wait");
    sleep_ms(100);
    assert_int_equal(dlock_release(lock, NULL), 0);
    assert_string_equal(python_answer(), "held");

    assert_int_equal(dlock_acquire(lock, 0, &err), DLOCK_EBUSY);
    assert_string_equal(python_do("extend"), "done");
    api_begin(&waiter);
    sleep_ms(300);
    assert_string_equal(python_do("release"), "done");
    api_end(&waiter);
    if (waiter.code) fail_msg("%s", waiter.err.message);

    /* With our token it is our lock: a library that compares tokens there does so here. */
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(dlock_token(lock, pretend + strlen(pretend), DLOCK_TOKEN_MAX + 1, NULL), 0);
    assert_string_equal(python_do(pretend), "done");
    assert_string_equal(python_do("release"), "done");
    assert_string_equal(python_do("try"), "held");
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
    assert_string_equal(python_do("release"), "done");
    python_end();
}

/* Readers and permits are seen by such clients, and see them. */
TEST(redis_py_and_joint_holders_exclude_each_other) {
    static const struct dlock_options ways[] = {{.size = sizeof ways[0], .mode = DLOCK_SHARED},
                                                {.size = sizeof ways[0], .mode = DLOCK_PERMIT, .limit = 2}};
    dlock_client *other = api_open(&server, "quarantine=0");
    python_begin();
    for (int way = 0; way < 2; way++) {
        dlock_lock *first = api_lock(client, NAME, &ways[way]), *second = api_lock(other, NAME, &ways[way]);
        struct api_worker waiter = {.lock = second, .timeout_ms = 20000, .rounds = 1};
        assert_int_equal(dlock_acquire(first, 0, NULL), 0);
        assert_int_equal(dlock_acquire(second, 0, NULL), 0);
        assert_string_equal(python_do("try"), "busy");
        assert_int_equal(dlock_release(first, NULL), 0);
        assert_string_equal(python_do("try"), "busy");
        python_order("wait");
        sleep_ms(100);
        assert_int_equal(dlock_release(second, NULL), 0);
        assert_string_equal(python_answer(), "held");
        assert_int_equal(dlock_acquire(first, 0, NULL), DLOCK_EBUSY);
        api_begin(&waiter);
        sleep_ms(300);
        assert_string_equal(python_do("release"), "done");
        api_end(&waiter);
        if (waiter.code) fail_msg("%s", waiter.err.message);
        dlock_free(first);
        dlock_free(second);
    }
    python_end();
    dlock_close(other);
}

static atomic_bool busy_no_more;

static void *keep_busy(void *arg) {
    while (!busy_no_more) {
        if (dlock_acquire(arg, -1, NULL) != 0) return arg;
        sleep_ms(1);
        if (dlock_release(arg, NULL) != 0) return arg;
    }
    return NULL;
}

/* Four clients that hand the lock on to each other all the time do not keep out one that polls. */
TEST(a_client_that_polls_gets_its_turn) {
    enum { BUSY = 4 };
    dlock_client *clients[BUSY];
    dlock_lock *locks[BUSY];
    pthread_t threads[BUSY];
    python_begin();
    busy_no_more = false;
    for (int i = 0; i < BUSY; i++) {
        clients[i] = api_open(&server, "quarantine=0");
        locks[i] = api_lock(clients[i], NAME, NULL);
        assert_int_equal(pthread_create(&threads[i], NULL, keep_busy, locks[i]), 0);
    }
    while (ask_number(&server, "ZCARD {%s}:dlock:queue", NAME) < BUSY - 2) sleep_ms(1);
    assert_string_equal(python_do("turn"), "held");
    busy_no_more = true;
    assert_string_equal(python_do("release"), "done");
    for (int i = 0; i < BUSY; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
        dlock_free(locks[i]);
        dlock_close(clients[i]);
    }
    python_end();
}

TESTS(setup, teardown, group_begin, group_end)
