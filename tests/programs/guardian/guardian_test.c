/* A client's guardian, from the death of its process to all the ways in which a guardian must not be fooled. The server
 * is the one that GUARDIAN_URI names. */
#include "holder.h"
#include "namespace.h"

#include "support/api.h"
#include "support/clock.h"
#include "support/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MANY = 2000,
    ROUNDS = 20,
    AT_ONCE = 8,
    QUIET_MS = 700, /* for what must not happen */
    PATIENCE_MS =
        20000, /* client_test.sh: a lock that is free before was released, since all leases and sessions last longer */
    START_MS = 60000,
    IN_LINE_MS = 2500, /* what is had before did not have to wait for a dead waiter's turn, which takes three seconds */
    TRIES = 10,
    RSS_KB = 16384
};

static char uri[256], name[64];
static int prompt_ms = 1000; /* in one of some tries: 250 on a machine that has nothing else to do */
static bool sanitized;
static struct holder holder;

/* ---- what is checked --------------------------------------------------------------------------------------------- */

static dlock_client *client;

static const char *nth_name(int i) {
    static char text[96];
    snprintf(text, sizeof text, "%s-%d", name, i);
    return text;
}

/* Can the n-th lock be acquired within timeout_ms? If so it is released. */
static bool free_within(int i, int timeout_ms) {
    dlock_lock *lock = api_lock(client, nth_name(i), NULL);
    struct dlock_error err = {0};
    int rc = dlock_acquire(lock, timeout_ms, &err);
    for (int left = timeout_ms; left > 0 && rc == DLOCK_EINVAL; left--, sleep_ms(1)) /* in use as permits */
        rc = dlock_acquire(lock, timeout_ms, &err);
    if (rc != 0 && rc != DLOCK_EBUSY && rc != DLOCK_ETIMEDOUT) fail_msg("%s: %s", nth_name(i), err.message);
    dlock_free(lock);
    return rc == 0;
}

/* The process is killed: its first n locks become free, because they are released. Returns after how long. */
static int kill_and_wait(const struct holder *killed, int n) {
    int64_t killed_ms = holder_kill(killed);
    for (int i = 0; i < n; i++) assert_true(free_within(i, PATIENCE_MS));
    int took_ms = (int)(now_ms() - killed_ms);
    printf("         free %d ms after the end of its holder\n", took_ms);
    assert_true(took_ms < PATIENCE_MS);
    return took_ms;
}

/* And promptly. The machine may have been busy with something else: then once more, with another holder. */
static void expect_replaced(void (*prepare)(void), int n) {
    for (int tries = 1;; tries++) {
        if (prepare) prepare();
        if (kill_and_wait(&holder, n) < prompt_ms) return;
        assert_true(tries < TRIES);
        holder_end(&holder);
        holder_start(&holder, uri, name, 1);
    }
}

static int setup(void **state) {
    static int count;
    (void)state;
    snprintf(name, sizeof name, "guardian-%d-%d", (int)getpid(), count++);
    holder_start(&holder, uri, name, 1);
    client = api_client("%s", uri);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    dlock_close(client);
    holder_end(&holder);
    return 0;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

TEST(a_killed_holder_is_replaced_at_once) {
    assert_false(free_within(0, 0));
    expect_replaced(NULL, 1);
    assert_true(guardian_gone(holder.pid));
}

/* The guardian gives up its wait as well: the waiter behind it gets its turn. */
TEST(a_killed_waiter_is_in_nobodys_way) {
    struct holder waiter;
    holder_begin(&waiter, uri, name, 1);
    guardian_awaited(waiter.pid);
    sleep_ms(QUIET_MS);
    holder_kill(&waiter);
    assert_true(guardian_gone(waiter.pid));
    holder_do(&holder, "release", "released");
    assert_true(free_within(0, IN_LINE_MS));
    close(waiter.in);
    close(waiter.out);
}

TEST(thousands_of_locks_are_released) {
    struct holder many;
    snprintf(name + strlen(name), sizeof name - strlen(name), "-many");
    holder_start(&many, uri, name, MANY);
    int64_t killed_ms = holder_kill(&many);
    for (int i = 0; i < MANY; i += MANY / 5 - 1) assert_true(free_within(i, PATIENCE_MS));
    assert_true(free_within(MANY - 1, PATIENCE_MS));
    int took_ms = (int)(now_ms() - killed_ms);
    printf("         all free %d ms after the end of their holder\n", took_ms);
    assert_true(took_ms < PATIENCE_MS);
    close(many.in);
    close(many.out);
}

/* Killed anywhere between the first thought of a lock and the last of its release. */
TEST(a_death_at_any_moment_leaves_nothing) {
    int prompt = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct holder busy;
        snprintf(name, sizeof name, "guardian-%d-busy-%d", (int)getpid(), round);
        holder_start(&busy, uri, name, AT_ONCE);
        holder_do(&busy, "churn", "churning");
        sleep_ms(10 + 7 * round % 40);
        prompt += kill_and_wait(&busy, AT_ONCE) < 2 * prompt_ms;
        close(busy.in);
        close(busy.out);
    }
    printf("         %d of %d within %d ms\n", prompt, ROUNDS, 2 * prompt_ms);
    assert_true(prompt >= ROUNDS / 2);
}

