/* Shared by a client and its guardian: a memfd with the URI and a table of everything that the client may hold.
 *
 * The client maps the table at its largest size, and the kernel allocates memory only for the pages that are used. So
 * the table grows without moving, needs no second mapping, and no descriptor stays open that closefrom() could close.
 *
 * Only the client writes entries, under its mutex; it may die between any two stores. One last store makes valid what
 * the guardian reads: `used` after the rest of a new entry, `copy` after one of the two states. So an entry whose
 * writing was cut short is not there yet, or still as it was before. */
#ifndef DLOCK_CORE_STATE_GUARD_TABLE_H
#define DLOCK_CORE_STATE_GUARD_TABLE_H

#include <dlock/backend.h>

#include <stdatomic.h>

/* Descriptor numbers in the helper program: the table, the client's pidfd, and then those that LOCAL grants live in. */
enum { DLOCK__GUARD_TABLE_FD = 3, DLOCK__GUARD_PID_FD = 4, DLOCK__GUARD_MORE_FD = 5 };

/* A process group that works under grants. The helper does not kill it again once it has written `ended`. */
struct dlock__guard_group {
    atomic_int number, session; /* 0: none */
    atomic_int killed, ended;   /* the last group that the helper killed, written before the kill; and saw ended */
};

/* As an entry's group number: none works under the grant, not even the client's. */
enum { DLOCK__GUARD_NO_GROUP = -1 };

struct dlock__guard_entry {
    atomic_uint used; /* 0 or 1; everything below is valid while it is 1 */
    atomic_uint mode;
    atomic_uint copy; /* index of the state that is valid */
    uint32_t limit;
    uint32_t next_free;                  /* used by the client: number of the next unused entry, or 0 */
    uint32_t fixed;                      /* a fixed lease: it is not renewed */
    atomic_int_least64_t lease_ms;       /* longest lease that the server was asked for */
    atomic_int_least64_t valid_until_us; /* 0: its end does no harm; DLOCK__NEVER: not granted yet */
    struct dlock__guard_group group;     /* of this grant alone; number 0: the client's works under it */
    uint64_t state[2][4];
    char token[DLOCK_TOKEN_MAX + 1];
    char name[DLOCK_FULL_NAME_MAX + 1];
};

struct dlock__guard_table {
    uint64_t magic;
    size_t size;           /* of the whole table */
    size_t texts_end;      /* end of the URI and the environment, each string with its NUL */
    size_t entries_at;     /* offset of the entries in the table */
    uint32_t capacity;     /* entries there is room for */
    atomic_uint n_entries; /* entries ever used; the rest was never touched */
    bool spares_group;     /* no process group is killed while the client lives, whatever becomes of its grants */
    bool local;            /* the kernel ends a dead process's grants. The helper then releases nothing; it is started
                            * for process groups only, and … */
    uint32_t n_kept;       /* … keeps this many descriptors that grants live in until the groups have ended */
    bool hides;            /* the client is not dumpable, as after a change of its user: nor may the helper be */
    int64_t pid;           /* the client's process id */
    atomic_uint helper;    /* a robust futex: 0 until the helper runs, then its thread id; FUTEX_OWNER_DIED once it
                            * died */
    atomic_uint calls;     /* a futex, incremented when the helper should look at the table */
    atomic_uint closed;    /* the client was closed: there is nothing left to guard */
    struct dlock__guard_group group;  /* works under all grants whose entries have none of their own */
    atomic_int_least64_t looks_at_us; /* when the helper looks at valid_until_us again unless it is called */
    char texts[];
};

/* Makes a new table, mapped, with room for as many entries as limits allow; *fd (close-on-exec) is for the helper. NULL
 * on failure, with errno set. */
struct dlock__guard_table *dlock__guard_table_new(const char *uri, char *const *environment, int *fd);

/* The same with a copy of everything in `old`, for another helper. */
struct dlock__guard_table *dlock__guard_table_copy(const struct dlock__guard_table *old, int *fd);

/* Maps the table in the helper. NULL if the descriptor is not such a table. */
struct dlock__guard_table *dlock__guard_table_map(int fd);

void dlock__guard_table_free(struct dlock__guard_table *table);

/* The entry of this number; numbers begin with 1. */
struct dlock__guard_entry *dlock__guard_entry(const struct dlock__guard_table *table, uint32_t number);

/* Allocates one more entry and returns its number; 0 if there is no room or memory. */
uint32_t dlock__guard_table_grow(struct dlock__guard_table *table);

/* Waits until *word is not `value`, at most 50 ms if `briefly` is set; and wakes such waits. */
void dlock__guard_wait(atomic_uint *word, unsigned value, bool briefly);
void dlock__guard_wake(atomic_uint *word);

#endif
