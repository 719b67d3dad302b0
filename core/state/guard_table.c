#include "state/guard_table.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Since Linux 5.14; older kernels fail with EINVAL. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static const uint64_t magic = UINT64_C(0x31647261756764); /* "dguard1" */

enum {
    CAPACITY = 1 << 17, /* 64 MB of address space, not of memory */
    CAPACITY_MIN = 256,
    GROW = 64 /* entries whose memory is allocated together */
};

_Static_assert(sizeof(struct dlock__guard_entry) <= 512, "an entry is half a kilobyte");

static size_t page_up(size_t size) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (size + page - 1) / page * page;
}

/* True if a file may have this size. Growing one beyond RLIMIT_FSIZE would not just fail: the kernel sends SIGXFSZ. */
static bool file_may_have(size_t size) {
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || size <= limit.rlim_cur;
}

/* Maps the table, but not into forked children, which must not touch it, nor into core files: it has a password in
 * it. */
static void *map(int fd, size_t size) {
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (at == MAP_FAILED) return NULL;
    if (madvise(at, size, MADV_DONTFORK) == 0 && madvise(at, size, MADV_DONTDUMP) == 0) return at;
    munmap(at, size);
    return NULL;
}

/* Allocates the memory that will be touched, so that a lack of it is an error instead of a SIGBUS. */
static bool populate(void *at, size_t size) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *from = (char *)((uintptr_t)at / page * page);
    size_t length = (size_t)((char *)at + size - from);
    return madvise(from, length, MADV_POPULATE_WRITE) == 0 || errno == EINVAL;
}

/* Makes an empty table whose texts take `texts` bytes, with room for at least `least` entries. */
static struct dlock__guard_table *make(size_t texts, uint32_t least, int *out) {
    int fd = memfd_create("dlock-guardian", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return NULL;
    struct dlock__guard_table *table = NULL;
    size_t entries_at = page_up(sizeof *table + texts), size = 0;
    uint32_t capacity = 2 * CAPACITY;
    while (!table && (capacity /= 2) >= least) {
        size = page_up(entries_at + capacity * sizeof(struct dlock__guard_entry));
        errno = EFBIG;
        if (file_may_have(size) && ftruncate(fd, (off_t)size) == 0) table = map(fd, size);
    }
    if (!table || !populate(table, entries_at)) {
        int why = errno;
        if (table) munmap(table, size);
        close(fd);
        errno = why;
        return NULL;
    }
    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    table->magic = magic;
    table->size = size;
    table->texts_end = texts;
    table->entries_at = entries_at;
    table->capacity = capacity;
    table->pid = getpid();
    *out = fd;
    return table;
}

struct dlock__guard_table *dlock__guard_table_new(const char *uri, char *const *environment, int *fd) {
    size_t texts = strlen(uri) + 1;
    for (char *const *entry = environment; entry && *entry; entry++) texts += strlen(*entry) + 1;
    struct dlock__guard_table *table = make(texts, CAPACITY_MIN, fd);
    if (!table) return NULL;
    char *at = stpcpy(table->texts, uri) + 1, *end = table->texts + texts;
    for (char *const *entry = environment; entry && *entry && at < end; entry++) {
        size_t length = strnlen(*entry, (size_t)(end - at) - 1); /* another thread may change the environment
                                                                  * meanwhile */
        memcpy(at, *entry, length);
        at += length + 1;
    }
    return table;
}

struct dlock__guard_table *dlock__guard_table_copy(const struct dlock__guard_table *old, int *fd) {
    uint32_t n = atomic_load(&old->n_entries);
    struct dlock__guard_table *table = make(old->texts_end, n > CAPACITY_MIN ? n : CAPACITY_MIN, fd);
    if (!table) return NULL;
    if (!populate(dlock__guard_entry(table, 1), (size_t)n * sizeof(struct dlock__guard_entry))) {
        close(*fd);
        dlock__guard_table_free(table);
        errno = ENOMEM;
        return NULL;
    }
    table->local = old->local;
    table->spares_group = old->spares_group;
    memcpy(table->texts, old->texts, old->texts_end);
    memcpy(dlock__guard_entry(table, 1), dlock__guard_entry(old, 1), (size_t)n * sizeof(struct dlock__guard_entry));
    atomic_store(&table->n_entries, n);
    memcpy(&table->group, &old->group, sizeof table->group);
    return table;
}

struct dlock__guard_table *dlock__guard_table_map(int fd) {
    struct stat st;
    if (fstat(fd, &st) != 0 || st.st_size < (off_t)sizeof(struct dlock__guard_table)) return NULL;
    struct dlock__guard_table *table = map(fd, (size_t)st.st_size);
    if (table && table->magic == magic && table->size == (size_t)st.st_size) return table;
    if (table) munmap(table, (size_t)st.st_size);
    return NULL;
}

void dlock__guard_table_free(struct dlock__guard_table *table) {
    munmap(table, table->size);
}

struct dlock__guard_entry *dlock__guard_entry(const struct dlock__guard_table *table, uint32_t number) {
    return (struct dlock__guard_entry *)(void *)((char *)(uintptr_t)table + table->entries_at) + (number - 1);
}

uint32_t dlock__guard_table_grow(struct dlock__guard_table *table) {
    uint32_t n = atomic_load(&table->n_entries);
    if (n == table->capacity) return 0;
    if (n % GROW == 0) {
        uint32_t left = table->capacity - n, more = left < GROW ? left : GROW;
        if (!populate(dlock__guard_entry(table, n + 1), more * sizeof(struct dlock__guard_entry))) return 0;
    }
    atomic_store(&table->n_entries, n + 1);
    return n + 1;
}

void dlock__guard_wait(atomic_uint *word, unsigned value, bool briefly) {
    const struct timespec most = {0, 50 * 1000 * 1000};
    syscall(SYS_futex, word, FUTEX_WAIT, value, briefly ? &most : NULL, NULL, 0);
}

void dlock__guard_wake(atomic_uint *word) {
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
