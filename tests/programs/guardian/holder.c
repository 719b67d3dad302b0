#include "holder.h"

#include "support/api.h"
#include "support/clock.h"
#include "support/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATIENCE_MS = 120000, LOG_MS = 20000, LINE = DLOCK_TICKET_MAX + 64, FORKED_LIVES_S = 4, JOB_MS = 2000 };

/* ---- the other process ------------------------------------------------------------------------------------------- */

struct held {
    dlock_client *client;
    dlock_lock **locks;
    int n;
};

static volatile sig_atomic_t children_ended;
static atomic_bool guardian_logged;

static void child_ended(int sig) {
    (void)sig;
    children_ended = 1;
}

static void hear_log(int level, const char *message, void *arg) {
    (void)arg;
    if (level == DLOCK_LOG_WARN && strstr(message, "guardian") && strstr(message, "died")) guardian_logged = true;
}

/* The client says so once another guardian runs. */
static bool is_logged(void) {
    for (int64_t until_ms = now_ms() + LOG_MS; !guardian_logged && now_ms() < until_ms;) sleep_ms(5);
    return guardian_logged;
}

static int say(const char *answer) {
    return dprintf(STDOUT_FILENO, "%s\n", answer) > 0 ? 0 : 1;
}

static int complain(const struct dlock_error *err) {
    fprintf(stderr, "holder: %s\n", err->message);
    return 1;
}

static int acquire_all(struct held *held, const char *uri, const char *name) {
    struct dlock_client_options options = DLOCK_CLIENT_OPTIONS_INIT;
    struct dlock_error err = {0};
    char text[256];
    options.log = hear_log;
    if (dlock_open(uri, &options, &held->client, &err) != 0) return complain(&err);
    for (int i = 0; i < held->n; i++) {
        snprintf(text, sizeof text, "%s-%d", name, i);
        if (dlock_new(held->client, text, NULL, &held->locks[i], &err) != 0) return complain(&err);
        if (dlock_acquire(held->locks[i], 10000, &err) != 0) return complain(&err);
    }
    return 0;
}

static void let_go(struct held *held) {
    for (int i = 0; i < held->n; i++) {
        dlock_release(held->locks[i], NULL);
        dlock_free(held->locks[i]);
    }
    held->n = 0;
}

static void *acquire_and_release(void *arg) {
    dlock_lock *lock = arg;
    for (;;)
        if (dlock_acquire(lock, 10000, NULL) == 0) dlock_release(lock, NULL);
    return NULL;
}

/* Every lock on its own thread, all the time. */
static int churn(struct held *held) {
    pthread_t thread;
    for (int i = 0; i < held->n; i++) {
        dlock_release(held->locks[i], NULL);
        if (pthread_create(&thread, NULL, acquire_and_release, held->locks[i]) != 0) return 1;
    }
    return say("churning");
}

/* One more lock, of another mode. */
static int acquire_also(struct held *held, const char *name, enum dlock_mode mode, uint32_t limit) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    struct dlock_error err = {0};
    dlock_lock *lock;
    options.mode = mode;
    options.limit = limit;
    if (dlock_new(held->client, name, &options, &lock, &err) != 0) return complain(&err);
    return dlock_acquire(lock, 5000, &err) == 0 ? say("got it") : complain(&err);
}

static int export_first(struct held *held) {
    char ticket[DLOCK_TICKET_MAX + 1];
    struct dlock_error err = {0};
    return dlock_export(held->locks[0], ticket, sizeof ticket, &err) == 0 ? say("exported") : complain(&err);
}

static int import(struct held *held, const char *ticket) {
    struct dlock_error err = {0};
    dlock_lock *lock;
    return dlock_import(held->client, ticket, NULL, &lock, &err) == 0 ? say("imported") : complain(&err);
}

static int fork_a_child(void) {
    pid_t child = fork();
    if (child == 0) { /* it lives on with a copy of everything but the pipes */
        close(STDIN_FILENO);
        close(STDOUT_FILENO);
        sleep(FORKED_LIVES_S);
        _exit(0);
    }
    return child < 0 ? 1 : say("forked");
}

