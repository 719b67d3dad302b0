/* What a simulated machine has beside its clock and threads: processors, and memory that runs out. */
#include "memory.h"

#include "support/scheduler.h"

#include "base/env.h"

#include <dlock/dlock.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The linker puts the functions named __wrap_… in the place of others: nothing else names them. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

pid_t __wrap_getpid(void) {
    return 1; /* appears in tokens */
}

void dlock__sleep_us(int64_t us) {
    sim_sleep_us(us);
}

int dlock__cpu(void) {
    return (int)(sim_random() % 2);
}

static bool spun(const atomic_uint *word, unsigned seen, int64_t most_us) {
    sim_sleep_us(sim_between(0, most_us)); /* others run in this time */
    return atomic_load(word) != seen;
}

bool dlock__spin(const atomic_uint *word, unsigned seen) {
    return spun(word, seen, 10);
}

bool dlock__yield_once(const atomic_uint *word, unsigned seen) {
    return spun(word, seen, 1000);
}

bool dlock__spin_then_yield(const atomic_uint *word, unsigned seen) {
    return spun(word, seen, 100);
}

void dlock__yield(void) {
    sim_pause();
}

int dlock__thread_start(pthread_t *thread, void *(*run)(void *), void *arg) {
    unsigned number = sim_start(sim_host(), run, arg);
    *thread = number;
    return number ? 0 : DLOCK_ENOMEM;
}

/* ---- memory: each piece has a header with its host ---- */

struct piece {
    struct sim_host *host; /* NULL: allocated before there was one */
    size_t size;
    struct piece *next, **at;
    uint64_t check;
    uint64_t fill;
};
static const uint64_t check = UINT64_C(0x646c6f636b21);
static struct piece *pieces;
static unsigned refused;

void sim_allocations_fail(unsigned per_million) {
    refused = per_million;
}

void *__real_malloc(size_t size);
void __real_free(void *memory);

bool sim_allocations_may_fail(void) {
    return refused > 0;
}

static void *allocate(size_t size, bool may_fail) {
    if (may_fail && refused && sim_random() % 1000000 < refused) {
        errno = ENOMEM;
        return NULL;
    }
    struct piece *piece = __real_malloc(sizeof *piece + size);
    if (!piece) sim_fail("out of memory");
    *piece = (struct piece){.host = sim_host(), .size = size, .next = pieces, .at = &pieces, .check = check};
    if (pieces) pieces->at = &piece->next;
    pieces = piece;
    memset(piece + 1, 0xa5, size);
    return piece + 1;
}

void *sim_new(size_t size) {
    void *memory = __real_malloc(size);
    if (!memory) sim_fail("out of memory");
    return memset(memory, 0, size);
}

void sim_free(void *memory) {
    __real_free(memory);
}

void *__wrap_malloc(size_t size) {
    return allocate(size, true);
}

void *__wrap_calloc(size_t n, size_t size) {
    void *memory = allocate(n * size, true);
    return memory ? memset(memory, 0, n * size) : NULL;
}

/* Memory that the C library allocated itself lacks our header. */
__attribute__((no_sanitize("address"))) void __wrap_free(void *memory) {
    if (!memory) return;
    struct piece *piece = (struct piece *)memory - 1;
    if (piece->check != check) { /* the C library's own */
        __real_free(memory);
        return;
    }
    *piece->at = piece->next;
    if (piece->next) piece->next->at = piece->at;
    memset(piece, 0x5a, sizeof *piece + piece->size);
    __real_free(piece);
}

void *__wrap_realloc(void *memory, size_t size) {
    void *moved = allocate(size, true);
    if (!moved || !memory) return moved;
    size_t had = ((struct piece *)memory - 1)->size;
    memcpy(moved, memory, had < size ? had : size);
    __wrap_free(memory);
    return moved;
}

size_t sim_allocated(const struct sim_host *host, unsigned *n) {
    size_t bytes = 0;
    *n = 0;
    for (const struct piece *piece = pieces; piece; piece = piece->next) {
        if (piece->host != host) continue;
        bytes += piece->size;
        (*n)++;
    }
    return bytes;
}
