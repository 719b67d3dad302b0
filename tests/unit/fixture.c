/* See fixture.h. */
#include "fixture.h"

#include "state/client.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_OBJECTS = 1024, MAX_ACTORS = 64, WATCHDOG_S = 200 };

struct actor {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    int (*call)(struct actor *); /* NULL: idle */
    int (*own_call)(void *);
    void *arg;
    dlock_lock *lock;
    dlock_client *client;
    int64_t timeout_ms;
    int result;
    int64_t number;
    struct dlock_error err;
    bool end;
};

static dlock_client *clients[MAX_OBJECTS];
static dlock_lock *locks[MAX_OBJECTS];
static struct actor actors[MAX_ACTORS];
static size_t n_clients, n_locks, n_actors;

int64_t valid_us(int64_t kept_ms) {
    return kept_ms * 1000 - kept_ms * 10 - 2000;
}

/* ---- actors ------------------------------------------------------------------------------------------------------ */

bool read_by(const struct actor *actor) {
    return pthread_equal(actor->thread, fake_wake_reader());
}

void actor_park(struct actor *actor) {
    fake_thread_stop(actor->thread);
}
void actor_unpark(void) {
    fake_thread_continue();
}

static void *actor_run(void *arg) {
    struct actor *actor = arg;
    pthread_mutex_lock(&actor->mutex);
    while (!actor->end) {
        int (*call)(struct actor *) = actor->call;
        if (!call) {
            pthread_cond_wait(&actor->cond, &actor->mutex);
            continue;
        }
        pthread_mutex_unlock(&actor->mutex);
        int got = call(actor);
        pthread_mutex_lock(&actor->mutex);
        actor->result = got;
        actor->call = NULL;
    }
    pthread_mutex_unlock(&actor->mutex);
    return NULL;
}

struct actor *actor_new(void) {
    assert_true(n_actors < MAX_ACTORS);
    struct actor *actor = &actors[n_actors];
    memset(actor, 0, sizeof *actor);
    pthread_mutex_init(&actor->mutex, NULL);
    pthread_cond_init(&actor->cond, NULL);
    assert_int_equal(fake_thread_start(&actor->thread, actor_run, actor), 0);
    n_actors++;
    return actor;
}

static void actor_end(struct actor *actor) {
    pthread_mutex_lock(&actor->mutex);
    actor->end = true;
    pthread_cond_signal(&actor->cond);
    pthread_mutex_unlock(&actor->mutex);
    fake_thread_join(actor->thread);
    pthread_cond_destroy(&actor->cond);
    pthread_mutex_destroy(&actor->mutex);
}

bool over(struct actor *actor) {
    pthread_mutex_lock(&actor->mutex);
    bool idle = actor->call == NULL;
    pthread_mutex_unlock(&actor->mutex);
    return idle;
}

int result(struct actor *actor) {
    assert_true(over(actor));
    return actor->result;
}

const struct dlock_error *error_of(struct actor *actor) {
    assert_true(over(actor));
    return &actor->err;
}

static void begin(struct actor *actor, int (*call)(struct actor *)) {
    assert_true(over(actor));
    pthread_mutex_lock(&actor->mutex);
    memset(&actor->err, 0, sizeof actor->err);
    actor->call = call;
    pthread_cond_signal(&actor->cond);
    pthread_mutex_unlock(&actor->mutex);
    fake_settle();
}

static int do_acquire(struct actor *actor) {
    return dlock_acquire(actor->lock, actor->timeout_ms, &actor->err);
}
static int do_release(struct actor *actor) {
    return dlock_release(actor->lock, &actor->err);
}
static int do_call(struct actor *actor) {
    return actor->own_call(actor->arg);
}
static int do_held(struct actor *actor) {
    return dlock_held(actor->lock);
}

static int do_remaining(struct actor *actor) {
    actor->number = dlock_remaining_ms(actor->lock);
    return 0;
}

static int do_fence(struct actor *actor) {
    actor->number = (int64_t)dlock_fence(actor->lock);
    return 0;
}

static int do_free(struct actor *actor) {
    dlock_free(actor->lock);
    return 0;
}

static int do_close(struct actor *actor) {
    dlock_close(actor->client);
    return 0;
}

static void begin_on(struct actor *actor, dlock_lock *lock, int (*call)(struct actor *)) {
    assert_true(over(actor));
    actor->lock = lock;
    begin(actor, call);
}

void begin_acquire(struct actor *actor, dlock_lock *lock, int64_t timeout_ms) {
    assert_true(over(actor));
    actor->timeout_ms = timeout_ms;
    begin_on(actor, lock, do_acquire);
}

void begin_release(struct actor *actor, dlock_lock *lock) {
    begin_on(actor, lock, do_release);
}

