/* Special cases of files, through the public API. */
#include "place.h"
#include "support/api.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROUNDS = 5, LEASE_MS = 600, FAR_BELOW_THE_CAP_MS = 600 };

struct site {
    char dir[PATH_MAX / 2], uri[PATH_MAX];
    dlock_client *client;
};

static int begin(void **state) {
    struct site *site = calloc(1, sizeof *site);
    assert_non_null(site);
    place_make(site->dir, sizeof site->dir);
    snprintf(site->uri, sizeof site->uri, "file:%s", site->dir);
    site->client = api_client("%s", site->uri);
    *state = site;
    return 0;
}

static int end(void **state) {
    struct site *site = *state;
    dlock_close(site->client);
    place_leave(site->dir);
    free(site);
    return 0;
}

/* ---- holders that die ---- */

/* How long something took in several rounds. The machine may be busy: most rounds must end far before the backend's cap
 * of 1 s, which would hide a missing wake, and the best of them within the promised time. */
static void check_delays(const char *what, const int64_t ms[ROUNDS], int64_t promised_ms) {
    int64_t best = INT64_MAX, worst = 0;
    int late = 0;
    for (int i = 0; i < ROUNDS; i++) {
        if (ms[i] < best) best = ms[i];
        if (ms[i] > worst) worst = ms[i];
        late += ms[i] >= FAR_BELOW_THE_CAP_MS;
    }
    print_message("%s: %lld to %lld ms\n", what, (long long)best, (long long)worst);
    assert_true(best < promised_ms);
    assert_in_range(late, 0, ROUNDS / 2);
}

struct holder {
    pid_t pid, child; /* `child` was forked while the lock was held */
};

/* `file-api hold URI`: holds "job" until it is killed; `hold-with-child URI` forks in between. Writes the child's pid,
 * or 0. A separate program, because the thread sanitizer does not follow the fork of a process with threads. */
static int hold(const char *word, const char *uri) {
    struct site site = {.client = NULL};
    pid_t child = 0;
    snprintf(site.uri, sizeof site.uri, "%s", uri);
    dlock_lock *lock = api_lock(api_client("%s", site.uri), "job", NULL);
    if (dlock_acquire(lock, 0, NULL) != 0) return 1;
    if (strcmp(word, "hold-with-child") == 0 && (child = fork()) == 0)
        for (;;) pause();
    if (write(1, &child, sizeof child) != sizeof child) return 1;
    for (;;) pause();
}

static struct holder start_holder(const struct site *site, bool with_child) {
    struct holder holder = {0, 0};
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    holder.pid = fork();
    assert_true(holder.pid >= 0);
    if (holder.pid == 0) {
        dup2(ends[1], 1);
        execl("/proc/self/exe", "file-api", with_child ? "hold-with-child" : "hold", site->uri, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &holder.child, sizeof holder.child), sizeof holder.child);
    close(ends[0]);
    return holder;
}

/* Kills the process in a moment, while the caller waits for its lock. */
static pid_t kill_later(pid_t pid) {
    pid_t killer = fork();
    assert_true(killer >= 0);
    if (killer > 0) return killer;
    usleep(100000);
    kill(pid, SIGKILL);
    _exit(0);
}

static void taken_from_the_dead(struct site *site, bool with_child, const char *what) {
    int64_t delays[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        struct holder holder = start_holder(site, with_child);
        dlock_lock *lock = api_lock(site->client, "job", NULL);
        struct dlock_error err;
        assert_int_equal(dlock_acquire(lock, 0, &err), DLOCK_EBUSY);
        pid_t killer = kill_later(holder.pid);
        int64_t start = now_ms();
        if (dlock_acquire(lock, 5000, &err) != 0) fail_msg("%s", err.message);
        delays[i] = now_ms() - start - 100;
        assert_int_equal(dlock_release(lock, NULL), 0);
        dlock_free(lock);
        if (with_child) assert_int_equal(kill(holder.child, SIGKILL), 0); /* it was alive all the time */
        child_end(killer);
        child_end(holder.pid);
    }
    check_delays(what, delays, 50);
}

