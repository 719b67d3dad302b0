/* Shared by a client and its guardian: a memfd with the URI and a table of everything that may be held.
 *
 * The client maps all the room there will ever be at once, and the kernel gives memory only to what was used: the table
 * grows without moving, nobody maps it anew, and no descriptor stays open that closefrom() could take away.
 *
 * The client alone writes entries, under its mutex; it may die between any two of its stores. What the guardian reads
 * is made whole by one last store: `used` after the rest of a new entry, `copy` after one of the two states. So a torn
 * entry is one that is not there yet, or the one before. */
#ifndef DLOCK_CORE_STATE_GUARD_TABLE_H
#define DLOCK_CORE_STATE_GUARD_TABLE_H

#include <dlock/backend.h>

#include <stdatomic.h>

/* Names as a backend sees them, with the NUL. */
#define DLOCK__GUARD_NAME 256

/* The descriptors of the helper program; the descriptors that LOCAL grants live in follow. */
enum { DLOCK__GUARD_TABLE_FD = 3, DLOCK__GUARD_PID_FD = 4, DLOCK__GUARD_MORE_FD = 5 };

struct dlock__guard_entry {
    atomic_uint used; /* 0 or 1; everything below is valid while it is 1 */
    atomic_uint mode;
    atomic_uint copy; /* which of the states counts */
    uint32_t limit;
    uint32_t next_free;                  /* the client's: 0 or the number of the next unused entry */
    uint32_t fixed;                      /* its lease: nobody renews it */
    atomic_int_least64_t lease_ms;       /* the longest that the server was asked for */
    atomic_int_least64_t valid_until_us; /* 0: its end does no harm; DLOCK__NEVER: not granted yet */
    uint64_t state[2][4];
    char token[DLOCK_TOKEN_MAX + 1];
    char name[DLOCK__GUARD_NAME];
};

struct dlock__guard_table {
    uint64_t magic;
    size_t size;           /* of all */
    size_t texts_end;      /* the URI, then the environment, each string with its NUL */
    size_t entries_at;     /* from the beginning of this struct */
    uint32_t capacity;     /* entries there is room for */
    atomic_uint n_entries; /* used so far, or free again; the rest was never touched */
    bool spares_group;     /* while the client lives, whatever becomes of its grants */
    bool local;            /* the kernel ends a dead process's grants: a helper is there for a group only, to … */
    uint32_t n_kept;       /* … keep this many descriptors of them until that has ended; it releases nothing */
    int64_t pid;           /* the client's */
    atomic_uint helper;    /* a robust futex: 0 until the helper runs, its thread id, FUTEX_OWNER_DIED once it died */
    atomic_uint calls;     /* a futex: counted up when the helper should look around */
    atomic_uint closed;    /* the client was closed: nothing to guard any more */
    atomic_int group, session;        /* the process group that works under the grants, and its session; 0: none */
    atomic_int killed_group;          /* the last that the helper has killed; written before it does */
    atomic_int_least64_t looks_at_us; /* when the helper looks at valid_until_us again, unless called */
    char texts[];
};

/* A new table, mapped, with room for as many entries as limits allow; *fd (close-on-exec) is for the helper. NULL:
 * errno says why. */
struct dlock__guard_table *dlock__guard_table_new(const char *uri, char *const *environment, int *fd);

/* The same with everything that is in `old`, for another helper. */
struct dlock__guard_table *dlock__guard_table_copy(const struct dlock__guard_table *old, int *fd);

/* The helper's view; NULL: this is no such table. */
struct dlock__guard_table *dlock__guard_table_map(int fd);

void dlock__guard_table_free(struct dlock__guard_table *table);

/* Entry 1, 2, … */
struct dlock__guard_entry *dlock__guard_entry(const struct dlock__guard_table *table, uint32_t number);

/* Gets memory for one more entry and returns its number; 0: there is none. */
uint32_t dlock__guard_table_grow(struct dlock__guard_table *table);

/* One side waits for *word to change from `value`, 50 ms at most if `briefly` is set; the other ends that wait. */
void dlock__guard_wait(atomic_uint *word, unsigned value, bool briefly);
void dlock__guard_wake(atomic_uint *word);

#endif