static pid_t jobs[2];

/* One more lock, with a job in a process group of its own: job 0 has a fixed lease that ends in JOB_MS, job 1 is
 * renewed. */
static int work(struct held *held, const char *name, int job) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    struct dlock_error err = {0};
    dlock_lock *lock;
    if (job == 0) options.flags = DLOCK_FIXED_LEASE;
    if (job == 0) options.lease_ms = JOB_MS;
    if (dlock_new(held->client, name, &options, &lock, &err) != 0) return complain(&err);
    if (dlock_acquire(lock, 5000, &err) != 0) return complain(&err);
    jobs[job] = fork();
    if (jobs[job] == 0)
        for (;;) pause();
    if (jobs[job] < 0 || setpgid(jobs[job], jobs[job]) != 0) return 1;
    return dlock_guard(lock, (int)jobs[job], &err) == 0 ? say("working") : complain(&err);
}

/* Waits until job 0 has been killed. */
static int see_jobs(void) {
    int status;
    if (waitpid(jobs[0], &status, 0) != jobs[0] || !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) return 1;
    return say(waitpid(jobs[1], &status, WNOHANG) == 0 ? "one works" : "none works");
}

static int obey(struct held *held, const char *word) {
    if (strcmp(word, "release") == 0) {
        let_go(held);
        return say("released");
    }
    if (strcmp(word, "close") == 0) {
        let_go(held);
        dlock_close(held->client);
        return say("closed");
    }
    if (strcmp(word, "closefrom") == 0) return close_range(3, ~0U, 0) == 0 ? say("closed") : 1;
    if (strcmp(word, "export") == 0) return export_first(held);
    if (strncmp(word, "import ", 7) == 0) return import(held, word + 7);
    if (strncmp(word, "read ", 5) == 0) return acquire_also(held, word + 5, DLOCK_SHARED, 0);
    if (strncmp(word, "permit ", 7) == 0) return acquire_also(held, word + 7, DLOCK_PERMIT, 2);
    if (strncmp(word, "job 0 ", 6) == 0) return work(held, word + 6, 0);
    if (strncmp(word, "job 1 ", 6) == 0) return work(held, word + 6, 1);
    if (strcmp(word, "jobs") == 0) return see_jobs();
    if (strcmp(word, "churn") == 0) return churn(held);
    if (strcmp(word, "fork") == 0) return fork_a_child();
    if (strcmp(word, "children") == 0) {
        bool none = waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD;
        return say(none && !children_ended ? "none" : "some");
    }
    if (strcmp(word, "logged") == 0) return say(is_logged() ? "yes" : "no");
    if (strcmp(word, "exec") == 0) execl("/proc/self/exe", "holder", "idle", NULL);
    return 1;
}

int holder_main(int argc, char **argv) {
    const struct sigaction action = {.sa_handler = child_ended};
    struct held held = {.n = argc == 5 ? atoi(argv[4]) : 0};
    char word[LINE];
    if (argc == 2) { /* what "exec" becomes */
        if (say("idle") != 0) return 1;
        return read(STDIN_FILENO, word, 1) < 0;
    }
    sigaction(SIGCHLD, &action, NULL);
    held.locks = calloc((size_t)held.n + 1, sizeof *held.locks);
    if (!held.locks || acquire_all(&held, argv[2], argv[3]) != 0 || say("held") != 0) return 1;
    while (fgets(word, sizeof word, stdin)) {
        word[strcspn(word, "\n")] = '\0';
        if (obey(&held, word) != 0) return 1;
    }
    return 0;
}

/* ---- this process ------------------------------------------------------------------------------------------------ */

static void expect_answer(const struct holder *holder, const char *answer) {
    char line[LINE] = "";
    struct pollfd fd = {holder->out, POLLIN, 0};
    for (size_t n = 0; n < sizeof line - 1 && !strchr(line, '\n');) {
        if (poll(&fd, 1, PATIENCE_MS) != 1) fail_msg("no \"%s\" from the holder in time", answer);
        ssize_t more = read(holder->out, line + n, sizeof line - 1 - n);
        if (more <= 0) fail_msg("the holder ended instead of saying \"%s\"", answer);
        n += (size_t)more;
    }
    line[strcspn(line, "\n")] = '\0';
    assert_string_equal(line, answer);
}

