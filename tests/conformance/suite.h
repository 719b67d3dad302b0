/* The frame of the conformance suite, for use by cases. A case runs in its own process, without a client; it returns if
 * it passes and otherwise calls fail_at (by EXPECT…). Cases see <dlock/dlock.h> and nothing else of dlock. */
#ifndef CONFORMANCE_SUITE_H
#define CONFORMANCE_SUITE_H

#include "support/scoped.h"

#include <pthread.h>
#include <semaphore.h>
#include <sys/types.h>

/* Needed beside DLOCK_CAP_… bits: the URI names a host, so there is a network that can fail. */
#define NEEDS_HOST (UINT32_C(1) << 31)

/* Needed: several processes share the locks, and can be killed, stopped or forked. Where the locks are PRIVATE to a
 * process, its threads replace processes in all other cases. */
#define NEEDS_PROCESSES (UINT32_C(1) << 30)

/* The usual lease: long enough for a slow machine to renew in time, short enough to wait for its end. */
#define LEASE_MS 1000
/* Longer than PATIENCE_MS, so that the end of a lease does not pass for a release. */
#define LONG_LEASE_MS 90000
/* A lease that must be renewed in time: a machine may hang for more than a second. */
#define RENEWED_LEASE_MS 2000

/* For a wait that times out (ETIMEDOUT): longer than a server on a slow machine takes to say so. */
#define MOMENT_MS 800

/* The same where others must first see the waiter in line. */
#define GIVES_UP_MS 2000

/* How long the cases of contention last; longer runs are the fault suite's. */
#define RUN_MS 500

/* SLACK_MS: how late something may happen here, since the machine may be busy. PATIENCE_MS: for a wait that ends only
 * in a case that has failed already. */
#define SLACK_MS 2000
#define PATIENCE_MS 60000

struct suite {
    const char *uri;
    const char *case_name;
    char backend[64];
    uint32_t caps; /* DLOCK_CAP_…, NEEDS_… */
    char name[96]; /* of a lock: unique to this run and case */
};
extern struct suite suite;

#define CASE(name, needs) void case_##name(void);
#include "cases.h"
#undef CASE

/* ---- checks ------------------------------------------------------------------------------------------------------ */

/* Prints one line and ends this process with status 1; the case's other processes are ended with it. */
_Noreturn void fail_at(const char *file, int line, const char *format, ...) DLOCK_PRINTF(3, 4);

#define FAIL(...) fail_at(__FILE__, __LINE__, __VA_ARGS__)
#define EXPECT(condition) ((condition) ? (void)0 : FAIL("expected: %s", #condition))
#define EXPECT_CODE(wanted, call) expect_code(__FILE__, __LINE__, #call, wanted, (call))
#define EXPECT_BETWEEN(low, high, value) expect_between(__FILE__, __LINE__, #value, low, high, value)

/* The error argument for a call inside EXPECT_CODE, which then also checks that the call filled it, or left it
 * alone. */
#define ERR suite_error()
struct dlock_error *suite_error(void);
extern _Thread_local struct dlock_error last_error; /* what ERR pointed to */

void expect_code(const char *file, int line, const char *call, int wanted, int code);
void expect_between(const char *file, int line, const char *what, int64_t low, int64_t high, int64_t value);

/* ---- time -------------------------------------------------------------------------------------------------------- */

/* Timeouts that are mostly too short, so that grants, time-outs and departures coincide in every way. */
int64_t impatience_ms(unsigned turn);

int64_t now_us(void); /* CLOCK_BOOTTIME, the same in every process */
int64_t now_ms(void);
void sleep_ms(int64_t ms);

/* ---- clients and locks ------------------------------------------------------------------------------------------- */

dlock_client *open_client(void);
dlock_lock *new_lock(dlock_client *client, const char *name, const struct dlock_options *options);

/* The time, by now_us(), before which no other client can have this lock, which we hold. On a busy machine this process
 * may hang for longer. */
int64_t valid_until_us(dlock_lock *lock);

/* Options with a lease; `flags` are DLOCK_FIXED_LEASE and so on. */
struct dlock_options options_with(int64_t lease_ms, uint32_t flags);

/* Options with a mode; permits have a `limit`, the other modes 0. */
struct dlock_options options_for(enum dlock_mode mode, uint32_t limit, int64_t lease_ms);

/* Writes "<suite.name>-<tag>" into `name`, which has DLOCK_NAME_MAX + 1 bytes. */
void tagged_name(char *name, const char *tag);

/* The same with a number for a tag; and a handle for that name. */
void numbered_name(char *name, int number);
dlock_lock *numbered_lock(dlock_client *client, int number, const struct dlock_options *options);

/* Fail unless another client holds `name` now, or unless it is free, as seen by a new client. */
#define EXPECT_TAKEN(name) expect_taken(__FILE__, __LINE__, name, true)
#define EXPECT_FREE(name) expect_taken(__FILE__, __LINE__, name, false)
void expect_taken(const char *file, int line, const char *name, bool taken);

/* Waits until `name` is held. */
void await_taken(const char *name);

/* A callback of a call that is refused. */
void never_called(dlock_lock *lock, const struct dlock_error *err, void *arg);

/* ---- URIs -------------------------------------------------------------------------------------------------------- */

/* `uri` with its query key `key` set or replaced. The caller frees it. */
char *uri_with(const char *uri, const char *key, const char *value);

/* The suite's URI with another authority ("user:pw@host:port"). The caller frees it. */
char *uri_at(const char *authority);

/* ---- processes and threads --------------------------------------------------------------------------------------- */

/* Returns zeroed memory that child processes share. It lives as long as the process. */
void *shared_memory(size_t size);

/* Runs run(arg) in a child that exits with 0 when it returns; call it before this process opens a client. The child has
 * a copy of everything; only shared_memory is shared. Where locks are PRIVATE it is a thread, with a negative number
 * for a pid, and a copy of only the `size` bytes at `arg` (0: `arg` is in shared memory). */
pid_t start_process(void (*run)(void *), void *arg, size_t size);

/* Waits for a child. Fails unless it exits with 0 in time. */
void join_process(pid_t pid);

/* Kills a child and reaps it. This and the next two: NEEDS_PROCESSES. */
void kill_process(pid_t pid);

/* Sends SIGSTOP and waits until the child has stopped; sends SIGCONT. */
void stop_process(pid_t pid);
void continue_process(pid_t pid);

/* pthread_create; a failure fails the case. */
pthread_t start_thread(void *(*run)(void *), void *arg);

/* Runs n threads, each with the next `size` bytes at `args` (0: all of them with `args`), and waits for their ends. */
void run_threads(void *(*run)(void *), void *args, size_t size, int n);

/* The same with processes, of which start_process says what `size` is. */
void run_processes(void (*run)(void *), void *args, size_t size, int n);

/* A semaphore in shared memory; a wait that takes longer than PATIENCE_MS fails the case. */
void signal_init(sem_t *semaphore);
void signal_wait(sem_t *semaphore);

#endif
