/* A directory, a connection to it, and processes that hold locks in it. */
#ifndef DLOCK_TESTS_FILE_FIXTURE_H
#define DLOCK_TESTS_FILE_FIXTURE_H

#include "place.h"

#include <dlock/backend.h>

extern const struct dlock_backend dlock_backend_file;
#define FILE_BACKEND (&dlock_backend_file)

struct world {
    char dir[PATH_MAX / 2]; /* fresh, removed afterwards */
    void *conn;             /* to it */
};

/* Setup and teardown of every test; *state is a struct world. */
int world_begin(void **state);
int world_end(void **state);
#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, world_begin, world_end)

/* path_in() of the world's directory. */
const char *path_of(const struct world *world, const char *file);

/* ---- connections ---- */

/* Connects to a path ("" for none): 0 and *conn, or the code. */
int conn_try(const char *path, void **conn, struct dlock_error *err);
void *conn_open(const char *path);
void conn_close(void *conn);

/* What the last log message of any connection was; "" at first. */
extern char last_log[512];

/* ---- claims ---- */

/* A claim for the name, under a token of its own. */
struct dlock_claim claim_of(const char *name);

/* One operation on one claim: its result. The connection must be well. */
int acquire(void *conn, struct dlock_claim *claim);
int renew(void *conn, struct dlock_claim *claim);
int release(void *conn, struct dlock_claim *claim);

/* Acquires as the core does, with wake-ups: how long it took in ms. Fails the test after 5 s. */
int64_t acquire_waiting(void *conn, struct dlock_claim *claim);

/* Whether somebody holds the name, by trying. */
bool is_held(void *conn, const char *name);

/* ---- other processes ---- */

/* Runs a function in a child, which exits with what it returns. */
pid_t child_start(int (*run)(const struct world *world, void *arg), const struct world *world, void *arg);

/* A child that holds the lock until it is killed. */
pid_t holder_start(const struct world *world, const char *name, uint64_t *fence);

#endif
