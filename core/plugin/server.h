/* All that is needed to open a connection: a connection string, the backend that serves it, and the addresses of its
 * hosts. A client has one, and so has each member of a quorum. */
#ifndef DLOCK_CORE_PLUGIN_SERVER_H
#define DLOCK_CORE_PLUGIN_SERVER_H

#include "plugin/plugin.h"
#include "uri/resolve.h"
#include "uri/uri.h"

struct dlock__server {
    struct dlock__uri *uri;
    const struct dlock__module *module;
    struct dlock__resolver *resolver;
    uint32_t base_caps; /* of the backend that the scheme names; the module may be a variant of it */
};

/* For an error that says what a backend lacks, after its name: a variant has the name of its base, which may have it. */
static inline const char *dlock__as_selected(uint32_t base_caps, uint32_t lacking) {
    return base_caps & lacking ? ", as this URI selects it," : "";
}

/* Parses the URI, finds the backend, loads its module if need be, and lets the backend judge the URI. *server must be
 * zeroed before, and closed afterwards whatever this returns. Errors: as dlock__uri_parse, dlock__registry_find and a
 * backend's `accepts`. */
int dlock__server_open(const char *text, struct dlock__server *server, struct dlock_error *err);

/* Looks up `host`, which the server has announced, or if it is NULL the hosts of the URI, and connects by `connect`, the
 * backend's own or one that it gave to dlock_peer.connect_again. Without `lookup` only addresses that are known already
 * are used. Any thread; blocks until the deadline at most. Errors: as dlock__resolve and a backend's `connect`. */
int dlock__server_connect(const struct dlock__server *server, const char *host, int port, bool lookup,
                          dlock_connect *connect, const struct dlock_peer *peer, void *data, int64_t deadline_us,
                          struct dlock_error *err);

/* Takes what a backend's operation returned about its connection. Returns `rc`, or EPROTO for a number that says
 * nothing about one: a result of claims, such as ELOST, would be believed of every claim, though nothing is known about
 * any. */
int dlock__about_connection(const struct dlock_backend *backend, const char *operation, int rc,
                            struct dlock_error *err);

void dlock__server_close(struct dlock__server *server);

/* ---- member.c ---- */

/* Implements dlock_peer.open_member. */
int dlock__member_open(const struct dlock_peer *peer, const char *uri, struct dlock_member *out,
                       struct dlock_error *err);

#endif