void begin_free(struct actor *actor, dlock_lock *lock) {
    lock_forget(lock);
    begin_on(actor, lock, do_free);
}

void begin_close(struct actor *actor, dlock_client *client) {
    assert_true(over(actor));
    client_forget(client);
    actor->client = client;
    begin(actor, do_close);
}

void begin_call(struct actor *actor, int (*call)(void *arg), void *arg) {
    assert_true(over(actor));
    actor->own_call = call;
    actor->arg = arg;
    begin(actor, do_call);
}

int acquire_by(struct actor *actor, dlock_lock *lock, int64_t timeout_ms) {
    begin_acquire(actor, lock, timeout_ms);
    return result(actor);
}

int release_by(struct actor *actor, dlock_lock *lock) {
    begin_release(actor, lock);
    return result(actor);
}

bool held_by(struct actor *actor, dlock_lock *lock) {
    begin_on(actor, lock, do_held);
    return result(actor);
}

int64_t remaining_by(struct actor *actor, dlock_lock *lock) {
    begin_on(actor, lock, do_remaining);
    assert_int_equal(result(actor), 0);
    return actor->number;
}

uint64_t fence_by(struct actor *actor, dlock_lock *lock) {
    begin_on(actor, lock, do_fence);
    assert_int_equal(result(actor), 0);
    return (uint64_t)actor->number;
}

int64_t wait_for(struct actor *actor, int64_t limit_ms) {
    int64_t began = dlock__now_us();
    fake_settle();
    while (!over(actor)) {
        assert_true(fake_advance_next());
        assert_true(dlock__now_us() - began <= limit_ms * 1000);
    }
    return dlock__now_us() - began;
}

/* ---- clients and handles ----------------------------------------------------------------------------------------- */

dlock_client *client_new(const char *uri) {
    dlock_client *client = NULL;
    struct dlock_error err = {0, ""};
    if (dlock_open(uri, NULL, &client, &err) != 0) fail_msg("dlock_open(%s): %s", uri, err.message);
    assert_true(n_clients < MAX_OBJECTS);
    clients[n_clients++] = client;
    return client;
}

dlock_lock *lock_new_with(dlock_client *client, const char *name, const struct dlock_options *options) {
    dlock_lock *lock = NULL;
    struct dlock_error err = {0, ""};
    if (dlock_new(client, name, options, &lock, &err) != 0) fail_msg("dlock_new(%s): %s", name, err.message);
    assert_true(n_locks < MAX_OBJECTS);
    locks[n_locks++] = lock;
    return lock;
}

dlock_lock *lock_new(dlock_client *client, const char *name) {
    return lock_new_with(client, name, NULL);
}

uint64_t settled_count(dlock_client *client, const uint64_t *count) {
    fake_settle();
    dlock__enter(client);
    uint64_t n = *count;
    dlock__leave(client);
    return n;
}

void client_forget(dlock_client *client) {
    for (size_t i = 0; i < n_clients; i++)
        if (clients[i] == client) clients[i] = NULL;
}

void lock_forget(dlock_lock *lock) {
    for (size_t i = 0; i < n_locks; i++)
        if (locks[i] == lock) locks[i] = NULL;
}

void client_end(dlock_client *client) {
    client_forget(client);
    dlock_close(client);
}

void lock_end(dlock_lock *lock) {
    lock_forget(lock);
    dlock_free(lock);
}

struct fake_grant taken(const char *name) {
    fake_other_acquire(name, 600000);
    struct fake_grant grant = fake_holder(name);
    assert_true(grant.other);
    return grant;
}

int extend_it(void *arg) {
    const struct extend *extend = arg;
    return dlock_extend(extend->lock, extend->lease_ms, NULL);
}

int export_it(void *arg) {
    struct export *export = arg;
    return dlock_export(export->lock, export->ticket, sizeof export->ticket, &export->err);
}

int import_it(void *arg) {
    struct import *import = arg;
    return dlock_import(import->client, import->ticket, import->options, &import->lock, NULL);
}

int downgrade_it(void *lock) {
    return dlock_downgrade(lock, NULL);
}

int free_it(void *lock) {
    dlock_free(lock);
    return 0;
}

int extend_by(struct actor *actor, dlock_lock *lock, int64_t lease_ms) {
    struct extend extend = {lock, lease_ms};
    begin_call(actor, extend_it, &extend);
    return result(actor);
}

int export_by(struct actor *actor, struct export *export) {
    begin_call(actor, export_it, export);
    return result(actor);
}

int acquire_all(void *arg) {
    struct all *all = arg;
    return dlock_acquire_all(all->locks, all->n, all->timeout_ms, &all->err);
}

int release_all(void *arg) {
    struct all *all = arg;
    return dlock_release_all(all->locks, all->n, &all->err);
}

