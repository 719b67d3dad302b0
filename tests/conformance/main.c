/* dlock-conformance: runs the suite against any backend.
 *
 *     dlock-conformance [-j JOBS] URI [PATTERN]
 *     dlock-conformance --contract URI [PATTERN]
 *     dlock-conformance --list
 *
 * PATTERN is a case's name, with * and ? as in the shell. JOBS is how many cases run at a time (default 1): most of
 * them wait most of the time. Each case runs in its own process group with a time limit, so that a crash or hang is one
 * failure. With --contract the suite over the backend's table of operations runs instead, and PATTERN names its files. */
#include "contract/run.h"
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

enum { CASE_LIMIT_S = 120, MAX_JOBS = 64, TICK_MS = 50 };

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

/* The cases in progress. */
static struct job {
    volatile pid_t pid; /* and process group; 0: idle */
    const struct test_case *test;
    int64_t begun_ms;
} jobs[MAX_JOBS];
static int n_jobs = 1;

static void end_early(int signal_number) {
    for (int i = 0; i < n_jobs; i++)
        if (jobs[i].pid > 0) kill(-jobs[i].pid, SIGKILL);
    _exit(128 + signal_number);
}

/* Asks the library, in a separate process, which backend serves the URI. */
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
    if (!(suite.caps & DLOCK_CAP_PRIVATE)) suite.caps |= NEEDS_PROCESSES;
    if (!(suite.caps & DLOCK_CAP_LOCAL) && authority && strcspn(authority + 3, "/?") > 0) suite.caps |= NEEDS_HOST;
}

/* Returns the word for the first capability in `missing`. */
static const char *missing_word(uint32_t missing) {
#define DLOCK_X(name, bit, word, meaning) \
    if (missing & DLOCK_CAP_##name) return word;
    DLOCK_CAPS(DLOCK_X)
#undef DLOCK_X
    return missing & NEEDS_PROCESSES ? "processes that share the locks" : "a host in the URI";
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

static void start(struct job *job, const struct test_case *test) {
    fflush(stdout);
    job->test = test;
    job->begun_ms = now_ms();
    pid_t pid = fork();
    if (pid < 0) FAIL("fork: %s", strerror(errno));
    if (pid == 0) run_in_child(test);
    setpgid(pid, pid);
    job->pid = pid;
}

/* Ends the remains of a case and reports its outcome; `late`: its time was over. */
static void finish(struct job *job, bool late, int count[2]) {
    int status;
    kill(-job->pid, SIGKILL);
    waitpid(job->pid, &status, 0); /* last: until then the group's number stays reserved */
    job->pid = 0;
    const char *backend = suite.backend, *name = job->test->name;
    job->test = NULL;
    count[status == 0]++;
    if (status == 0)
        printf("ok %s/%s (%d ms)\n", backend, name, (int)(now_ms() - job->begun_ms));
    else if (late)
        printf("not ok %s/%s: still running after %d s\n", backend, name, CASE_LIMIT_S);
    else if (WIFSIGNALED(status))
        printf("not ok %s/%s: killed by signal %d\n", backend, name, WTERMSIG(status));
    else
        printf("not ok %s/%s: status %d\n", backend, name, WEXITSTATUS(status));
    fflush(stdout);
}

/* Does not reap it. */
static bool has_ended(pid_t pid) {
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

/* Waits until a case ends or its time is over; NULL if none is running. SIGCHLD is blocked. */
static struct job *await_one(bool *late) {
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    for (;;) {
        bool any = false;
        int64_t now = now_ms();
        for (struct job *job = jobs; job < jobs + n_jobs; job++) {
            if (job->pid == 0) continue;
            if (has_ended(job->pid)) return *late = false, job;
            if (job->begun_ms + CASE_LIMIT_S * 1000 <= now) return *late = true, job;
            any = true;
        }
        if (!any) return NULL;
        struct timespec tick = {0, TICK_MS * 1000000};
        sigtimedwait(&child, NULL, &tick);
    }
}

static struct job *idle_job(void) {
    for (struct job *job = jobs; job < jobs + n_jobs; job++)
        if (job->pid == 0) return job;
    return NULL;
}

static int run_suite(const char *pattern) {
    int count[2] = {0, 0}, skipped = 0; /* count: failed, passed */
    bool late;
    struct job *job;
    for (size_t i = 0; i < N_CASES; i++) {
        const struct test_case *test = &cases[i];
        if (pattern && fnmatch(pattern, test->name, 0) != 0) continue;
        uint32_t missing = test->needs & ~suite.caps;
        if (missing) {
            printf("skip %s/%s: needs %s\n", suite.backend, test->name, missing_word(missing));
            skipped++;
            continue;
        }
        while (!(job = idle_job()))
            if ((job = await_one(&late))) finish(job, late, count);
        start(job, test);
    }
    while ((job = await_one(&late))) finish(job, late, count);
    if (count[0] + count[1] + skipped == 0) {
        fprintf(stderr, "dlock-conformance: no case is called \"%s\"; --list shows them\n", pattern);
        return 2;
    }
    printf("%d passed, %d failed, %d skipped\n", count[1], count[0], skipped);
    return count[0] > 0;
}

static int usage(const char *program) {
    fprintf(stderr, "usage: %s [-j JOBS] URI [PATTERN]\n       %s --contract URI [PATTERN]\n       %s --list\n",
            program, program, program);
    return 2;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (size_t i = 0; i < N_CASES; i++) puts(cases[i].name);
        contract_list();
        return 0;
    }
    if (argc >= 3 && argc <= 4 && strcmp(argv[1], "--contract") == 0) return contract_run(argv[2], argv[3]);
    for (int option; (option = getopt(argc, argv, "+j:")) != -1;) {
        if (option != 'j') return usage(argv[0]);
        n_jobs = atoi(optarg);
        if (n_jobs < 1 || n_jobs > MAX_JOBS) {
            fprintf(stderr, "dlock-conformance: -j %s: give a number from 1 to %d\n", optarg, MAX_JOBS);
            return 2;
        }
    }
    int left = argc - optind;
    if (left < 1 || left > 2) return usage(argv[0]);
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    signal(SIGINT, end_early);
    signal(SIGTERM, end_early);
    suite.uri = argv[optind];
    suite.case_name = "start";
    snprintf(suite.backend, sizeof suite.backend, "%s", "conformance");
    probe();
    return run_suite(left > 1 ? argv[optind + 1] : NULL);
}
