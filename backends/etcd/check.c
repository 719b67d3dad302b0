/* The `check` operation: how this cluster's settings strengthen or weaken locks. */
#include "etcd.h"

#include <stdlib.h>
#include <time.h>

enum { QUOTA_DEFAULT = 2 << 20 /* kB */, SOON_S = 14 * 86400 };

static const char status_path[] = "/v3/maintenance/status";

/* Sends a request. False: it was not answered, which does not end the check. */
static bool ask(struct etcd *z, const char *path, const char *text, int64_t deadline_us, struct etcd_reply *reply) {
    struct dlock_text body = {NULL, 0, 0, false};
    dlock_text_add(&body, "%s", text);
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
    if (voters > 1 && etcd_members(z) < voters)
        dlock_find(report, "name all members in the URI, so that another one is asked when one is away",
                   "the URI names %zu of %zu members", etcd_members(z), voters);
}

/* Asks each host of the URI: whether it answers, and is a member of the same cluster. */
static void check_hosts(struct dlock_report *report, struct etcd *z, int64_t deadline_us) {
    struct dlock_http_host host;
    const size_t good = etcd_member(z, &host), n = etcd_members(z);
    for (size_t i = 0; i < n && n > 1; i++) {
        struct dlock_text body = {NULL, 0, 0, false};
        struct etcd_reply reply;
        struct dlock_error why = {0};
        int64_t share_us = (deadline_us - dlock_now_us()) / (int64_t)(n - i + 1);
        dlock_text_add(&body, "{}");
        etcd_use_member(z, good - good % ETCD_HOSTS + i);
        const size_t asked = etcd_member(z, &host);
        int rc = etcd_post(z, status_path, &body, ETCD_ONCE, dlock_now_us() + share_us, &reply, &why);
        if (rc == 0) etcd_reply_end(&reply);
        if (rc == 0 && etcd_member(z, &(struct dlock_http_host){0}) == asked) continue;
        if (rc == 0) /* the next member has answered instead */
            snprintf(why.message, sizeof why.message, "no connection to etcd at %s", dlock_http_where(&host));
        dlock_find(report, "each host in the URI has to be a member of one cluster, and to answer", "%s", why.message);
    }
    etcd_use_member(z, good);
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

static size_t discard(char *bytes, size_t size, size_t n, void *arg) {
    (void)bytes, (void)arg;
    return size * n;
}

/* Finds the end in libcurl's list of texts about a certificate: "Expire date:Nov 28 19:30:00 2026 GMT". 0: none. */
static time_t end_of(const struct curl_certinfo *chain) {
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    struct tm end = {.tm_isdst = 0};
    char month[4] = "";
    for (const struct curl_slist *at = chain && chain->num_of_certs > 0 ? chain->certinfo[0] : NULL; at; at = at->next)
        if (sscanf(at->data, "Expire date:%3s %d %d:%d:%d %d", month, &end.tm_mday, &end.tm_hour, &end.tm_min,
                   &end.tm_sec, &end.tm_year) == 6)
            break;
    const char *found = *month ? strstr(months, month) : NULL;
    if (!found) return 0;
    end.tm_mon = (int)(found - months) / 3;
    end.tm_year -= 1900;
    return timegm(&end);
}

/* Returns when the certificate ends of the member in use, which it asks over a new connection. 0: unknown. */
static time_t certificate_end(struct etcd *z, int64_t deadline_us) {
    const struct curl_certinfo *chain = NULL;
    struct curl_slist *connect, *headers = NULL;
    struct dlock_http_signals signals;
    int64_t ms = (deadline_us - dlock_now_us()) / 1000;
    time_t end = 0;
    struct dlock_http_host host;
    CURL *easy = curl_easy_init();
    etcd_member(z, &host);
    if (easy) headers = etcd_prepare(z, easy, &host, status_path, &connect);
    if (headers) {
        curl_easy_setopt(easy, CURLOPT_CERTINFO, 1L);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, "{}");
        curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, discard);
        curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)(ms > 0 ? ms : 1));
        dlock_http_quiet(&z->http, &signals);
        if (curl_easy_perform(easy) == CURLE_OK && curl_easy_getinfo(easy, CURLINFO_CERTINFO, &chain) == CURLE_OK)
            end = end_of(chain);
        curl_easy_cleanup(easy);
        dlock_http_loud(&z->http, &signals);
        curl_slist_free_all(headers);
        curl_slist_free_all(connect);
    } else if (easy) {
        curl_easy_cleanup(easy);
    }
    return end;
}

static void check_certificate(struct dlock_report *report, struct etcd *z, int64_t deadline_us) {
    char date[32] = "an unknown date";
    struct tm parts;
    time_t end = certificate_end(z, deadline_us);
    if (end && gmtime_r(&end, &parts)) strftime(date, sizeof date, "%Y-%m-%d", &parts);
    dlock_find(report,
               end && end - time(NULL) < SOON_S ? "replace it: once it has expired no connection can be made" : NULL,
               "TLS, and the server's certificate expires on %s", date);
}

static void check_tls(struct dlock_report *report, struct etcd *z, int64_t deadline_us) {
    if (z->http.insecure)
        dlock_find(report, "anybody on the network path can pose as the server: set ca= in place of insecure=on",
                   "TLS, and any certificate is accepted");
    else if (z->http.tls)
        check_certificate(report, z, deadline_us);
    else if (z->address.password)
        dlock_find(report, "anybody on the network path can read the password: use etcd+tls://",
                   "a password without TLS");
}

int etcd_check(void *conn, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err) {
    const int64_t deadline_us = dlock_deadline_us(timeout_ms);
    struct etcd *z = etcd_of(conn);
    struct dlock_report report = {each, arg, false};
    struct dlock_text body = {NULL, 0, 0, false};
    struct etcd_reply reply;
    struct etcd_lease lease;
    int rc = etcd_lease(z, ETCD_KEEP_SHARE, deadline_us, &lease, err);
    if (rc == DLOCK_EUNAVAILABLE && atomic_load(&z->full)) rc = 0; /* an alarm tells it */
    dlock_text_add(&body, "{}");
    if (rc == 0) rc = etcd_post(z, status_path, &body, ETCD_REPEAT, deadline_us, &reply, err);
    dlock_text_free(&body);
    if (rc != 0) return etcd_code(rc, err);
    check_version(&report, reply.body);
    check_store(&report, reply.body);
    etcd_reply_end(&reply);
    check_members(&report, z, deadline_us);
    check_hosts(&report, z, deadline_us);
    check_alarms(&report, z, deadline_us);
    check_lease(&report, z);
    check_tls(&report, z, deadline_us);
    return 0;
}
