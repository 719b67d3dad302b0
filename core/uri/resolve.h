/* Host names to numeric addresses, never past a deadline: getaddrinfo() runs on threads of its own. */
#ifndef DLOCK_CORE_URI_RESOLVE_H
#define DLOCK_CORE_URI_RESOLVE_H

#include <dlock/backend.h>

struct dlock__resolver;

/* Every address of every host, in the order of the URI, none twice with the same port. */
struct dlock__addresses {
    size_t n;
    struct dlock_host hosts[]; /* their strings follow in the same allocation */
};

/* A resolver for the hosts of `uri`, of which it keeps a copy. ENOMEM. */
int dlock__resolver_new(const struct dlock_uri *uri, struct dlock__resolver **resolver, struct dlock_error *err);

/* Stores the addresses of the hosts in *addresses; give them back with free(). Numeric hosts are not looked up. With
 * `lookup`, names are, the first time, while nothing is remembered, and when dlock__resolver_stale() was called since;
 * a failed look-up falls back to what is remembered of that host. With `lookup` false (the renewal path) never blocks:
 * what is remembered counts, and a look-up that is due begins for later calls. Ends by deadline_us even while a look-up
 * hangs, and at half of the time until then if something is remembered to fall back on; a hanging one is joined by
 * later callers, not started again. Any thread. Errors: EUNAVAILABLE (names the host), ENOMEM. */
int dlock__resolve(struct dlock__resolver *resolver, int64_t deadline_us, bool lookup,
                   struct dlock__addresses **addresses, struct dlock_error *err);

/* The remembered addresses may be wrong by now: the next call looks them up again. */
void dlock__resolver_stale(struct dlock__resolver *resolver);

/* Does not wait for a look-up that hangs: that one keeps what it needs and frees it when it ends. NULL is allowed. */
void dlock__resolver_free(struct dlock__resolver *resolver);

#endif
