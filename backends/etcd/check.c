/* The `check` operation: how this cluster's settings strengthen or weaken locks. */
#include "etcd.h"

#include <stdlib.h>

enum { QUOTA_DEFAULT = 2 << 20 /* kB */ };

/* Sends a request. False: it was not answered, which does not end the check. */
static bool ask(struct etcd *z, const char *path, const char *text, int64_t deadline_us, struct etcd_reply *reply) {
    struct etcd_text body = {NULL, 0, 0, false};
    etcd_add(&body, "%s", text);
    return etcd_post(z, path, &body, ETCD_REPEAT, deadline_us, reply, NULL) == 0;
}

static void check_version(struct dlock_report *report, const json_t *status) {
    const char *version = etcd_string(status, "version");
    int major = 0, minor = 0;
    if (!version || sscanf(version, "%d.%d.", &major, &minor) != 2)
        dlock_find(report, "is this etcd?", "it does not say its version");
    else
        dlock_find(report, major * 100 + minor < 304 ? "dlock needs etcd 3.4 or newer" : NULL, "etcd %.30s", version);
}

static void check_store(struct dlock_report *report, const json_t *status) {
    int64_t bytes = etcd_int(status, "dbSize"), used = etcd_int(status, "dbSizeInUse");
    if (bytes <= 0 || used < 0) return;
    dlock_find(report,
               bytes >> 10 > QUOTA_DEFAULT / 4 * 3
                   ? "without space (--quota-backend-bytes, 2 GB by default) nothing is granted: set "
                     "--auto-compaction-retention, and defragment it"
                   : NULL,
               "store: %lld kB, of which %lld are in use", (long long)(bytes >> 10), (long long)(used >> 10));
}

static void check_members(struct dlock_report *report, struct etcd *z, int64_t deadline_us) {
    struct etcd_reply reply;
    size_t voters = 0, i;
    json_t *member;
    if (!ask(z, "/v3/cluster/member/list", "{}", deadline_us, &reply)) return;
    json_array_foreach(json_object_get(reply.body, "members"), i, member) {
        if (!json_is_true(json_object_get(member, "isLearner"))) voters++;
    }
    etcd_reply_end(&reply);
    if (voters == 1)
        dlock_find(report, NULL, "one member: while it is away there are no locks");
    else if (voters == 2)
        dlock_find(report, "when either is away there are no locks at all: make it one, or three", "a cluster of 2");
    else if (voters > 2)
        dlock_find(report, NULL, "a cluster of %zu", voters);
    if (voters > 1 && z->address.n < voters)
        dlock_find(report, "name all members in the URI, so that another one is asked when one is away",
                   "the URI names %zu of %zu members", z->address.n, voters);
}

static void check_alarms(struct dlock_report *report, struct etcd *z, int64_t deadline_us) {
    struct etcd_reply reply;
    size_t i;
    json_t *alarm;
    if (!ask(z, "/v3/maintenance/alarm", "{}", deadline_us, &reply)) return;
    json_array_foreach(json_object_get(reply.body, "alarms"), i, alarm) {
        const char *kind = etcd_string(alarm, "alarm");
        dlock_find(report, "nothing is granted: compact and defragment it, then `etcdctl alarm disarm`", "alarm %.30s",
                   kind ? kind : "of unknown kind");
    }
    etcd_reply_end(&reply);
}

static void check_lease(struct dlock_report *report, struct etcd *z) {
    struct etcd_lease lease = etcd_lease_known(z);
    int asked_s = z->address.ttl_s;
    if (!lease.id) return;
    dlock_find(report,
               lease.ttl_ms > (int64_t)asked_s * 1000
                   ? "the locks of a dead client stay for so long: lower --election-timeout, or set session= to that"
                   : NULL,
               "session %lld s; the URI asks for %d", (long long)(lease.ttl_ms / 1000), asked_s);
    if (lease.ttl_ms < 5000)
        dlock_find(report,
                   "electing another leader takes a second or two, and locks with sessions not much longer are lost: "
                   "set session= to 5s or more",
                   "a short session");
}

static void check_tls(struct dlock_report *report, const struct etcd *z) {
    if (z->address.tls)
        dlock_find(report,
                   z->address.insecure
                       ? "anybody on the network path can pose as the server: set ca= in place of insecure=on"
                       : NULL,
                   z->address.insecure ? "TLS, and any certificate is accepted" : "TLS");
    else if (z->address.password)
        dlock_find(report, "anybody on the network path can read the password: use etcd+tls://",
                   "a password without TLS");
}

int etcd_check(void *conn, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err) {
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    struct etcd *z = etcd_of(conn);
    struct dlock_report report = {each, arg, false};
    struct etcd_text body = {NULL, 0, 0, false};
    struct etcd_reply reply;
    struct etcd_lease lease;
    int rc = etcd_lease(z, deadline_us, &lease, err);
    etcd_add(&body, "{}");
    if (rc == 0) rc = etcd_post(z, "/v3/maintenance/status", &body, ETCD_REPEAT, deadline_us, &reply, err);
    etcd_text_free(&body);
    if (rc != 0) return etcd_code(rc, err);
    check_version(&report, reply.body);
    check_store(&report, reply.body);
    etcd_reply_end(&reply);
    check_members(&report, z, deadline_us);
    check_alarms(&report, z, deadline_us);
    check_lease(&report, z);
    check_tls(&report, z);
    return 0;
}
