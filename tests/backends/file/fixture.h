/* A directory, a connection to it, and processes that hold locks in it. */
#ifndef DLOCK_TESTS_FILE_FIXTURE_H
#define DLOCK_TESTS_FILE_FIXTURE_H

#include "place.h"

#include <dlock/backend.h>

#include <time.h>

extern const struct dlock_backend dlock_backend_file;
#define FILE_BACKEND (&dlock_backend_file)

struct world {
    char dir[PATH_MAX / 2]; /* fresh, removed afterwards */
    void *conn;             /* to it */
};

extern struct world *world;

/* Setup and teardown of every test. */
int world_begin(void **state);
int world_end(void **state);

/* path_in() of the world's directory. */
const char *path_of(const char *file);

/* ---- the kernel's answers ---- */

/* Not 0: every directory's time stamp, in seconds, as on a file system that stores no fractions of them. */
extern time_t whole_second;

/* Not 0: the number of the error with which the system's lists of users and groups cannot be read. */
extern int lists_fail;
extern gid_t lists_group;    /* not 0: every user's group, as the lists say */
extern unsigned lists_asked; /* how often they were asked about a user */

/* ---- connections ---- */

/* Connects to a path ("" for none): 0 and *conn, or the code. */
int conn_try(const char *path, void **conn, struct dlock_error *err);
void *conn_open(const char *path);

/* The same with the URI's keys `mode` and `group`; NULL: without. */
int conn_try_keys(const char *path, const char *mode, const char *group, void **conn, struct dlock_error *err);
void conn_close(void *conn);

/* The last log message of any connection; "" at first. */
extern char last_log[512];

/* ---- claims ---- */

/* A claim for the name, with its own token. */
struct dlock_claim claim_of(const char *name);

/* The same, in a mode. */
struct dlock_claim reader_of(const char *name);
struct dlock_claim permit_of(const char *name, uint32_t limit);

/* One operation on one claim: its result. The connection must be well. */
int acquire(void *conn, struct dlock_claim *claim);
int renew(void *conn, struct dlock_claim *claim);
int release(void *conn, struct dlock_claim *claim);

/* Ends the wait of a claim that was busy. */
void give_up(void *conn, struct dlock_claim *claim);

/* Makes the connection listen; the descriptor. */
int listen_on(void *conn);

/* How many wakes there are of a kind; any other fails the test. The name of the last, "" for any, into `name`, which
 * may be NULL. */
int drain(void *conn, enum dlock_wake_kind kind, char name[256]);
bool readable(int fd, int ms);

/* Acquires as the core does, with wake-ups. Fails the test after 10 s, or when no wake but the passing of time led to
 * the lock. */
void acquire_waiting(void *conn, struct dlock_claim *claim);

/* The same, asking again only when it was told to: enough for a release, of which nothing tells before its end. */
void acquire_told(void *conn, struct dlock_claim *claim);

/* Whether the name is held, by trying to take it exclusively. */
bool is_held(void *conn, const char *name);

/* ---- other processes ---- */

/* Runs a function in a child, which exits with what it returns. */
pid_t child_start(int (*run)(void *arg), void *arg);

/* Waits until n have come, however long it takes to start them: `arrived` is shared, and at first 0. */
void meet(_Atomic int *arrived, int n);

/* Runs it in n children, which meet first, with the first, second, … of `args`, each `size` bytes (0: one for all):
 * every one must return 0. */
void children_run(int (*run)(void *arg), void *args, size_t size, int n);

/* Memory that children share with us, zeroed. */
void *shared_new(size_t size);
void shared_end(void *memory, size_t size);

/* A child that holds the lock until it is killed, exclusively or as the claim says. */
pid_t holder_start(const char *name, uint64_t *fence);
pid_t holder_start_as(struct dlock_claim claim, uint64_t *fence);

/* ---- looking ---- */

/* A name's holders as they were seen. */
struct seen {
    int n, stop_after; /* 0: never */
    struct {
        char name[256], token[DLOCK_TOKEN_MAX + 1];
        enum dlock_mode mode;
        uint32_t limit;
        uint64_t fence;
    } holders[32]; /* the first of them */
};

struct seen inspect(void *conn, const char *name);
int list(void *conn, const char *prefix, int stop_after, int timeout_ms); /* how many */

/* Whether the claim is among them, as it is. */
bool saw(const struct seen *seen, const struct dlock_claim *claim);

#endif
