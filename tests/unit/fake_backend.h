/* Backends on the server of fake_server.c, with a log of every request and a script of faults.
 *
 * Schemes (each a backend of its own, since capabilities are a backend's):
 *   fake         QUEUE and WAKE, like Redis
 *   fakefull     the same with SHARED, PERMIT, EXPORT and WANTED
 *   fakepoll     neither, like memcached
 *   fakevolatile the same, and forgets at restart: quarantine applies
 *   fakeshared   as fakepoll, and THREADSAFE: one connection for everything
 *   fakesession  SESSION, THREADSAFE, QUEUE and WAKE, like ZooKeeper
 *   fakeforever  SESSION, THREADSAFE, grants without a lease, wakes that only say "look", like file:
 *   fakelocal    the same, and LOCAL: also like file:
 *
 * The backend checks the core's side of the contract (see fake_violations()).
 */
#ifndef DLOCK_TESTS_FAKE_BACKEND_H
#define DLOCK_TESTS_FAKE_BACKEND_H

#include <dlock/backend.h>

#include <pthread.h>

enum fake_op {
    FAKE_CONNECT,
    FAKE_LISTEN,
    FAKE_ACQUIRE,
    FAKE_RENEW,
    FAKE_RELEASE,
    FAKE_PROBE,
    FAKE_INSPECT,
    FAKE_BREAK,
    FAKE_WAKE,
    FAKE_DISCONNECT,
    FAKE_OPS
};

/* One line of the log: a claim of a request, or a request without claims. */
struct fake_command {
    enum fake_op op;
    unsigned call; /* claims of one batch share it */
    unsigned conn;
    int64_t at_us; /* the local fake clock when the call began */
    int timeout_ms;
    char name[DLOCK_NAME_MAX + 56];
    char token[DLOCK_TOKEN_MAX + 1];
    uint32_t flags;
    enum dlock_mode mode;
    uint32_t limit;
    int64_t lease_ms;
    int result;     /* what the caller was told: the claim's result, or the call's error; WAKE: the kind */
    uint64_t fence; /* as answered */
};

enum fake_fault {
    FAKE_PASS,        /* no fault: lets a call through before the faults behind it */
    FAKE_LOST_BEFORE, /* the connection dies before the server sees the request */
    FAKE_LOST_AFTER,  /* the server works on it, the connection dies before the answer */
    FAKE_SLOW,        /* the server sees it after fake_slow_go(), or, past timeout_ms, never; WAKE: it returns then */
    FAKE_SLOW_AFTER,  /* the server works on it at once; the answer comes after fake_slow_go(), or, past timeout_ms,
                         never */
    FAKE_HANG,        /* the call returns after fake_slow_go(), and not when its time is over; also DISCONNECT */
    FAKE_AUTH,        /* refused: DLOCK_EAUTH */
    FAKE_PROTO,       /* garbage: DLOCK_EPROTO */
    FAKE_NOTSUP,      /* CONNECT and LISTEN: DLOCK_ENOTSUP */
    FAKE_EDIT,        /* the server works on it; a function of the test changes each claim's answer */
    FAKE_RETURN       /* the server does not see it; the call returns a number of the test */
};

/* An empty server with all its clocks at the start, an empty log, no faults. Registers the backends, once. */
void fake_backend_reset(void);

/* ---- the script: the next `times` calls of `op` that no earlier fault covers ---- */
void fake_fault(enum fake_op op, enum fake_fault fault, unsigned times);
void fake_edit(enum fake_op op, void (*edit)(struct dlock_claim *claim), unsigned times);
void fake_return(enum fake_op op, int number, unsigned times);
void fake_faults_clear(void);
void fake_on_disconnect(void (*look)(void)); /* called before each, in the thread that disconnects; NULL: nothing */
unsigned fake_faults_left(void);
unsigned fake_slow_waiting(void); /* calls that are in FAKE_SLOW, FAKE_SLOW_AFTER or FAKE_HANG now */
void fake_slow_go(void);          /* resumes these calls */

/* ---- the server ---- */
void fake_server_down(bool down);              /* refuses every connection and kills existing ones */
void fake_server_cut(void);                    /* kills every connection; locks and queues stay */
void fake_server_cut_listeners(void);          /* those for wakes */
void fake_listeners_hush(void);                /* existing ones stay open and bring nothing more */
void fake_listeners_stray(void);               /* existing ones are at another server now, which answers */
void fake_server_cut_holder(const char *name); /* those of the client that holds `name` */
void fake_server_forget(void);                 /* flushed: locks and queues are gone, connections stay */
void fake_server_restart(void);                /* both */
void fake_server_ready_in_ms(int64_t ms);      /* grants nothing before, and says so */
void fake_server_step_ms(int64_t ms);          /* its clock jumps */
void fake_server_handover_ms(int64_t ms);
void fake_server_break(const char *name);
void fake_wakes_hold(bool hold);                    /* wakes stay in the socket until it is set back */
void fake_wakes_stick(bool stick);                  /* the listeners' descriptors stay readable, whatever was read */
pthread_t fake_wake_reader(void);                   /* the thread that read the last one */
void fake_wakes_flood(int n);                       /* so many, for the listeners; 16 of them take 1 ms to read */
void fake_wake_push(const struct dlock_wake *wake); /* to every listener, whatever it says */

/* Other clients. They queue and are granted the lock like any client. */
void fake_other_acquire(const char *name, int64_t lease_ms); /* must be free, or else it queues */
void fake_other_acquire_as(const char *name, enum dlock_mode mode, uint32_t limit, int64_t lease_ms);

struct fake_grant {
    char token[DLOCK_TOKEN_MAX + 1]; /* "" when free */
    bool other;                      /* held by fake_other_acquire() */
    uint64_t fence;
    int64_t left_ms;
};
struct fake_grant fake_holder(const char *name);
void fake_other_release(const struct fake_grant *grant, const char *name); /* releases, or leaves the queue */
unsigned fake_waiters(const char *name);
unsigned fake_holders(const char *name);              /* now */
unsigned fake_grants(const char *name);               /* how often it was granted, to any client */
unsigned fake_entries(void);                          /* holders and waiters of all names, without other clients' */
void fake_replay(const struct fake_command *command); /* a late duplicate of a request arrives */

/* ---- what happened ---- */
size_t fake_log_size(void);
struct fake_command fake_log_at(size_t index);
unsigned fake_calls(enum fake_op op);                    /* batches */
unsigned fake_claims(enum fake_op op, const char *name); /* log lines; name NULL: of any */
bool fake_nth(enum fake_op op, const char *name, unsigned nth, struct fake_command *command); /* from 0 */
bool fake_last(enum fake_op op, const char *name, struct fake_command *command);
void fake_log_clear(void);
unsigned fake_connections(void); /* open now */
unsigned fake_listeners(void);
unsigned fake_abandoned(void); /* how often this process, or a parent of it, dropped a connection after a fork */
int64_t fake_last_quarantine_ms(void); /* as the last connection was told */

/* How often the core broke the contract of <dlock/backend.h>; each is printed when it happens. */
unsigned fake_violations(void);

#endif