static void fork_one(void) {
    holder_do(&holder, "fork", "forked");
}

TEST(a_forked_child_does_not_hide_the_death) {
    expect_replaced(fork_one, 1);
}

static void close_all(void) {
    holder_do(&holder, "closefrom", "closed");
    sleep_ms(QUIET_MS);
    assert_false(free_within(0, 0));
}

TEST(closed_descriptors_are_no_death) {
    expect_replaced(close_all, 1);
}

TEST(a_stopped_process_keeps_its_lease) {
    assert_int_equal(kill(holder.pid, SIGSTOP), 0);
    sleep_ms(QUIET_MS);
    assert_false(free_within(0, 0));
    assert_int_equal(kill(holder.pid, SIGCONT), 0);
    holder_do(&holder, "release", "released");
    assert_true(free_within(0, PATIENCE_MS));
}

static void become_another(void) {
    holder_do(&holder, "exec", "idle");
    sleep_ms(QUIET_MS);
    assert_false(free_within(0, 0));
}

/* The process continues as another program: its grants end with it. */
TEST(an_exec_is_no_death) {
    expect_replaced(become_another, 1);
}

TEST(an_exec_with_nothing_held_ends_the_guardian) {
    holder_do(&holder, "release", "released");
    holder_do(&holder, "exec", "idle");
    assert_true(guardian_gone(holder.pid));
}

static bool can(enum dlock_cap cap) {
    return dlock_client_backend(client)->caps & cap;
}

static void take_readers_and_permits(void) {
    char word[128];
    snprintf(word, sizeof word, "read %s", nth_name(1));
    holder_do(&holder, word, "got it");
    holder_do(&holder, word, "got it");
    for (int i = 0; i < 2; i++) {
        snprintf(word, sizeof word, "permit %s", nth_name(2));
        holder_do(&holder, word, "got it");
    }
    assert_false(free_within(1, 0));
}

TEST(readers_and_permits_are_released_as_such) {
    if (!can(DLOCK_CAP_SHARED) || !can(DLOCK_CAP_PERMIT)) skip();
    expect_replaced(take_readers_and_permits, 3);
}

TEST(an_exported_grant_is_no_longer_the_exporters) {
    if (!can(DLOCK_CAP_EXPORT)) skip();
    holder_do(&holder, "export", "exported");
    holder_kill(&holder);
    assert_true(guardian_gone(holder.pid));
    assert_false(free_within(0, 0));
}

static void import_one(void) {
    char word[DLOCK_TICKET_MAX + 16] = "import ";
    dlock_lock *lock = api_lock(client, nth_name(1), NULL);
    assert_int_equal(dlock_acquire(lock, 5000, NULL), 0);
    assert_int_equal(dlock_export(lock, word + 7, DLOCK_TICKET_MAX + 1, NULL), 0);
    dlock_free(lock);
    holder_do(&holder, word, "imported");
}

TEST(an_imported_grant_ends_with_the_importer) {
    if (!can(DLOCK_CAP_EXPORT)) skip();
    expect_replaced(import_one, 2);
}

/* The first job's lock ends while the process lives, and that job with it. The second one's is renewed until the process
 * is killed; when it is free the job, which has the other end of the pipe, has ended. */
TEST(the_group_of_a_lock_ends_with_its_grant) {
    struct pollfd jobs = {.events = 0};
    char word[128];
    for (int i = 0; i < 2; i++) {
        snprintf(word, sizeof word, "job %d %s", i, nth_name(1 + i));
        holder_do(&holder, word, "working");
    }
    holder_do(&holder, "jobs", "one works");
    assert_false(free_within(2, 0));
    holder_kill(&holder);
    jobs.fd = holder.out;
    assert_true(free_within(2, PATIENCE_MS));
    assert_int_equal(poll(&jobs, 1, 0), 1);
    assert_true(jobs.revents & POLLHUP);
}

/* ---- the guardian itself ----------------------------------------------------------------------------------------- */

TEST(it_ends_with_its_client) {
    assert_true(guardian_of(holder.pid) != 0);
    holder_do(&holder, "close", "closed");
    assert_true(guardian_gone(holder.pid));
    assert_true(free_within(0, PATIENCE_MS));
}

TEST(the_client_gets_no_child) {
    holder_do(&holder, "children", "none");
    holder_do(&holder, "close", "closed");
    holder_do(&holder, "children", "none");
}

TEST(signals_do_not_end_it) {
    static const int signals[] = {SIGHUP, SIGINT, SIGTERM, SIGPIPE, SIGQUIT, SIGUSR1, SIGALRM};
    pid_t guardian = guardian_of(holder.pid);
    assert_int_equal(getsid(guardian), guardian);
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) kill(guardian, signals[i]);
    sleep_ms(50);
    assert_int_equal(guardian_of(holder.pid), guardian);
    expect_replaced(NULL, 1);
}