void barrier_wait(struct barrier *barrier) {
    pthread_mutex_lock(&barrier->mutex);
    while (!barrier->lifted) pthread_cond_wait(&barrier->cond, &barrier->mutex);
    pthread_mutex_unlock(&barrier->mutex);
}

void barrier_lift(struct barrier *barrier) {
    pthread_mutex_lock(&barrier->mutex);
    barrier->lifted = true;
    pthread_cond_broadcast(&barrier->cond);
    pthread_mutex_unlock(&barrier->mutex);
    fake_settle();
}

void count_lost(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    struct lost_count *count = arg;
    atomic_store(&count->code, err ? err->code : 0);
    atomic_store(&count->at_us, dlock__now_us());
    atomic_store(&count->lock, lock);
    atomic_fetch_add(&count->calls, 1);
}

dlock_lock *watched_lock(dlock_client *client, const char *name, struct lost_count *lost) {
    return watched_lock_with(client, name, 0, 0, lost);
}

dlock_lock *watched_lock_with(dlock_client *client, const char *name, uint32_t flags, int64_t lease_ms,
                              struct lost_count *lost) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    options.flags = flags;
    options.lease_ms = lease_ms;
    options.on_lost = count_lost;
    options.on_lost_arg = lost;
    return lock_new_with(client, name, &options);
}

void scene_begin(struct scene *s, uint32_t flags, int64_t timeout_ms) {
    s->lost = (struct lost_count){0};
    s->client = client_new("fake:");
    s->lock = watched_lock_with(s->client, "n", flags, 0, &s->lost);
    s->actor = actor_new();
    s->other = taken("n");
    begin_acquire(s->actor, s->lock, timeout_ms);
    assert_int_equal(fake_waiters("n"), 1);
    fake_log_clear();
}

/* ---- setup and teardown ------------------------------------------------------------------------------------------ */

/* By the wall clock. Under valgrind, and with what others leave of the processors, a case takes many times as long. */
static unsigned watchdog_s(void) {
    const char *given = getenv("DLOCK_WATCHDOG_S");
    return given ? (unsigned)atoi(given) : WATCHDOG_S;
}

int fixture_setup(void **state) {
    (void)state;
    alarm(watchdog_s());
    n_clients = n_locks = n_actors = 0;
    fake_env_reset(1);
    fake_backend_reset();
    return 0;
}

/* A failed test's remaining threads must not hang the next test: the clock advances until all have ended. */
static int end_everything(void) {
    struct actor *closer = actor_new();
    bool ended = true;
    for (size_t i = 0; i < n_clients; i++) {
        if (!clients[i]) continue;
        begin_close(closer, clients[i]);
        for (int steps = 0; !over(closer) && steps < 1000; steps++) fake_advance_ms(100);
        if (!over(closer)) return -1;
    }
    for (size_t i = 0; i < n_actors; i++) ended = ended && over(&actors[i]);
    for (int steps = 0; !ended && steps < 1000; steps++) {
        fake_advance_ms(100);
        ended = true;
        for (size_t i = 0; i < n_actors; i++) ended = ended && over(&actors[i]);
    }
    for (size_t i = 0; i < n_locks; i++)
        if (locks[i]) dlock_free(locks[i]);
    for (size_t i = 0; ended && i < n_actors; i++) actor_end(&actors[i]);
    fake_settle();
    return ended ? 0 : -1;
}

int fixture_teardown(void **state) {
    (void)state;
    int rc = 0;
    fake_faults_clear();
    fake_wakes_hold(false);
    fake_server_down(false);
    fake_slow_go();
    fake_settle();
    if (end_everything() != 0) {
        print_error("a call never ended\n");
        _exit(1); /* its threads would disturb every test to come */
    }
    if (fake_violations()) rc = -1;
    if (fake_connections()) print_error("%u connections were never closed\n", fake_connections()), rc = -1;
    if (fake_entries()) print_error("%u locks or waiters were left at the server\n", fake_entries()), rc = -1;
    alarm(0);
    return rc;
}

/* ---- asynchronous calls ---- */

const struct dlock_options by_handle = {.size = sizeof by_handle, .owner = DLOCK_OWNER_HANDLE};

void note_done(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    struct done *done = arg;
    (void)lock;
    atomic_store(&done->code, err ? err->code : 0);
    atomic_store(&done->at_us, dlock__now_us());
    atomic_fetch_add(&done->calls, 1);
}

void begin_async(dlock_lock *lock, int64_t timeout_ms, struct done *done) {
    assert_int_equal(dlock_acquire_async(lock, timeout_ms, note_done, done), 0);
    fake_settle();
}

void assert_done(const struct done *done, int code) {
    assert_int_equal(done->calls, 1);
    assert_int_equal(done->code, code);
}
