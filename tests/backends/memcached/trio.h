/* Three clients of the group's server, and claims in each mode. */
#ifndef DLOCK_TESTS_MEMCACHED_TRIO_H
#define DLOCK_TESTS_MEMCACHED_TRIO_H

#include "harness.h"
#include "support/group.h"

extern struct link links[3]; /* clients a, b and c */

/* Setup and teardown of a test. */
int trio_begin(void **state);
int trio_end(void **state);

struct held claim_of(int client, const char *name, enum dlock_mode mode, uint32_t limit);
/* For a claim that was copied, whose token is still the first one's. */
void own(struct held *held);

#define CLAIM(name_, client, key, mode, limit)              \
    struct held name_ = claim_of(client, key, mode, limit); \
    own(&name_)
#define READER(name_, client, key) CLAIM(name_, client, key, DLOCK_SHARED, 0)
#define WRITER(name_, client, key) CLAIM(name_, client, key, DLOCK_EXCLUSIVE, 0)

bool is_free(const char *key);

/* acquire() that also says why it failed. */
int try_explained(struct link *link, struct held *held, char why[512]);

#endif
