/* Starting a program that is no child of the process. */
#include "guardian/start.h"

#include "support/clock.h"
#include "support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t sigchld;

static void child_ended(int sig) {
    (void)sig;
    sigchld = 1;
}

/* Runs a shell line with the write end of a pipe as descriptor 3 and stores what it writes there. */
static pid_t run(const char *line, char *text, size_t size) {
    int ends[2];
    char *const argv[] = {(char *)"sh", (char *)"-c", (char *)(uintptr_t)line, NULL}, *const envp[] = {NULL};
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    const struct dlock__start start = {"/bin/sh", argv, envp, &ends[1], 1, 0};
    pid_t pid = dlock__start(&start);
    assert_true(pid > 0);
    close(ends[1]);
    size_t used = 0;
    for (ssize_t n; used < size - 1 && (n = read(ends[0], text + used, size - 1 - used)) > 0;) used += (size_t)n;
    text[used] = '\0';
    close(ends[0]);
    return pid;
}

TEST(it_gets_a_session_and_nothing_else) {
    static const char expected[] = "/dev/null\n/dev/null\n/dev/null\npipe:[";
    char text[256];
    int inherited = open("/dev/zero", O_RDONLY); /* not close-on-exec */
    /* A pipeline, or a redirection outside of the subshell, would give the shell more descriptors for a moment. */
    pid_t pid =
        run("(for fd in /proc/$$/fd/*; do readlink $fd; done) >&3; ps -o pid=,sid= -p $$ >&3", text, sizeof text);
    close(inherited);
    assert_memory_equal(text, expected, strlen(expected));
    long shown = 0, session = 0;
    assert_int_equal(sscanf(text + strlen(expected), "%*d]\n%ld %ld", &shown, &session), 2);
    assert_int_equal(shown, pid);
    assert_int_equal(session, pid);
}

/* Each one's source may be another one's target. */
TEST(descriptors_keep_their_order) {
    static const char *const names[] = {"/dev/zero", "/dev/full", "/dev/null"};
    char text[256];
    int ends[2], fds[4];
    char *const argv[] = {(char *)"sh", (char *)"-c", (char *)"for fd in 3 4 5; do readlink /proc/$$/fd/$fd; done >&6",
                          NULL},
                *const envp[] = {NULL};
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    for (int i = 0; i < 3; i++) fds[2 - i] = open(names[2 - i], O_RDONLY | O_CLOEXEC); /* the last gets the lowest */
    fds[3] = ends[1];
    const struct dlock__start start = {"/bin/sh", argv, envp, fds, 4, 0};
    assert_true(dlock__start(&start) > 0);
    close(ends[1]);
    FILE *answer = fdopen(ends[0], "r");
    for (int i = 0; i < 3; i++) {
        assert_non_null(fgets(text, sizeof text, answer));
        text[strcspn(text, "\n")] = '\0';
        assert_string_equal(text, names[i]);
        close(fds[i]);
    }
    fclose(answer);
}

/* Only of descriptors that other threads may close at any time. */
TEST(a_descriptor_may_be_closed) {
    static const char line[] = "for fd in 3 4 5; do readlink /proc/$$/fd/$fd; done >&3";
    char text[256] = "";
    int ends[2];
    char *const argv[] = {(char *)"sh", (char *)"-c", (char *)(uintptr_t)line, NULL}, *const envp[] = {NULL};
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    const int fds[] = {ends[1], -1, open("/dev/zero", O_RDONLY | O_CLOEXEC)};
    const struct dlock__start strict = {"/bin/sh", argv, envp, fds, 3, 1}, start = {"/bin/sh", argv, envp, fds, 3, 2};
    assert_int_equal(dlock__start(&strict), -1);
    assert_int_equal(errno, EBADF);
    assert_true(dlock__start(&start) > 0);
    close(ends[1]);
    size_t used = 0;
    for (ssize_t n; (n = read(ends[0], text + used, sizeof text - 1 - used)) > 0;) used += (size_t)n;
    assert_non_null(strstr(text, "]\n/dev/null\n/dev/zero\n"));
    close(fds[2]);
    close(ends[0]);
}

TEST(the_caller_has_no_child) {
    const struct sigaction action = {.sa_handler = child_ended};
    char text[16];
    sigaction(SIGCHLD, &action, NULL);
    run("echo x >&3", text, sizeof text);
    assert_string_equal(text, "x\n");
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    assert_int_equal(sigchld, 0);
}

TEST(who_adopts_orphans_can_reap_it) {
    char text[16];
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    pid_t pid = run("echo x >&3; read line <&3 2>/dev/null; exec sleep 0.1", text, sizeof text);
    for (int i = 0; i < 5000 && !dlock__start_reaped(pid); i++) sleep_ms(2);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
}

TEST(what_cannot_be_executed_is_an_error) {
    char *const argv[] = {(char *)"x", NULL}, *const envp[] = {NULL};
    const struct dlock__start missing = {"/nonexistent/program", argv, envp, NULL, 0, 0};
    const struct dlock__start folder = {"/", argv, envp, NULL, 0, 0};
    const struct dlock__start no_descriptor = {"/bin/sh", argv, envp, (const int[]){-1}, 1, 0};
    assert_int_equal(dlock__start(&missing), -1);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(dlock__start(&folder), -1);
    assert_int_equal(errno, EACCES);
    assert_int_equal(dlock__start(&no_descriptor), -1);
    assert_int_equal(errno, EBADF);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

/* However low it is. */
TEST(a_limit_to_descriptors_is_named) {
    char *const argv[] = {(char *)"sh", (char *)"-c", (char *)":", NULL}, *const envp[] = {NULL};
    const struct dlock__start start = {"/bin/sh", argv, envp, NULL, 0, 0};
    struct rlimit before, now;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    for (now = before, now.rlim_cur = 0; now.rlim_cur < 5; now.rlim_cur++) {
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
        assert_int_equal(dlock__start(&start), -1);
        assert_int_equal(errno, EMFILE);
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

TESTS(NULL, NULL, NULL, NULL)
