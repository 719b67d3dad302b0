/* Locks in this process's memory, for the tests of applications: no server, no files, and requests that can be made
 * slow or lost. What would be a server's is in struct mem_space; one mutex guards all spaces and everything in them.
 *
 * State outside the connections is what this backend is about. A forked child begins with none: handlers of fork() leave
 * the mutex free in it, and count, so that spaces of another process are never looked at.
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
    uint64_t fence;   /* a grant's */
    int64_t until_us; /* … and its end */
    bool handed;      /* … by a release to one that waited, and not confirmed since */
    bool lingers;     /* … and its client wants to hear of others who ask */
    int64_t lease_ms; /* a place's: for how long it asked */
    int64_t asked_us; /* … and when it did so last */
};

struct mem_name {
    struct mem_entry *holders, *queue; /* the queue in the order of arrival */
    char text[MEM_NAME_MAX + 1];
};

/* One for each path of a URI. */
struct mem_space {
    struct mem_space *next;
    unsigned process; /* as counted by fork(); another one's are not used */
    void *names;      /* of tsearch(3): struct mem_name by its text, while something is in it */
    uint64_t last_fence;
    struct mem_conn *listeners;
    char path[];
};

struct mem_wake {
    struct mem_wake *next;
    struct dlock_wake wake;
    char name[MEM_NAME_MAX + 1], token[DLOCK_TOKEN_MAX + 1];
};

struct mem_conn {
    struct mem_space *space; /* NULL: not connected */
    char client[MEM_CLIENT + 1];
    int64_t delay_ms; /* of every request */
    uint32_t fail;    /* this many of a million are not answered */
    uint64_t random;  /* the state of a generator */
    bool listening;
    bool overrun; /* no memory for a wake-up: it is as if the connection had broken */
    int fd;       /* while it listens: an eventfd */
    struct mem_conn *next;
    struct mem_wake *first, *last; /* to be read */
    struct mem_wake *read;         /* was read last */
};

/* ---- names.c: all but mem_lock and mem_space expect the mutex ---- */

void mem_lock(void);
void mem_unlock(void);
/* The space of this process with that path, made if need be; NULL: out of memory. */
struct mem_space *mem_space(const char *path);
struct mem_name *mem_find(struct mem_space *space, const char *text);
struct mem_name *mem_make(struct mem_space *space, const char *text);
/* Frees the name if nothing is in it. */
void mem_tidy(struct mem_space *space, struct mem_name *name);
/* Puts what comes after `text` (the first: "") and begins with `prefix` into `page`, in order; returns how many. */
size_t mem_page(struct mem_space *space, const char *prefix, const char *text, char (*page)[MEM_NAME_MAX + 1],
                size_t max);

/* ---- claims.c: expects the mutex ---- */

void mem_acquire(struct mem_space *space, struct dlock_claim *claim, struct dlock_error *err);
void mem_renew(struct mem_space *space, struct dlock_claim *claim);
void mem_release(struct mem_space *space, struct dlock_claim *claim);
/* Ends the grants whose time is over, and gives the room to waiters. */
void mem_settle(struct mem_space *space, struct mem_name *name);
/* Ends every grant of the name; false: there was none. */
bool mem_break(struct mem_space *space, const char *text);
/* Ends this token's grant as if somebody had broken it. */
void mem_lose(struct mem_space *space, const char *text, const char *token);

/* ---- wakes.c: mem_listens and mem_tell expect the mutex ---- */

int mem_listen(void *conn, int *fd, int timeout_ms, struct dlock_error *err);
int mem_wake(void *conn, struct dlock_wake *out, struct dlock_error *err);
int mem_probe(void *conn, struct dlock_error *err);
void mem_listen_end(struct mem_conn *conn);
/* Whether a connection of this token's client listens. */
bool mem_listens(const struct mem_space *space, const char *token);
/* Tells that client. */
void mem_tell(struct mem_space *space, enum dlock_wake_kind kind, const char *name, const struct mem_entry *entry);

/* ---- settings.c: the URI ---- */

int mem_accepts(const struct dlock_uri *uri, struct dlock_error *err);
void mem_settings(struct mem_conn *conn, const struct dlock_uri *uri);

/* ---- faults.c: requests that are slow or lost ---- */

int64_t mem_now_us(void);
enum mem_fate { MEM_ANSWERED, MEM_NEVER_ARRIVED, MEM_ANSWER_LOST };
/* Lets a request take its time, and draws what becomes of it. */
enum mem_fate mem_await(struct mem_conn *conn, int timeout_ms);
/* Draws with the probability that `fail` is. */
bool mem_fails(struct mem_conn *conn);
int mem_unanswered(struct dlock_error *err);

/* ---- admin.c ---- */

int mem_inspect(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err);
int mem_list(void *conn, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
             struct dlock_error *err);
int mem_break_lock(void *conn, const char *name, int timeout_ms, struct dlock_error *err);
int mem_check(void *conn, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err);

#endif
