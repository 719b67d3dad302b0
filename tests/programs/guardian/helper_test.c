/* The helper program itself, with a table made here. */
#include "base/env.h"
#include "guardian/start.h"
#include "state/guard.h"
#include "state/guard_table.h"

#include "support/clock.h"
#include "support/test.h"

#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STARTS = 300, LOOKS = 4, PAUSE_MS = 5 };

static pid_t start_helper(int table_fd) {
    char client[32];
    snprintf(client, sizeof client, "%ld", (long)getpid());
    char *const argv[] = {(char *)"dlock-guardian", client, NULL};
    const int fds[] = {table_fd, (int)syscall(SYS_pidfd_open, getpid(), 0)};
    pid_t helper = dlock__start(&(struct dlock__start){getenv("GUARDIAN"), argv, environ, fds, 2, 0});
    close(fds[1]);
    return helper;
}

/* True if all threads of the process are asleep; adds up how often they have been taken off the processor. */
static bool asleep(pid_t pid, unsigned long *switches) {
    char path[64], line[256];
    struct dirent *entry;
    bool all = true;
    *switches = 0;
    snprintf(path, sizeof path, "/proc/%ld/task", (long)pid);
    DIR *tasks = opendir(path);
    while (tasks && (entry = readdir(tasks))) {
        unsigned long n;
        char state;
        snprintf(path, sizeof path, "/proc/%ld/task/%.20s/status", (long)pid, entry->d_name);
        FILE *status = entry->d_name[0] == '.' ? NULL : fopen(path, "re");
        while (status && fgets(line, sizeof line, status)) {
            if (sscanf(line, "State: %c", &state) == 1 && state != 'S') all = false;
            if (sscanf(line, "voluntary_ctxt_switches: %lu", &n) == 1) *switches += n;
            if (sscanf(line, "nonvoluntary_ctxt_switches: %lu", &n) == 1) *switches += n;
        }
        if (status) fclose(status);
    }
    if (tasks) closedir(tasks);
    return all;
}

/* Waits for the end of a helper that has been dismissed. False: it sleeps instead, until it checks without being told,
 * a second after its start. One that waits for a processor does not sleep, however long that takes. */
static bool ends(pid_t helper) {
    unsigned long switches, before = 0;
    int status, sleeps = 0;
    while (waitpid(helper, &status, WNOHANG) == 0) {
        sleeps = asleep(helper, &switches) && switches == before ? sleeps + 1 : 0;
        before = switches;
        if (sleeps == LOOKS) {
            assert_int_equal(waitpid(helper, &status, 0), helper);
            return false;
        }
        sleep_ms(PAUSE_MS);
    }
    assert_int_equal(status, 0);
    return true;
}

/* Starts a helper and dismisses it as soon as it runs. Returns whether it heard that. */
static bool hears_its_dismissal(void) {
    int fd;
    struct dlock__guard_table *table = dlock__guard_table_new("redis://h", environ, &fd);
    assert_non_null(table);
    pid_t helper = start_helper(fd);
    assert_true(helper > 0);
    while (atomic_load(&table->helper) == 0) dlock__guard_wait(&table->helper, 0, true);
    atomic_store(&table->closed, 1);
    atomic_fetch_add(&table->calls, 1);
    dlock__guard_wake(&table->calls);
    bool heard = ends(helper);
    dlock__guard_table_free(table);
    close(fd);
    return heard;
}

/* On one processor, where its threads and the client take turns in every order. */
TEST(a_dismissal_is_never_missed) {
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &before)) CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    for (int i = 0; i < STARTS; i++) assert_true(hears_its_dismissal());
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

static int64_t boot_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

static struct dlock__guard_entry *enter(struct dlock__guard_table *table, int64_t until_us) {
    struct dlock__guard_entry *entry = dlock__guard_entry(table, dlock__guard_table_grow(table));
    entry->lease_ms = 60000;
    atomic_store(&entry->valid_until_us, until_us);
    atomic_store(&entry->used, 1);
    return entry;
}

