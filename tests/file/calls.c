/* What a cycle costs, in system calls: counted by a tracer. */
#include "fixture.h"

#include <errno.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int calls_tests(void);

enum { CYCLES = 50 };

struct subject {
    const char *dir;
    enum dlock_mode mode;
};

/* Cycles between marks (getppid), in a traced child. */
static void run(const struct subject *subject) {
    void *conn = conn_open(subject->dir);
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    raise(SIGSTOP);
    for (int i = 0; i < CYCLES; i++) {
        struct dlock_claim claim = claim_of("job");
        claim.mode = subject->mode;
        claim.limit = subject->mode == DLOCK_PERMIT ? 3 : 0;
        syscall(SYS_getppid);
        if (acquire(conn, &claim) != 0 || release(conn, &claim) != 0) _exit(1);
    }
    syscall(SYS_getppid);
    _exit(0);
}

/* Follows the child from system call to system call: the fewest between two marks. */
static int fewest_calls(pid_t pid) {
    int status, calls = 0, fewest = INT_MAX, marks = 0;
    bool entering = true;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSTOPPED(status));
    assert_int_equal(ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL), 0);
    for (int sent = 0;;) {
        assert_int_equal(ptrace(PTRACE_SYSCALL, pid, NULL, (void *)(uintptr_t)sent), 0);
        while (waitpid(pid, &status, 0) < 0) assert_int_equal(errno, EINTR);
        if (!WIFSTOPPED(status)) break;
        sent = WSTOPSIG(status) == (SIGTRAP | 0x80) ? 0 : WSTOPSIG(status);
        if (sent != 0) continue;
        if (entering) {
            struct __ptrace_syscall_info info;
            assert_true(ptrace(PTRACE_GET_SYSCALL_INFO, pid, (void *)sizeof info, &info) > 0);
            if (info.entry.nr == SYS_getppid) {
                if (marks++ > 0 && calls < fewest) fewest = calls;
                calls = 0;
            } else {
                calls++;
            }
        }
        entering = !entering;
    }
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(marks, CYCLES + 1);
    return fewest;
}

static int calls_of_a_cycle(const struct world *world, enum dlock_mode mode) {
    const struct subject subject = {world->dir, mode};
    assert_false(is_held(world->conn, "job"));
    usleep(100000); /* until the directory's time stamp is old enough to be relied on */
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        FILE_BACKEND->abandon(world->conn);
        run(&subject);
    }
    int calls = fewest_calls(pid);
    print_message("system calls of an uncontended cycle in mode %d: %d\n", mode, calls);
    return calls;
}

/* flock, pread, pwrite, statx; statx, flock, fcntl. */
static void exclusive(void **state) {
    assert_in_range(calls_of_a_cycle(*state, DLOCK_EXCLUSIVE), 4, 7);
}

static void shared(void **state) {
    assert_in_range(calls_of_a_cycle(*state, DLOCK_SHARED), 4, 16);
}

static void permit(void **state) {
    assert_in_range(calls_of_a_cycle(*state, DLOCK_PERMIT), 4, 16);
}

int calls_tests(void) {
    const struct CMUnitTest tests[] = {WORLD_TEST(exclusive), WORLD_TEST(shared), WORLD_TEST(permit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
