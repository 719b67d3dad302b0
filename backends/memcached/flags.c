/* An item's flags describe its grant, so that its value can be the token alone. Bit 31 marks the flags as dlock's; 12
 * bits are the lease, rounded up by less than a hundredth; 19 bits are the low bits of the cas id of the grant itself,
 * since every renewal changes the item's id. */
#include "memcached.h"

#define MARK (UINT32_C(1) << 31)
#define GRANTED_BITS 19
#define GRANTED_END (UINT32_C(1) << GRANTED_BITS)

/* Values in the place of the low bits: the item's own id is that of the grant; there were too many stores since. */
#define ITSELF (GRANTED_END - 1)
#define UNKNOWN (GRANTED_END - 2)

/* A lease is (128 + mantissa) << exponent. */
#define MANTISSA_BITS 7
#define ONE (UINT32_C(1) << MANTISSA_BITS)

static uint32_t pack_lease(int64_t lease_ms) {
    uint32_t exponent = 0;
    int64_t left = lease_ms;
    while (left >= 2 * ONE) left = (left + 1) / 2, exponent++;
    return exponent << MANTISSA_BITS | (left < ONE ? 0 : (uint32_t)left - ONE);
}

static int64_t unpack_lease(uint32_t packed) {
    return (int64_t)(ONE + (packed & (ONE - 1))) << (packed >> MANTISSA_BITS);
}

uint32_t memcached_flags(int64_t lease_ms, uint64_t granted, uint64_t cas) {
    uint32_t low = (uint32_t)granted & (GRANTED_END - 1);
    if (granted == MEMCACHED_THIS_STORE)
        low = ITSELF;
    else if (granted == MEMCACHED_NOT_KNOWN || low >= UNKNOWN || cas - granted > GRANTED_END / 2)
        low = UNKNOWN;
    return MARK | pack_lease(lease_ms) << GRANTED_BITS | low;
}

/* True if the value is a token of dlock, which begins with 24 hex digits and a dot: other programs may also use bit
 * 31. */
static bool is_token(const struct memcached_item *item) {
    return item->length > 25 && strspn(item->value, "0123456789abcdef") == 24 && item->value[24] == '.';
}

uint64_t memcached_granted(uint32_t flags, uint64_t cas) {
    const uint32_t low = flags & (GRANTED_END - 1);
    if (low == ITSELF) return cas;
    if (low == UNKNOWN) return MEMCACHED_NOT_KNOWN;
    /* The greatest id with these low bits that is not greater than the item's own. */
    const uint64_t granted = (cas & ~(uint64_t)(GRANTED_END - 1)) | low;
    if (granted <= cas) return granted ? granted : MEMCACHED_NOT_KNOWN;
    return granted > GRANTED_END ? granted - GRANTED_END : MEMCACHED_NOT_KNOWN;
}

void memcached_read_flags(struct memcached_item *item) {
    item->lease_ms = 0;
    item->granted = item->cas;
    if (!(item->flags & MARK) || !is_token(item)) return;
    item->lease_ms = unpack_lease((item->flags & ~MARK) >> GRANTED_BITS);
    item->granted = memcached_granted(item->flags, item->cas);
}
