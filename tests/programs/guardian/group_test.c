/* Whether anything of a process group still runs, as the guardian sees it. */
#include "group.h"
#include "namespace.h"

#include "support/clock.h"
#include "support/test.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* A child in its own process group that runs `body`. */
static pid_t start(void (*body)(void)) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setpgid(0, 0);
        alarm(60);
        body();
        _exit(0);
    }
    setpgid(child, child);
    return child;
}

static void end(pid_t child) {
    kill(-child, SIGKILL);
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) continue;
}

static void sleep_on(void) {
    for (;;) pause();
}

static void *sleeper(void *arg) {
    (void)arg;
    sleep_on();
    return NULL;
}

static void end_the_first_thread(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, sleeper, NULL);
    pthread_exit(NULL);
}

static void leave_a_grandchild(void) {
    if (fork() == 0) sleep_on();
}

static void nothing(void) {}

static bool becomes_zombie(pid_t child) {
    siginfo_t info;
    return waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) == 0;
}

TEST(a_process_runs_even_when_stopped) {
    pid_t child = start(sleep_on);
    assert_true(dlock__group_runs(child, 0));
    assert_true(dlock__group_runs(child, getsid(0)));
    kill(child, SIGSTOP);
    assert_true(dlock__group_runs(child, 0));
    end(child);
    assert_false(dlock__group_runs(child, 0));
}

TEST(a_zombie_does_not) {
    pid_t child = start(nothing);
    assert_true(becomes_zombie(child));
    assert_int_equal(kill(-child, 0), 0);
    assert_false(dlock__group_runs(child, 0));
    end(child);
}

TEST(a_process_without_its_first_thread_does) {
    pid_t child = start(end_the_first_thread);
    sleep_ms(200);
    assert_true(dlock__group_runs(child, 0));
    end(child);
}

TEST(a_grandchild_does_after_its_parent) {
    pid_t child = start(leave_a_grandchild);
    assert_true(becomes_zombie(child));
    assert_true(dlock__group_runs(child, 0));
    kill(-child, SIGKILL);
    for (int i = 0; i < 1000 && dlock__group_runs(child, 0); i++) sleep_ms(2);
    assert_false(dlock__group_runs(child, 0));
    end(child);
}

TEST(a_number_that_another_session_has_is_not_meant) {
    pid_t child = start(sleep_on);
    assert_false(dlock__group_runs(child, getsid(0) + 1));
    end(child);
}

static int runs_beside_a_foreign_proc(void *arg) {
    (void)arg;
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        alarm(60);
        sleep_on();
    }
    setpgid(child, child);
    bool runs = dlock__group_runs(child, 0);
    bool others = dlock__group_runs(child, getpid() + 1000); /* its session is not ours */
    kill(child, SIGKILL);
    bool zombie = becomes_zombie(child) && dlock__group_runs(child, 0);
    end(child);
    return !runs || others || zombie || dlock__group_runs(child, 0);
}

/* Where /proc has other processes under the numbers, or none. */
TEST(beside_a_foreign_proc_it_is_found_too) {
    int rc = namespace_run(runs_beside_a_foreign_proc, NULL);
    if (rc == NAMESPACE_REFUSED) skip();
    assert_int_equal(rc, 0);
}

TESTS(NULL, NULL, NULL, NULL)