static void spawn(struct holder *holder, char *const *argv) {
    int in[2], out[2];
    posix_spawn_file_actions_t actions;
    assert_int_equal(pipe2(in, O_CLOEXEC) | pipe2(out, O_CLOEXEC), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    assert_int_equal(posix_spawn(&holder->pid, "/proc/self/exe", &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    holder->in = in[1];
    holder->out = out[0];
}

void holder_begin(struct holder *holder, const char *uri, const char *name, int n) {
    char text[512], count[16];
    snprintf(text, sizeof text, "%s%cguardian=on", uri, strchr(uri, '?') ? '&' : '?');
    snprintf(count, sizeof count, "%d", n);
    const char *const argv[] = {"holder", "hold", text, name, count, NULL};
    spawn(holder, (char *const *)(uintptr_t)argv);
}

void holder_start(struct holder *holder, const char *uri, const char *name, int n) {
    holder_begin(holder, uri, name, n);
    expect_answer(holder, "held");
}

void holder_do(const struct holder *holder, const char *word, const char *answer) {
    assert_true(dprintf(holder->in, "%s\n", word) > 0);
    expect_answer(holder, answer);
}

int64_t holder_kill(const struct holder *holder) {
    int64_t sent_ms = now_ms();
    int status;
    assert_int_equal(kill(holder->pid, SIGKILL), 0);
    assert_int_equal(waitpid(holder->pid, &status, 0), holder->pid);
    assert_true(WIFSIGNALED(status));
    return sent_ms;
}

void holder_end(struct holder *holder) {
    kill(holder->pid, SIGKILL);
    waitpid(holder->pid, NULL, 0);
    close(holder->in);
    close(holder->out);
}

/* ---- its guardian ------------------------------------------------------------------------------------------------ */

static bool read_text(const char *pid, const char *file, char *text, size_t size) {
    char path[300];
    snprintf(path, sizeof path, "/proc/%s/%s", pid, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);
    if (fd >= 0) close(fd);
    if (n < 0) return false;
    text[n] = '\0';
    return n > 0;
}

/* Whether the process of that number, as /proc writes it, is the guardian of `pid`. */
static bool is_guardian(const char *number, pid_t pid) {
    char line[LINE], expected[LINE];
    int length = snprintf(expected, sizeof expected, "dlock-guardian%c%d", '\0', (int)pid);
    return read_text(number, "cmdline", line, sizeof line) && memcmp(line, expected, (size_t)length + 1) == 0;
}

pid_t guardian_of(pid_t pid) {
    pid_t found = 0;
    DIR *proc = opendir("/proc");
    assert_non_null(proc);
    for (const struct dirent *entry; !found && (entry = readdir(proc));)
        if (atoi(entry->d_name) > 0 && is_guardian(entry->d_name, pid)) found = atoi(entry->d_name);
    closedir(proc);
    return found;
}

pid_t guardian_awaited(pid_t pid) {
    for (int64_t until_ms = now_ms() + PATIENCE_MS; now_ms() < until_ms; sleep_ms(5)) {
        pid_t found = guardian_of(pid);
        if (found) return found;
    }
    fail_msg("process %d gets no guardian", (int)pid);
    return 0;
}

bool guardian_gone(pid_t pid) {
    char number[16];
    snprintf(number, sizeof number, "%d", (int)guardian_of(pid));
    for (int64_t until_ms = now_ms() + PATIENCE_MS; now_ms() < until_ms; sleep_ms(5)) {
        if (is_guardian(number, pid)) continue; /* a look at all processes takes a hundred times as long */
        pid_t next = guardian_of(pid);
        if (!next) return true;
        snprintf(number, sizeof number, "%d", (int)next);
    }
    return false;
}