TEST(after_sigkill) {
    taken_from_the_dead(*state, false, "lock after SIGKILL of its holder");
}

TEST(after_sigkill_of_a_parent) {
    taken_from_the_dead(*state, true, "lock after SIGKILL of a holder whose child lives on");
}

TEST(child_exits) {
    struct site *site = *state;
    dlock_lock *lock = api_lock(site->client, "job", NULL);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) exit(0);
    assert_int_equal(child_end(pid), 0);
    assert_true(dlock_held(lock));
    dlock_client *other = api_client("%s", site->uri);
    dlock_lock *same = api_lock(other, "job", NULL);
    assert_int_equal(dlock_acquire(same, 0, NULL), DLOCK_EBUSY);
    assert_int_equal(dlock_release(lock, NULL), 0);
    assert_int_equal(dlock_acquire(same, 0, NULL), 0);
    dlock_free(same);
    dlock_close(other);
    dlock_free(lock);
}

/* ---- flock(1) ---- */

TEST(with_flock) {
    struct site *site = *state;
    const char *path = path_in(site->dir, "nightly report");
    const char *const try_it[] = {"flock", "-n", path, "true", NULL};
    const char *const hold[] = {"flock", path, "sh", "-c", "echo; exec sleep 0.2", NULL};
    dlock_lock *lock = api_lock(site->client, "nightly report", NULL);
    int64_t delays[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        pid_t pid = command_start(hold);
        assert_int_equal(dlock_acquire(lock, 0, NULL), DLOCK_EBUSY);
        int64_t start = now_ms();
        assert_int_equal(dlock_acquire(lock, 5000, NULL), 0);
        delays[i] = now_ms() - start - 200;
        assert_int_equal(command(try_it), 1);
        assert_int_equal(dlock_release(lock, NULL), 0);
        assert_int_equal(command(try_it), 0);
        assert_int_equal(child_end(pid), 0);
    }
    check_delays("lock after the end of flock(1)", delays, 100);
    dlock_free(lock);
}

/* ---- losses ---- */

static void count(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    (void)lock;
    if (err->code == DLOCK_ELOST) ++*(_Atomic int *)arg;
}

/* Options of a lock whose losses are counted. */
static struct dlock_options counting(_Atomic int *lost) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    options.lease_ms = LEASE_MS;
    options.on_lost = count;
    options.on_lost_arg = (void *)lost;
    return options;
}

static void await_loss(const _Atomic int *lost) {
    for (int64_t start = now_ms(); *lost == 0 && now_ms() - start < 10 * LEASE_MS;) usleep(1000);
    assert_int_equal(*lost, 1);
}

TEST(unlinked_under_a_holder) {
    struct site *site = *state;
    _Atomic int lost = 0;
    const struct dlock_options options = counting(&lost);
    dlock_lock *lock = api_lock(site->client, "job", &options);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    uint64_t fence = dlock_fence(lock);
    assert_int_equal(unlink(path_in(site->dir, "job")), 0);
    await_loss(&lost);
    assert_false(dlock_held(lock));
    assert_int_equal(dlock_release(lock, NULL), DLOCK_ELOST);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_true(dlock_fence(lock) > fence);
    assert_int_equal(dlock_release(lock, NULL), 0);
    dlock_free(lock);
}

/* A deleted directory ends the connection; the client creates both again. */
TEST(deleted_directory) {
    struct site *site = *state;
    struct dlock_error err;
    dlock_lock *lock = api_lock(site->client, "job", NULL);
    place_leave(site->dir);
    if (dlock_acquire(lock, 2000, &err) != 0) fail_msg("%s", err.message);
    assert_int_equal(access(path_in(site->dir, "job"), F_OK), 0);
    assert_int_equal(dlock_release(lock, NULL), 0);
    dlock_free(lock);
}

