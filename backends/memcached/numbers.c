/* Reads numbers, checks cas ids, computes fences. */
#include "memcached.h"

bool memcached_number(const char **text, uint64_t *number) {
    const char *p = *text;
    uint64_t sum = 0;
    if (*p < '0' || *p > '9') return false;
    for (; *p >= '0' && *p <= '9'; p++) {
        uint64_t digit = (uint64_t)(*p - '0');
        if (sum > (UINT64_MAX - digit) / 10) return false;
        sum = sum * 10 + digit;
    }
    *text = p;
    *number = sum;
    return true;
}

uint64_t memcached_fence(const struct memcached *memcached, uint64_t granted) {
    if (granted == 0 || granted >= MEMCACHED_FENCE_END - memcached->started_us) return 0;
    return memcached->started_us + granted;
}

int memcached_check_id(struct memcached *memcached, uint64_t cas, struct dlock_error *err) {
    if (cas == 0)
        return memcached_nonsense(memcached, "cas id 0; a server that runs with -C has no cas ids, and no locks", err);
    if (!memcached_fence(memcached, cas)) return memcached_nonsense(memcached, "an implausible cas id", err);
    return 0;
}
