/* Error codes and messages for answers of the server and of the library. */
#include "zookeeper.h"

enum { QUOTA_EXCEEDED = -125 }; /* of servers since 3.7; libzookeeper's header has no name for it */

bool zookeeper_committed(const struct zookeeper_request *transaction) {
    switch (transaction->rc) {
    case ZOK:
    case ZNOAUTH: /* the client may not read "/" */
    case ZNONODE:
    case ZNODEEXISTS: return true;
    default: return false;
    }
}

bool zookeeper_unknown(int rc) {
    switch (rc) {
    case ZCONNECTIONLOSS:
    case ZOPERATIONTIMEOUT:
    case ZINVALIDSTATE:
    case ZCLOSING:
    case ZSESSIONEXPIRED:
    case ZSESSIONMOVED:
    case ZNOTREADONLY:
    case ZTHROTTLEDOP:
    case ZSYSTEMERROR: return true;
    default: return false;
    }
}

int zookeeper_silent(const struct zookeeper *z, struct dlock_error *err) {
    return dlock_fail(err, DLOCK_EUNAVAILABLE, "no answer in time from ZooKeeper at %s", z->where);
}

int zookeeper_refused(const struct zookeeper *z, int rc, const char *what, const char *path, struct dlock_error *err) {
    int code = DLOCK_EPROTO;
    if (zookeeper_unknown(rc)) return zookeeper_silent(z, err);
    if (rc == ZNOAUTH)
        return dlock_fail(err, DLOCK_EAUTH,
                          "ZooKeeper at %s does not let this client %s %.200s: an ACL has to grant it create, read and "
                          "delete; see auth= and acl=",
                          z->where, what, path);
    if (rc == QUOTA_EXCEEDED)
        return dlock_fail(err, DLOCK_EUNAVAILABLE,
                          "ZooKeeper at %s cannot %s %.200s: the quota of a node above it is used up (setquota)",
                          z->where, what, path);
    if (rc == ZAUTHFAILED || rc == ZSESSIONCLOSEDREQUIRESASLAUTH) code = DLOCK_EAUTH;
    if (rc == ZINVALIDACL)
        return dlock_fail(err, DLOCK_EAUTH,
                          "ZooKeeper at %s refused the acl for %.200s: acl=creator needs auth=", z->where, path);
    if (rc == ZUNIMPLEMENTED)
        return dlock_fail(err, DLOCK_ENOTSUP, "ZooKeeper at %s is too old; dlock needs 3.5.3 or newer", z->where);
    if (rc == ZNOCHILDRENFOREPHEMERALS || rc == ZBADARGUMENTS) code = DLOCK_EINVAL;
    return dlock_fail(err, code, "ZooKeeper at %s cannot %s %.200s: %s", z->where, what, path, zerror(rc));
}
