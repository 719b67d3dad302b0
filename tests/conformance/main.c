/* dlock-conformance: runs the suite against any backend.
 *
 *     dlock-conformance URI [PATTERN]     PATTERN is a case's name, with * and ? as the shell has them
 *     dlock-conformance --list
 *
 * Each case runs in a process group of its own with a time limit, so that one that crashes or hangs is one failure. */
#include "suite.h"

#include <errno.h>
#include <fnmatch.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CASE_LIMIT_S = 90 };

static const struct test_case {
    const char *name;
    void (*run)(void);
    uint32_t needs;
} cases[] = {
#define CASE(name, needs) {#name, case_##name, needs},
#include "cases.h"
#undef CASE
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

static volatile sig_atomic_t running; /* the process group of the case in progress */

static void end_early(int signal_number) {
    if (running > 0) kill(-running, SIGKILL);
    _exit(128 + signal_number);
}

/* Asks the library, in a process of its own, who serves the URI. */
static void probe(void) {
    struct suite *shared = shared_memory(sizeof *shared);
    *shared = suite;
    pid_t pid = fork();
    if (pid < 0) FAIL("fork: %s", strerror(errno));
    if (pid == 0) {
        dlock_client *client;
        struct dlock_error err;
        if (dlock_open(suite.uri, NULL, &client, &err) != 0) {
            fprintf(stderr, "dlock-conformance: cannot open the URI: %s\n", err.message);
            exit(1);
        }
        const struct dlock_backend_info *info = dlock_client_backend(client);
        snprintf(shared->backend, sizeof shared->backend, "%s", info->name);
        shared->caps = info->caps;
        dlock_close(client);
        exit(0);
    }
    int status;
    if (waitpid(pid, &status, 0) != pid || status != 0) exit(1);
    suite = *shared;
    const char *authority = strstr(suite.uri, "://");
    if (!(suite.caps & DLOCK_CAP_LOCAL) && authority && strcspn(authority + 3, "/?") > 0) suite.caps |= NEEDS_HOST;
}

/* The word for the first capability of `missing`. */
static const char *missing_word(uint32_t missing) {
#define DLOCK_X(name, bit, word, meaning) \
    if (missing & DLOCK_CAP_##name) return word;
    DLOCK_CAPS(DLOCK_X)
#undef DLOCK_X
    return "a host in the URI";
}

static void run_in_child(const struct test_case *test) {
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    suite.case_name = test->name;
    snprintf(suite.name, sizeof suite.name, "conformance-%lx-%d-%s", (unsigned long)time(NULL), (int)getppid(),
             test->name);
    test->run();
    exit(0);
}

/* Waits for the case; returns its status, or -1 when its time is over. SIGCHLD is blocked. */
static int await_case(pid_t pid, int64_t until_ms) {
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    for (int status;;) {
        if (waitpid(pid, &status, WNOHANG) == pid) return status;
        int64_t left = until_ms - now_ms();
        if (left <= 0) return -1;
        struct timespec wait = {left / 1000, left % 1000 * 1000000};
        sigtimedwait(&child, NULL, &wait);
    }
}

static bool run_case(const struct test_case *test) {
    fflush(stdout);
    int64_t begun = now_ms();
    pid_t pid = fork();
    if (pid < 0) FAIL("fork: %s", strerror(errno));
    if (pid == 0) run_in_child(test);
    setpgid(pid, pid);
    running = pid;
    int status = await_case(pid, begun + CASE_LIMIT_S * 1000);
    kill(-pid, SIGKILL);
    if (status == -1) waitpid(pid, NULL, 0);
    running = 0;
    const char *backend = suite.backend;
    if (status == 0) {
        printf("ok %s/%s (%d ms)\n", backend, test->name, (int)(now_ms() - begun));
        return true;
    }
    if (status == -1)
        printf("not ok %s/%s: still running after %d s\n", backend, test->name, CASE_LIMIT_S);
    else if (WIFSIGNALED(status))
        printf("not ok %s/%s: killed by signal %d\n", backend, test->name, WTERMSIG(status));
    else
        printf("not ok %s/%s: status %d\n", backend, test->name, WEXITSTATUS(status));
    return false;
}

static int run_suite(const char *pattern) {
    int passed = 0, failed = 0, skipped = 0;
    for (size_t i = 0; i < N_CASES; i++) {
        const struct test_case *test = &cases[i];
        if (pattern && fnmatch(pattern, test->name, 0) != 0) continue;
        uint32_t missing = test->needs & ~suite.caps;
        if (missing) {
            printf("skip %s/%s: needs %s\n", suite.backend, test->name, missing_word(missing));
            skipped++;
        } else if (run_case(test)) {
            passed++;
        } else {
            failed++;
        }
    }
    if (passed + failed + skipped == 0) {
        fprintf(stderr, "dlock-conformance: no case is called \"%s\"; --list shows them\n", pattern);
        return 2;
    }
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed > 0;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (size_t i = 0; i < N_CASES; i++) puts(cases[i].name);
        return 0;
    }
    if (argc < 2 || argc > 3 || argv[1][0] == '-') {
        fprintf(stderr, "usage: %s URI [PATTERN]\n       %s --list\n", argv[0], argv[0]);
        return 2;
    }
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    signal(SIGINT, end_early);
    signal(SIGTERM, end_early);
    suite.uri = argv[1];
    suite.case_name = "start";
    snprintf(suite.backend, sizeof suite.backend, "%s", "conformance");
    probe();
    return run_suite(argc > 2 ? argv[2] : NULL);
}
