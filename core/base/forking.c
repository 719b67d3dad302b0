#include "base/forking.h"

#include "base/env.h"

#include <pthread.h>
#include <time.h>

/* A fork waits so often, and for so long each time, until no thread is in foreign code. Calls that lock there, without
 * waiting for the network, takes a few milliseconds. */
enum { LOOKS = 100, PAUSE_NS = 500000 };

static pthread_mutex_t loader = PTHREAD_MUTEX_INITIALIZER; /* held while a module is loaded */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;  /* guards `inside` */
static unsigned inside;                                    /* calls of foreign code in progress */
static bool amid;                                          /* set before this process had a second thread */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void before(void) {
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    if (!dlock__forking()->loads) pthread_mutex_lock(&loader);
    pthread_mutex_lock(&mutex);
    for (int i = 0; inside > dlock__forking()->calls && i < LOOKS; i++) {
        pthread_mutex_unlock(&mutex);
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&mutex);
    }
}

static void in_parent(void) {
    pthread_mutex_unlock(&mutex);
    if (!dlock__forking()->loads) pthread_mutex_unlock(&loader);
}

static void in_child(void) {
    amid = amid || inside > dlock__forking()->calls;
    inside = dlock__forking()->calls;
    in_parent();
}

static void install(void) {
    pthread_atfork(before, in_parent, in_child); /* without memory for it, forks are as if it were not there */
}

void dlock__loading_begin(void) {
    pthread_once(&once, install);
    pthread_mutex_lock(&loader);
    dlock__forking()->loads = true;
}

void dlock__loading_end(void) {
    dlock__forking()->loads = false;
    pthread_mutex_unlock(&loader);
}

void dlock__foreign_begin(void) {
    pthread_once(&once, install);
    pthread_mutex_lock(&mutex);
    inside++;
    pthread_mutex_unlock(&mutex);
    dlock__forking()->calls++;
}

void dlock__foreign_end(void) {
    pthread_mutex_lock(&mutex);
    inside--;
    pthread_mutex_unlock(&mutex);
    dlock__forking()->calls--;
}

bool dlock__forked_amid(void) {
    return amid;
}
