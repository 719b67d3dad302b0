#include "support/calls.h"

#include "support/test.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

void calls_follow(void) {
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    raise(SIGSTOP);
}

void calls_mark(void) {
    syscall(SYS_getppid);
}

int calls_fewest(pid_t pid, int rounds) {
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
    assert_int_equal(marks, rounds + 1);
    return fewest;
}
