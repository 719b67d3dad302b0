/* The key of a lock's item, and the value of an exclusive grant. */
#include "memcached.h"

bool memcached_key(char key[MEMCACHED_KEY_MAX + 1], const char *name) {
    char whole[3 * MEMCACHED_NAME_MAX + 1];
    dlock_encode_name(whole, sizeof whole, name, " ", false);
    dlock_encode_name(key, MEMCACHED_KEY_MAX + 1, name, " ", false);
    return strcmp(whole, key) != 0;
}

void memcached_value(char out[MEMCACHED_VALUE_MAX + 1], const struct dlock_claim *claim, bool cut) {
    if (cut)
        snprintf(out, MEMCACHED_VALUE_MAX + 1, "%s %s", claim->token, claim->name);
    else
        snprintf(out, MEMCACHED_VALUE_MAX + 1, "%s", claim->token);
}