TEST(a_killed_one_is_replaced) {
    pid_t guardian = guardian_of(holder.pid);
    assert_int_equal(kill(guardian, SIGKILL), 0);
    pid_t next = 0; /* a zombie is listed for a moment; the next renewal, up to 10 s later, starts another one */
    for (int64_t until_ms = now_ms() + START_MS; now_ms() < until_ms && (next == 0 || next == guardian); sleep_ms(50))
        next = guardian_of(holder.pid);
    assert_true(next != 0 && next != guardian);
    holder_do(&holder, "logged", "yes");
    assert_false(free_within(0, 0));
    expect_replaced(NULL, 1);
}

static bool file_has(const char *path, const char *text) {
    char buffer[65536];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, buffer, sizeof buffer);
    if (fd >= 0) close(fd);
    return n > 0 && memmem(buffer, (size_t)n, text, strlen(text)) != NULL;
}

TEST(it_shows_nothing_and_keeps_nothing) {
    char path[64], target[256];
    pid_t guardian = guardian_of(holder.pid);
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)guardian);
    assert_true(file_has(path, "dlock-guardian"));
    assert_false(file_has(path, "://"));
    snprintf(path, sizeof path, "/proc/%d/environ", (int)guardian);
    assert_false(file_has(path, "://"));
    assert_false(file_has(path, "PATH=/"));
    snprintf(path, sizeof path, "/proc/%d/fd", (int)guardian);
    DIR *fds = opendir(path);
    assert_non_null(fds);
    for (const struct dirent *entry; (entry = readdir(fds));) {
        ssize_t n = readlinkat(dirfd(fds), entry->d_name, target, sizeof target - 1);
        if (n < 0) continue;
        target[n] = '\0';
        bool own = strcmp(target, "/dev/null") == 0 || strncmp(target, "anon_inode:", 11) == 0;
        if (!own) fail_msg("the guardian has %s open", target);
    }
    closedir(fds);
}

TEST(it_takes_little_memory) {
    char path[64], line[256];
    long rss = 0, dirty = 0, kb;
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)guardian_of(holder.pid));
    FILE *smaps = fopen(path, "re");
    assert_non_null(smaps);
    while (fgets(line, sizeof line, smaps)) {
        if (sscanf(line, "Rss: %ld", &kb) == 1) rss = kb;
        if (sscanf(line, "Private_Dirty: %ld", &kb) == 1) dirty = kb;
    }
    fclose(smaps);
    printf("         %ld kB, of which %ld kB are its own\n", rss, dirty);
    if (!sanitized) assert_true(rss > 0 && rss < RSS_KB && dirty < 1024);
}

/* The own process group has the number 0 there, its leader being outside; 0 still means no group. */
static int withdraw_a_group(const char *server) {
    struct dlock_client_options options = DLOCK_CLIENT_OPTIONS_INIT;
    struct dlock_error err = {0};
    dlock_client *inside;
    options.flags = DLOCK_CLIENT_GUARDIAN;
    int rc = dlock_open(server, &options, &inside, &err);
    pid_t group = rc == 0 ? fork() : 0;
    if (group == 0 && rc == 0) pause();
    if (rc == 0) {
        setpgid(group, group);
        rc = getpgrp() != 0 ? 1 : dlock_client_guard(inside, (int)group, &err);
        if (rc == 0) rc = dlock_client_guard(inside, 0, &err);
        kill(group, SIGKILL);
        dlock_close(inside);
    }
    if (rc != 0) fprintf(stderr, "in a PID namespace: %s\n", err.message);
    return rc != 0;
}

/* Under ThreadSanitizer a forked child of a process with threads may not start any. /proc has no `self` here. */
static int in_a_program_of_its_own(void *arg) {
    execl(getenv("GUARDIAN_TEST"), "guardian-test", "withdraw", uri, (char *)NULL);
    (void)arg;
    return 1;
}

TEST(a_group_is_withdrawn_in_a_pid_namespace) {
    int rc = namespace_run(in_a_program_of_its_own, NULL);
    if (rc == NAMESPACE_REFUSED) skip();
    assert_int_equal(rc, 0);
}

int main(int argc, char **argv) {
    const char *wanted = getenv("GUARDIAN_URI");
    if (argc == 3 && strcmp(argv[1], "withdraw") == 0) return withdraw_a_group(argv[2]);
    if (argc > 1) return holder_main(argc, argv);
    if (!wanted) {
        fputs("GUARDIAN_URI is not set\n", stderr);
        return 1;
    }
    snprintf(uri, sizeof uri, "%s", wanted);
    const char *with = getenv("GUARDIAN_SANITIZED");
    sanitized = with && *with;
    if (sanitized) prompt_ms *= 3;
    return tests_run(argc, argv, setup, teardown, NULL, NULL);
}
