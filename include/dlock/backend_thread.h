/* For backends with threads of their own: starts them as the core starts its own.
 *
 * SPDX-License-Identifier: MIT
 *
 * Optional, for Linux (compile with _GNU_SOURCE), static inline. */
#ifndef DLOCK_BACKEND_THREAD_H
#define DLOCK_BACKEND_THREAD_H

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Starts a thread with every signal blocked, so that the application's handlers never run on it, and with ordinary
 * scheduling: whichever thread of the application is first may have a real-time priority and never give way to others of
 * the same. The attribute is used only where it changes something, since it takes a system call that may be forbidden
 * (seccomp); where it cannot be used, the thread is scheduled as the calling one. Returns 0 or an errno. */
static inline int dlock_start_thread(pthread_t *thread, void *(*run)(void *), void *arg) {
    struct sched_param none;
    pthread_attr_t ordinary;
    sigset_t all, before;
    int error = -1;
    memset(&none, 0, sizeof none);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (syscall(SYS_sched_getscheduler, 0) > SCHED_OTHER && pthread_attr_init(&ordinary) == 0) {
        pthread_attr_setinheritsched(&ordinary, PTHREAD_EXPLICIT_SCHED);
        pthread_attr_setschedpolicy(&ordinary, SCHED_OTHER);
        pthread_attr_setschedparam(&ordinary, &none);
        error = pthread_create(thread, &ordinary, run, arg);
        pthread_attr_destroy(&ordinary);
    }
    if (error) error = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

#endif
