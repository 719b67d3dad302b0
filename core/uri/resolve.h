/* Turns host names into numeric addresses, never past a deadline: getaddrinfo() runs in threads of its own. */
#ifndef DLOCK_CORE_URI_RESOLVE_H
#define DLOCK_CORE_URI_RESOLVE_H

#include <dlock/backend.h>

struct dlock__resolver;

/* Every address of every host, in the order of the URI, without duplicates of address and port. */
struct dlock__addresses {
    size_t n;
    struct dlock_host hosts[]; /* their strings follow in the same allocation */
};

/* Makes a resolver for the hosts of `uri`, which it copies. Error: ENOMEM. */
int dlock__resolver_new(const struct dlock_uri *uri, struct dlock__resolver **resolver, struct dlock_error *err);

/* Stores the addresses of the hosts in *addresses; release them with free(). Numeric hosts are not looked up. With
 * `lookup`, names are looked up the first time, while nothing is remembered, and after dlock__resolver_stale(); for a
 * name whose look-up fails the remembered addresses are used. Without `lookup` (the renewal path) the call never
 * blocks: it uses the remembered addresses, and starts a look-up that is due for the benefit of later calls. Ends by
 * deadline_us even if a look-up hangs, and after half of that time if addresses are remembered; later callers wait for
 * a look-up that hangs instead of starting another. Any thread. Errors: EUNAVAILABLE (names the host), ENOMEM. */
int dlock__resolve(struct dlock__resolver *resolver, int64_t deadline_us, bool lookup,
                   struct dlock__addresses **addresses, struct dlock_error *err);

/* The same for one host that a server has announced, of which the resolver remembers up to 256: a name is looked up each
 * time. Without `lookup` this never blocks either, and also starts the first look-up of a name. */
int dlock__resolve_announced(struct dlock__resolver *resolver, const char *host, int port, int64_t deadline_us,
                             bool lookup, struct dlock__addresses **addresses, struct dlock_error *err);

/* Marks the remembered addresses as possibly wrong: the next call looks the names up again. */
void dlock__resolver_stale(struct dlock__resolver *resolver);

/* Frees the resolver, without waiting for a look-up that hangs: its thread frees the memory when it ends. NULL is
 * allowed. */
void dlock__resolver_free(struct dlock__resolver *resolver);

#endif
