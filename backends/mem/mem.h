/* Locks in this process's memory, for the tests of applications: no server, no files, and requests that can be made
 * slow or lost. The state that a server would have is in struct mem_space; one mutex guards all spaces and everything
 * in them.
 *
 * That state is global, since all connections of the process share it. A forked child begins without any: fork()
 * handlers leave the mutex unlocked in the child and increment `process`, so that the parent's spaces are not used
 * there.
 *
 * The files; each calls those below it only:
 *   mem
 *   admin
 *   claims  settings
 *   wakes
 *   names
 *   faults */
#ifndef DLOCK_MEM_H
#define DLOCK_MEM_H

#include <dlock/backend.h>

enum { MEM_NAME_MAX = 255, MEM_CLIENT = 24, MEM_MILLION = 1000000 };

/* A grant, or a place in the queue. */
struct mem_entry {
    struct mem_entry *next;
    char token[DLOCK_TOKEN_MAX + 1];
    enum dlock_mode mode;
    uint32_t limit;
    uint64_t fence;   /* grant: its fence */
    int64_t since_us; /* by mem_now_us(): the time of the grant, or that since which it waits */
    int64_t until_us; /* grant: its end, by mem_now_us() */
    bool handed;      /* grant: handed over to a waiter, which has not confirmed it yet */
    bool lingers;     /* the client wants to be notified when others want the name */
    int64_t lease_ms; /* place: the lease that was asked for */
    int64_t asked_us; /* place: when it asked last, by mem_now_us() */
};

struct mem_name {
    struct mem_entry *holders, *queue; /* the queue in the order of arrival */
    char text[MEM_NAME_MAX + 1];
};

/* The locks of one path; URIs with different paths have different locks. */
struct mem_space {
    struct mem_space *next;
    unsigned process; /* the number of the process, see names.c; spaces of a parent process are not used */
    void *names;      /* a tree of tsearch(3): struct mem_name by its text; a name without entries is not in it */
    uint64_t last_fence;
    struct mem_conn *listeners;
    char path[];
};

/* A wake-up that is waiting to be read; `wake` points to the texts beside it. */
struct mem_wake {
    struct mem_wake *next;
    struct dlock_wake wake;
    char name[MEM_NAME_MAX + 1], token[DLOCK_TOKEN_MAX + 1];
};

struct mem_conn {
    struct mem_space *space; /* NULL: not connected */
    char client[MEM_CLIENT + 1];
    int64_t delay_ms; /* duration of every request */
    uint32_t fail;    /* number of requests in a million that are not answered */
    uint64_t random;  /* state of the random generator */
    bool listening;
    bool overrun;                  /* there was no memory for a wake-up: treated as a broken connection */
    int fd;                        /* an eventfd, valid while it listens */
    struct mem_conn *next;         /* in the space's listeners */
    struct mem_wake *first, *last; /* the unread wake-ups */
    struct mem_wake *read;         /* the wake-up that was read last; its texts are in use until the next one */
};

/* ---- names.c: the caller holds the mutex, except for mem_lock and mem_space ---- */

void mem_lock(void);
void mem_unlock(void);
/* Returns the space of this process with that path, made if necessary; NULL: out of memory. */
struct mem_space *mem_space(const char *path);
/* Returns the name; NULL: it is not in use. */
struct mem_name *mem_find(struct mem_space *space, const char *text);
/* Returns the name, made if necessary; NULL: out of memory. */
struct mem_name *mem_make(struct mem_space *space, const char *text);
/* Frees the name if it has neither holders nor waiters. */
void mem_tidy(struct mem_space *space, struct mem_name *name);
/* Copies up to `max` names that begin with `prefix` and are greater than `text` ("": from the first on) into `page`, in
 * order. Returns their number. */
size_t mem_page(struct mem_space *space, const char *prefix, const char *text, char (*page)[MEM_NAME_MAX + 1],
                size_t max);

/* ---- claims.c: the caller holds the mutex ---- */

void mem_acquire(struct mem_space *space, struct dlock_claim *claim, struct dlock_error *err);
void mem_renew(struct mem_space *space, struct dlock_claim *claim);
void mem_release(struct mem_space *space, struct dlock_claim *claim);
/* Ends the grants whose lease is over, and grants the name to waiters. */
void mem_settle(struct mem_space *space, struct mem_name *name);
/* Ends every grant of the name. False: there was none. */
bool mem_break(struct mem_space *space, const char *text);
/* Ends this token's grant as if it had been broken. */
void mem_lose(struct mem_space *space, const char *text, const char *token);

/* ---- wakes.c: for mem_listens and mem_tell the caller holds the mutex ---- */

int mem_listen(void *conn, int *fd, int timeout_ms, struct dlock_error *err);
int mem_wake(void *conn, struct dlock_wake *out, struct dlock_error *err);
int mem_probe(void *conn, struct dlock_error *err);
void mem_listen_end(struct mem_conn *conn);
/* True if a connection of the token's client listens. */
bool mem_listens(const struct mem_space *space, const char *token);
/* Sends a wake-up to the client of the entry's token. */
void mem_tell(struct mem_space *space, enum dlock_wake_kind kind, const char *name, const struct mem_entry *entry);

/* ---- settings.c: the URI ---- */

int mem_accepts(const struct dlock_uri *uri, struct dlock_error *err);
void mem_settings(struct mem_conn *conn, const struct dlock_uri *uri);

/* ---- faults.c: requests that are slow or lost ---- */

int64_t mem_now_us(void);
enum mem_fate { MEM_ANSWERED, MEM_NEVER_ARRIVED, MEM_ANSWER_LOST };
/* Sleeps for the delay of a request, at most `timeout_ms`, and draws the fate of the request. */
enum mem_fate mem_await(struct mem_conn *conn, int timeout_ms);
/* True with the probability that fail= says. */
bool mem_fails(struct mem_conn *conn);
/* Sets the error of a request without an answer, and returns its code. */
int mem_unanswered(struct dlock_error *err);

/* ---- admin.c ---- */

int mem_inspect(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err);
int mem_waiters(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err);
int mem_list(void *conn, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
             struct dlock_error *err);
int mem_break_lock(void *conn, const char *name, int timeout_ms, struct dlock_error *err);
int mem_check(void *conn, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err);

#endif