/* A group of one process. */
static pid_t start_worker(struct dlock__guard_group *group) {
    pid_t worker = fork();
    if (worker == 0)
        for (;;) pause();
    setpgid(worker, worker);
    atomic_store(&group->session, getsid(worker));
    atomic_store(&group->number, worker);
    return worker;
}

static struct dlock__guard_table *new_table(int *fd) {
    struct dlock__guard_table *table = dlock__guard_table_new("redis://h", environ, fd);
    assert_non_null(table);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    return table;
}

static void dismiss(struct dlock__guard_table *table, int fd, pid_t helper) {
    int status;
    atomic_store(&table->closed, 1);
    atomic_fetch_add(&table->calls, 1);
    dlock__guard_wake(&table->calls);
    assert_int_equal(waitpid(helper, &status, 0), helper);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
    dlock__guard_table_free(table);
    close(fd);
}

static void expect_killed(pid_t worker) {
    int status;
    assert_int_equal(waitpid(worker, &status, 0), worker);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void end_worker(pid_t worker) {
    assert_int_equal(waitpid(worker, NULL, WNOHANG), 0);
    kill(worker, SIGKILL);
    expect_killed(worker);
}

/* Under three grants of a client that does not renew them. Returns how long before the first end of a grant the process
 * was dead; negative: after it. */
static int64_t killed_before_the_end_us(void) {
    int fd;
    struct dlock__guard_table *table = new_table(&fd);
    pid_t worker = start_worker(&table->group);
    const int64_t until_us = boot_us() + 2000000;
    enter(table, until_us + 2000000);
    enter(table, until_us);
    enter(table, DLOCK__NEVER);
    pid_t helper = start_helper(fd);
    expect_killed(worker);
    const int64_t before_us = until_us - boot_us();
    assert_int_equal(atomic_load(&table->group.killed), worker);
    dismiss(table, fd, helper);
    return before_us;
}

/* Half a second before: on a busy machine not at each try. */
TEST(the_group_is_dead_before_the_first_grant_ends) {
    bool ever = false;
    for (int tries = 0; tries < 10 && !ever; tries++) ever = killed_before_the_end_us() > 0;
    assert_true(ever);
}

/* Once killed it is killed no more: when the client has reaped it, its number may be another group's. */
TEST(the_group_of_a_grant_ends_with_it_alone) {
    int fd;
    struct dlock__guard_table *table = new_table(&fd);
    pid_t everything = start_worker(&table->group);
    struct dlock__guard_entry *first = enter(table, boot_us() + 1000000);
    struct dlock__guard_entry *second = enter(table, boot_us() + 600000000);
    pid_t one = start_worker(&first->group), other = start_worker(&second->group);
    pid_t helper = start_helper(fd);
    expect_killed(one);
    assert_int_equal(atomic_load(&first->group.killed), one);
    while (atomic_load(&first->group.ended) != one) sleep_ms(PAUSE_MS);
    atomic_store(&second->valid_until_us, boot_us()); /* later than the first, so that it has been looked at */
    atomic_fetch_add(&table->calls, 1);
    dlock__guard_wake(&table->calls);
    expect_killed(other);
    end_worker(everything);
    dismiss(table, fd, helper);
}

TEST(a_withdrawn_group_is_spared_and_so_is_the_clients) {
    int fd;
    struct dlock__guard_table *table = new_table(&fd);
    pid_t everything = start_worker(&table->group);
    struct dlock__guard_entry *first = enter(table, boot_us());
    atomic_store(&first->group.number, DLOCK__GUARD_NO_GROUP);
    struct dlock__guard_entry *second = enter(table, boot_us());
    pid_t worker = start_worker(&second->group);
    pid_t helper = start_helper(fd);
    expect_killed(worker);
    end_worker(everything);
    dismiss(table, fd, helper);
}

TESTS(NULL, NULL, NULL, NULL)
