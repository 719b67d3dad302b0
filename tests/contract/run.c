/* Runs the files of the contract suite, each in a separate process, which a crash or a hang ends. The cases after one
 * that has failed run in the next one. */
#include "contract/run.h"
#include "contract/contract.h"

#include <errno.h>
#include <fnmatch.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FILE_LIMIT_S = 240 };

static const struct contract_file files[] = {
#define DLOCK_X(name) {#name, contract_##name},
    CONTRACT_FILES(DLOCK_X)
#undef DLOCK_X
};
enum { FILES = sizeof files / sizeof files[0] };

/* The progress of a file's process, which the parent sees. */
static struct progress {
    size_t at; /* the case that runs */
    int passed, skipped;
} * progress;

static bool applies(const struct contract_case *test) {
    uint32_t needs = test->needs;
    if (needs & NEEDS_MANY && session_each()) return false;
    if (needs & NEEDS_LEASES && can(DLOCK_CAP_SESSION)) return false;
    return can(needs & ~(NEEDS_MANY | NEEDS_LEASES));
}

static void run_cases(const struct contract_file *file) {
    static char name[128];
    struct dlock_error err = {0};
    suite.case_name = name;
    snprintf(name, sizeof name, "contract/%s", file->name);
    if (contract_open(suite.uri, &err) != 0) FAIL("cannot open the URI: %s", err.message);
    snprintf(suite.backend, sizeof suite.backend, "%s", backend->name);
    for (; file->cases[progress->at].name; progress->at++) {
        const struct contract_case *test = &file->cases[progress->at];
        if (!applies(test)) {
            progress->skipped++;
            continue;
        }
        snprintf(name, sizeof name, "contract/%s/%s", file->name, test->name);
        snprintf(suite.name, sizeof suite.name, "contract-%lx-%s", (unsigned long)(now_us() & 0xffffffff), test->name);
        test->run();
        progress->passed++;
    }
    all_clients_end();
}

/* Runs the cases of a file. Returns how many failed. */
static int run_file(const struct contract_file *file) {
    int64_t begun = now_ms();
    int failed = 0, status;
    *progress = (struct progress){0};
    do {
        fflush(stdout);
        pid_t pid = fork();
        if (pid < 0) FAIL("fork: %s", strerror(errno));
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            alarm(FILE_LIMIT_S);
            run_cases(file);
            exit(0);
        }
        waitpid(pid, &status, 0);
        if (status == 0) break;
        failed++;
        const char *name = file->cases[progress->at].name;
        if (!name) break; /* it failed at the end */
        if (WIFSIGNALED(status))
            printf("not ok contract/%s/%s: killed by signal %d\n", file->name, name, WTERMSIG(status));
        if (!WIFSIGNALED(status)) printf("not ok contract/%s/%s\n", file->name, name);
    } while (file->cases[++progress->at].name);
    printf("%s contract/%s: %d passed, %d failed, %d do not apply (%d ms)\n", failed ? "not ok" : "ok", file->name,
           progress->passed, failed, progress->skipped, (int)(now_ms() - begun));
    return failed;
}

int contract_run(const char *uri, const char *pattern) {
    int failed = 0, found = 0;
    suite.uri = uri;
    snprintf(suite.backend, sizeof suite.backend, "dlock");
    progress = shared_memory(sizeof *progress);
    for (size_t i = 0; i < FILES; i++) {
        if (pattern && fnmatch(pattern, files[i].name, 0) != 0) continue;
        found++;
        failed += run_file(&files[i]);
    }
    if (!found) fprintf(stderr, "dlock-conformance: no file of the contract is called \"%s\"\n", pattern);
    return found ? failed > 0 : 2;
}

void contract_list(void) {
    for (size_t i = 0; i < FILES; i++)
        for (const struct contract_case *test = files[i].cases; test->name; test++)
            printf("contract/%s/%s\n", files[i].name, test->name);
}
