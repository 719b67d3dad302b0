/* Child processes, threads in their place, shared memory and semaphores. */
#include "suite.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void *shared_memory(size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) FAIL("mmap: %s", strerror(errno));
    return memory;
}

#ifdef __SANITIZE_THREAD__
enum { OWN_THREADS = 2, LAST_THREAD_MS = 2000 }; /* this one and the sanitizer's */

static int threads(void) {
    DIR *tasks = opendir("/proc/self/task");
    int n = -2; /* "." and ".." */
    while (tasks && readdir(tasks)) n++;
    if (tasks) closedir(tasks);
    return n;
}

/* Waits until the other threads have ended, such as a closed session's: under this sanitizer the child of a process
 * with threads must not start any. */
static void let_threads_end(void) {
    for (int64_t until = now_ms() + LAST_THREAD_MS; threads() > OWN_THREADS && now_ms() < until;) sleep_ms(5);
}
#else
static void let_threads_end(void) {}
#endif

/* ---- threads in the place of processes --------------------------------------------------------------------------- */

enum { MAX_STAND_INS = 256 };

static struct stand_in {
    pthread_t thread;
    void (*run)(void *);
    void *arg;
    void *copy; /* of its argument */
} stand_ins[MAX_STAND_INS];
static int n_stand_ins;

static void *stand_in(void *arg) {
    struct stand_in *self = arg;
    self->run(self->arg);
    free(self->copy);
    return NULL;
}

static pid_t start_stand_in(void (*run)(void *), void *arg, size_t size) {
    if (n_stand_ins == MAX_STAND_INS) FAIL("more than %d processes", MAX_STAND_INS);
    struct stand_in *self = &stand_ins[n_stand_ins++];
    *self = (struct stand_in){.run = run, .arg = arg};
    if (size > 0) {
        self->arg = self->copy = malloc(size);
        if (!self->copy) FAIL("out of memory");
        memcpy(self->copy, arg, size);
    }
    self->thread = start_thread(stand_in, self);
    return (pid_t)-n_stand_ins;
}

static void join_stand_in(pid_t pid) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_MS / 1000;
    if (pthread_timedjoin_np(stand_ins[-pid - 1].thread, NULL, &until) != 0)
        FAIL("the thread in the place of process %d does not end", (int)-pid);
}

/* ---- processes --------------------------------------------------------------------------------------------------- */

pid_t start_process(void (*run)(void *), void *arg, size_t size) {
    if (suite.caps & DLOCK_CAP_PRIVATE) return start_stand_in(run, arg, size);
    pid_t parent = getpid();
    let_threads_end();
    fflush(stdout); /* otherwise the child would print it again */
    pid_t pid = fork();
    if (pid < 0) FAIL("fork: %s", strerror(errno));
    if (pid > 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    run(arg);
    exit(0);
}

/* Waits for a change of the child's state, up to PATIENCE_MS. */
static int await_change(pid_t pid, int flags) {
    if (pid < 0) FAIL("a thread is no process: this case NEEDS_PROCESSES");
    int64_t until = now_ms() + PATIENCE_MS;
    int status;
    for (;;) {
        pid_t found = waitpid(pid, &status, flags | WNOHANG);
        if (found == pid) return status;
        if (found < 0 && errno != EINTR) FAIL("waitpid: %s", strerror(errno));
        if (now_ms() > until) FAIL("process %d does not end", (int)pid);
        sleep_ms(2);
    }
}

void join_process(pid_t pid) {
    if (pid < 0) {
        join_stand_in(pid);
        return;
    }
    int status = await_change(pid, 0);
    if (WIFSIGNALED(status)) FAIL("process %d was killed by signal %d", (int)pid, WTERMSIG(status));
    if (WEXITSTATUS(status) != 0) FAIL("process %d failed with status %d", (int)pid, WEXITSTATUS(status));
}

void kill_process(pid_t pid) {
    if (pid > 0) kill(pid, SIGKILL);
    int status = await_change(pid, 0);
    if (!WIFSIGNALED(status)) FAIL("process %d had failed with status %d", (int)pid, WEXITSTATUS(status));
}

void stop_process(pid_t pid) {
    if (pid > 0) kill(pid, SIGSTOP);
    if (!WIFSTOPPED(await_change(pid, WUNTRACED))) FAIL("process %d had ended", (int)pid);
}

void continue_process(pid_t pid) {
    kill(pid, SIGCONT);
}

pthread_t start_thread(void *(*run)(void *), void *arg) {
    pthread_t thread;
    int rc = pthread_create(&thread, NULL, run, arg);
    if (rc != 0) FAIL("pthread_create: %s", strerror(rc));
    return thread;
}

enum { MOST_AT_ONCE = 16 };

void run_threads(void *(*run)(void *), void *args, size_t size, int n) {
    pthread_t threads[MOST_AT_ONCE];
    EXPECT(n <= MOST_AT_ONCE);
    for (int i = 0; i < n; i++) threads[i] = start_thread(run, (char *)args + (size_t)i * size);
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
}

void run_processes(void (*run)(void *), void *args, size_t size, int n) {
    pid_t pids[MOST_AT_ONCE];
    EXPECT(n <= MOST_AT_ONCE);
    for (int i = 0; i < n; i++) pids[i] = start_process(run, (char *)args + (size_t)i * size, size);
    for (int i = 0; i < n; i++) join_process(pids[i]);
}

/* ---- semaphores -------------------------------------------------------------------------------------------------- */

void signal_init(sem_t *semaphore) {
    if (sem_init(semaphore, 1, 0) != 0) FAIL("sem_init: %s", strerror(errno));
}

void signal_wait(sem_t *semaphore) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_MS / 1000;
    while (sem_timedwait(semaphore, &until) != 0)
        if (errno != EINTR) FAIL("waited %d ms for another process in vain", PATIENCE_MS);
}
