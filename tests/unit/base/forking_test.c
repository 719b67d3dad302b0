/* A fork waits for the dynamic loader, and for a moment for other foreign code. Threads are real. */
#include "base/forking.h"
#include "support/test.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static sem_t inside, go;
static atomic_bool left;

static void *load(void *arg) {
    const struct timespec pause = {.tv_nsec = 200000000};
    (void)arg;
    dlock__loading_begin();
    sem_post(&inside);
    nanosleep(&pause, NULL); /* the other thread most likely forks during this sleep */
    left = true;
    dlock__loading_end();
    sem_wait(&go); /* a thread that has ended and is not joined is a leak to the child's thread sanitizer */
    return NULL;
}

static void *connect_slowly(void *arg) {
    (void)arg;
    dlock__foreign_begin();
    sem_post(&inside);
    sem_wait(&go);
    dlock__foreign_end();
    return NULL;
}

/* The child's exit status; it has to be able to load and connect. */
static int fork_now(bool amid) {
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        dlock__loading_begin();
        dlock__loading_end();
        dlock__foreign_begin();
        dlock__foreign_end();
        _exit(!left ? 1 : dlock__forked_amid() != amid ? 2 : 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void begin(pthread_t *thread, void *(*run)(void *)) {
    sem_init(&inside, 0, 0);
    sem_init(&go, 0, 0);
    assert_int_equal(pthread_create(thread, NULL, run, NULL), 0);
    sem_wait(&inside);
}

TEST(a_fork_waits_until_a_module_is_loaded) {
    pthread_t thread;
    left = false;
    begin(&thread, load);
    assert_int_equal(fork_now(false), 0);
    sem_post(&go);
    pthread_join(thread, NULL);
}

/* The thread hangs: so would a fork that waited for it. */
TEST(a_child_knows_that_another_thread_was_connecting) {
    pthread_t thread;
    left = true;
    begin(&thread, connect_slowly);
    assert_int_equal(fork_now(true), 0);
    sem_post(&go);
    pthread_join(thread, NULL);
    assert_int_equal(fork_now(false), 0);
    assert_false(dlock__forked_amid());
}

/* In a callback, or when a module is loaded: it would wait for itself. */
TEST(a_thread_forks_amid_its_own_call) {
    int status = -1;
    dlock__loading_begin();
    dlock__foreign_begin();
    pid_t child = fork();
    if (child == 0) {
        dlock__foreign_end();
        dlock__loading_end();
        _exit(dlock__forked_amid());
    }
    dlock__foreign_end();
    dlock__loading_end();
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

TESTS(NULL, NULL, NULL, NULL)
