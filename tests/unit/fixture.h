/* Shared by all tests of the locks: a fresh server and clock, clients and handles that are ended afterwards, and
 * actors: threads that do one blocking thing at a time while the test's own thread moves the clock.
 */
#ifndef DLOCK_TESTS_FIXTURE_H
#define DLOCK_TESTS_FIXTURE_H

#include "fake_backend.h"
#include "fake_env.h"
#include "support/test.h"

/* Setup and teardown of a test. The teardown ends what the test left open, and fails it if the core broke a backend's
 * contract, kept a connection, or left a lock or a waiter on a server that could be reached. */
int fixture_setup(void **state);
int fixture_teardown(void **state);

/* The usual lease, and how much of a lease is a holder's. */
enum { LEASE_MS = 10000, THIRD_MS = 3334 };
int64_t valid_us(int64_t kept_ms);

/* Ended by the teardown, in any order, unless the test did so with client_end() or lock_end(). */
dlock_client *client_new(const char *uri);
dlock_lock *lock_new(dlock_client *client, const char *name);
dlock_lock *lock_new_with(dlock_client *client, const char *name, const struct dlock_options *options);
/* The value of one of the client's counts, once all threads rest. */
uint64_t settled_count(dlock_client *client, const uint64_t *count);
void client_end(dlock_client *client);
void lock_end(dlock_lock *lock);
void client_forget(dlock_client *client); /* the test closes it itself */
void lock_forget(dlock_lock *lock);       /* the test frees it itself */

/* Another client holds it for as long as the test wants. */
struct fake_grant taken(const char *name);

/* Several locks at once. The calls take a struct all, so that begin_call() can make them. */
enum { ALL_MOST = 40 };
struct all {
    dlock_lock *locks[ALL_MOST];
    size_t n;
    int64_t timeout_ms;
    struct dlock_error err;
};
int acquire_all(void *arg);
int release_all(void *arg);

struct actor;
struct actor *actor_new(void);
/* Begins something and settles. */
void begin_acquire(struct actor *actor, dlock_lock *lock, int64_t timeout_ms);
void begin_release(struct actor *actor, dlock_lock *lock);
void begin_free(struct actor *actor, dlock_lock *lock);
void begin_close(struct actor *actor, dlock_client *client);
void begin_call(struct actor *actor, int (*call)(void *arg), void *arg);
bool over(struct actor *actor);  /* it has ended by now */
int result(struct actor *actor); /* what it returned; fails the test when it has not ended */
const struct dlock_error *error_of(struct actor *actor);

/* True if the actor's own thread read the last wake-up. */
bool read_by(const struct actor *actor);

/* Stops the actor's thread wherever it is, as SIGSTOP would, and resumes it. One at a time. */
void actor_park(struct actor *actor);
void actor_unpark(void);

/* Begins something that needs no time, and returns its result. */
int acquire_by(struct actor *actor, dlock_lock *lock, int64_t timeout_ms);
int release_by(struct actor *actor, dlock_lock *lock);
bool held_by(struct actor *actor, dlock_lock *lock);
int64_t remaining_by(struct actor *actor, dlock_lock *lock);
uint64_t fence_by(struct actor *actor, dlock_lock *lock);

/* Calls for begin_call(), and what they take. free_it() takes a lock that the fixture does not know, as an import's. */
struct extend {
    dlock_lock *lock;
    int64_t lease_ms;
};
struct export {
    dlock_lock *lock;
    char ticket[DLOCK_TICKET_MAX + 1];
    struct dlock_error err;
};
struct import {
    dlock_client *client;
    const char *ticket;
    const struct dlock_options *options;
    dlock_lock *lock; /* the imported lock */
};
int extend_it(void *extend);
int export_it(void *export);
int import_it(void *import);
int downgrade_it(void *lock);
int free_it(void *lock);
int extend_by(struct actor *actor, dlock_lock *lock, int64_t lease_ms);
int export_by(struct actor *actor, struct export *export);

/* Moves the clock from deadline to deadline until the actor has ended; fails the test after limit_ms. Returns the time
 * that passed, in microseconds. */
int64_t wait_for(struct actor *actor, int64_t limit_ms);

/* Where a callback stays until the test lifts it. */
struct barrier {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool lifted;
};
#define BARRIER \
    { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false }
void barrier_wait(struct barrier *barrier);
void barrier_lift(struct barrier *barrier); /* and settles */

/* Counts calls of an on_lost. */
struct lost_count {
    _Atomic int calls;
    _Atomic int code;
    _Atomic int64_t at_us;
    dlock_lock *_Atomic lock;
};
void count_lost(dlock_lock *lock, const struct dlock_error *err, void *arg);
/* As lock_new(), with that on_lost; lease_ms 0: the URI's. */
dlock_lock *watched_lock(dlock_client *client, const char *name, struct lost_count *lost);
dlock_lock *watched_lock_with(dlock_client *client, const char *name, uint32_t flags, int64_t lease_ms,
                              struct lost_count *lost);

/* One of our threads waits for "n", which another client holds. No time has passed since its request; the log is
 * empty. */
struct scene {
    dlock_client *client;
    dlock_lock *lock;
    struct actor *actor;
    struct fake_grant other;
    struct lost_count lost;
};
void scene_begin(struct scene *s, uint32_t flags, int64_t timeout_ms);

/* ---- asynchronous calls ---- */

/* The result that a call's callback, note_done, was given. */
struct done {
    _Atomic int calls, code;
    _Atomic int64_t at_us;
};

extern const struct dlock_options by_handle;

void note_done(dlock_lock *lock, const struct dlock_error *err, void *arg);
void begin_async(dlock_lock *lock, int64_t timeout_ms, struct done *done);
void assert_done(const struct done *done, int code);

#endif