/* ---- another directory under the path ---- */

/* `current` leads to `one`, until switch_link() makes it lead to `two`. */
static void put_behind_a_link(const struct site *site) {
    assert_int_equal(mkdir(path_in(site->dir, "one"), 0700), 0);
    assert_int_equal(mkdir(path_in(site->dir, "two"), 0700), 0);
    assert_int_equal(symlink("one", path_in(site->dir, "current")), 0);
}

static void switch_link(const struct site *site) {
    assert_int_equal(symlink("two", path_in(site->dir, "new")), 0);
    assert_int_equal(rename(path_in(site->dir, "new"), path_in(site->dir, "current")), 0);
}

/* The holder is told, and the next try asks where the path leads to now. */
TEST(switched_under_a_holder) {
    struct site *site = *state;
    _Atomic int lost = 0;
    const struct dlock_options options = counting(&lost);
    put_behind_a_link(site);
    dlock_client *early = api_client("%s/current/locks", site->uri);
    dlock_lock *held = api_lock(early, "job", &options);
    assert_int_equal(dlock_acquire(held, 0, NULL), 0);
    switch_link(site);
    dlock_client *late = api_client("%s/current/locks", site->uri);
    dlock_lock *granted = api_lock(late, "job", NULL);
    assert_int_equal(dlock_acquire(granted, 0, NULL), 0);
    await_loss(&lost);
    assert_false(dlock_held(held));
    assert_int_equal(dlock_release(held, NULL), DLOCK_ELOST);
    usleep(1100000); /* it looks once a second */
    assert_int_equal(dlock_acquire(held, 0, NULL), DLOCK_EBUSY);
    assert_int_equal(dlock_release(granted, NULL), 0);
    assert_int_equal(dlock_acquire(held, 0, NULL), 0);
    assert_int_equal(access(path_in(site->dir, "two/locks/job"), F_OK), 0);
    assert_int_equal(dlock_release(held, NULL), 0);
    dlock_free(granted);
    dlock_close(late);
    dlock_free(held);
    dlock_close(early);
}

/* A waiter follows, although the old holder continues. */
TEST(switched_under_a_waiter) {
    struct site *site = *state;
    struct site behind = {.client = NULL};
    struct dlock_error err;
    put_behind_a_link(site);
    snprintf(behind.uri, sizeof behind.uri, "file:%s", path_in(site->dir, "current/locks"));
    struct holder holder = start_holder(&behind, false);
    dlock_client *client = api_client("%s", behind.uri);
    dlock_lock *waits = api_lock(client, "job", NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        usleep(100000);
        switch_link(site);
        _exit(0);
    }
    int rc = dlock_acquire(waits, 6000, &err);
    kill_child(holder.pid);
    if (rc != 0) fail_msg("%s", err.message);
    assert_int_equal(access(path_in(site->dir, "two/locks/job"), F_OK), 0);
    assert_int_equal(dlock_release(waits, NULL), 0);
    child_end(pid);
    dlock_free(waits);
    dlock_close(client);
}

/* A refused break costs no lock. */
TEST(refused_break) {
    struct site *site = *state;
    const char *path = path_in(site->dir, "data");
    const char *const hold[] = {"flock", path, "sh", "-c", "echo; exec sleep 60", NULL};
    struct dlock_error err;
    dlock_lock *lock = api_lock(site->client, "job", NULL);
    file_put(path, "precious\n", 9);
    pid_t pid = command_start(hold);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(dlock_break(site->client, "data", &err), DLOCK_EINVAL);
    assert_non_null(strstr(err.message, path));
    kill_command(pid);
    assert_true(dlock_held(lock));
    assert_int_equal(dlock_release(lock, &err), 0);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(dlock_release(lock, NULL), 0);
    dlock_free(lock);
}

int main(int argc, char **argv) {
    if (argc == 3) return hold(argv[1], argv[2]);
    return tests_run(argc, argv, begin, end, NULL, NULL);
}
