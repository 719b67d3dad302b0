/* A server whose answers are malformed, or come from one leader after another. */
#include "support/clock.h"
#include "support/fake.h"
#include "support/held.h"
#include "support/test.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

static struct fake fake;
static atomic_int asked, leases, changes; /* changes: how many grants are still answered in a later term */
static atomic_int deletes;                /* how many were sent */
static atomic_bool drops;                 /* they are not answered: the connection ends */
static atomic_bool stale;                 /* another member answers which term it is, and knows of no later one */
static struct link link;

enum { FIRST_LEASE = 70 };
#define CLUSTER "\"cluster_id\":\"14841639068965178418\","

/* Returns the answer to a transaction, by its body, or to a deletion, by its path; "": it is refused, since the lease
 * has ended. */
typedef const char *answer_fn(const char *body);
static answer_fn *answer;

/* The answer to a range request, and the key at which the last such request began. */
static const char *range = "{}";
static char range_key[512];
static int64_t ends_ms;   /* when the client should have ended */
static atomic_int beyond; /* how many requests came later */

/* ---- libcurl's functions, in front of the library's ------------------------------------------------------------ */

static void *failed_handles[64];
static atomic_int n_failed, used_again;

/* Stores the library's function. */
static void find_real(const char *function, void *out) {
    void *found = dlsym(RTLD_NEXT, function), *library = found ? NULL : dlopen("libcurl.so.4", RTLD_LAZY | RTLD_NOLOAD);
    if (!found && library) found = dlsym(library, function);
    if (!found) fail_msg("%s", function);
    memcpy(out, &found, sizeof found);
}

static void **find_failed(const void *easy) {
    int i = 0;
    while (i < atomic_load(&n_failed) && failed_handles[i] != easy) i++;
    return i < atomic_load(&n_failed) ? &failed_handles[i] : NULL;
}

__attribute__((visibility("default"))) int curl_easy_perform(void *easy);
__attribute__((visibility("default"))) void curl_easy_cleanup(void *easy);

int curl_easy_perform(void *easy) {
    int (*real)(void *);
    find_real("curl_easy_perform", &real);
    if (find_failed(easy)) atomic_fetch_add(&used_again, 1);
    int rc = real(easy);
    if (rc != 0 && atomic_load(&n_failed) < 64) failed_handles[atomic_fetch_add(&n_failed, 1)] = easy;
    return rc;
}

void curl_easy_cleanup(void *easy) {
    void (*real)(void *);
    void **failed = find_failed(easy);
    find_real("curl_easy_cleanup", &real);
    if (failed) *failed = NULL;
    real(easy);
}

/* ---- the fake server --------------------------------------------------------------------------------------------- */

static size_t whole_request(const char *buffer, size_t size) {
    static const char header[] = "Content-Length: ", end[] = "\r\n\r\n";
    const char *length = memmem(buffer, size, header, sizeof header - 1), *body = memmem(buffer, size, end, 4);
    if (!length || !body) return 0;
    size_t whole = (size_t)(body + 4 - buffer) + strtoul(length + sizeof header - 1, NULL, 10);
    return whole <= size ? whole : 0;
}

static const char *const no_greeting[] = {NULL};
const struct fake_protocol fake_protocol = {.greeting = no_greeting, .request = whole_request};

static bool closes; /* each connection after its answer: the fake serves one at a time */
static int term = 2;
static FILE *streams[2]; /* connections with a stream, which outlive their requests */
static atomic_int n_streams;

/* A stream that begins at revision 5 and reports one release, at revision 8. */
static bool begin_stream(struct fake *me, int fd) {
    static const char text[] = "HTTP/1.1 200 OK\r\n\r\n"
                               "{\"result\":{\"header\":{\"revision\":\"5\"},\"created\":true}}\n"
                               "{\"result\":{\"header\":{\"revision\":\"8\"},\"events\":[{\"type\":\"DELETE\"}]}}\n";
    int i = atomic_load(&n_streams);
    if (i < 2) streams[i] = fdopen(fd, "w");
    send(fd, text, sizeof text - 1, MSG_NOSIGNAL);
    me->kept = fd;
    atomic_fetch_add(&n_streams, 1);
    return false;
}

static bool converse(struct fake *me, int fd, int i, const char *request, size_t size) {
    static const char gone[] = "{\"error\":\"etcdserver: requested lease not found\",\"code\":5}";
    char body[4096], text[8192], lease[128];
    bool status = memmem(request, size, "/v3/maintenance/status", 22);
    const char *at = memmem(request, size, "\r\n\r\n", 4), *says = lease;
    (void)i;
    atomic_fetch_add(&asked, 1);
    if (now_ms() > ends_ms) atomic_fetch_add(&beyond, 1);
    snprintf(body, sizeof body, "%.*s", (int)(request + size - at - 4), at + 4);
    if (memmem(request, size, "/v3/watch", 9)) return begin_stream(me, fd);
    if (memmem(request, size, "/v3/kv/txn", 10)) says = answer(body);
    if (memmem(request, size, "/v3/kv/deleterange", 18)) says = answer("/v3/kv/deleterange");
    if (memmem(request, size, "/v3/auth/authenticate", 21))
        says = "{\"error\":\"etcdserver: authentication failed, invalid user ID or password\",\"code\":3}";
    if (memmem(request, size, "/v3/lease/grant", 15)) {
        atomic_fetch_add(&leases, 1);
        if (atomic_load(&changes) > 0 && atomic_fetch_sub(&changes, 1)) term++;
    }
    snprintf(lease, sizeof lease, "{\"header\":{" CLUSTER "\"raft_term\":\"%d\"},\"ID\":\"%d\",\"TTL\":\"60\"}",
             status && atomic_load(&stale) ? 1 : term, FIRST_LEASE + atomic_load(&leases));
    if (memmem(request, size, "/v3/kv/range", 12)) {
        const char *key = strstr(body, "\"key\":\"");
        snprintf(range_key, sizeof range_key, "%.*s", key ? (int)strcspn(key + 7, "\"") : 0, key ? key + 7 : "");
        says = range;
    }
    if (memmem(request, size, "delete", 6)) atomic_fetch_add(&deletes, 1);
    if (memmem(request, size, "delete", 6) && atomic_load(&drops)) return false;
    snprintf(text, sizeof text, "HTTP/1.1 %s\r\n%sContent-Length: %zu\r\n\r\n%s", *says ? "200 OK" : "404 Not Found",
             closes ? "Connection: close\r\n" : "", strlen(*says ? says : gone), *says ? says : gone);
    send(fd, text, strlen(text), MSG_NOSIGNAL);
    return !closes;
}

static int server_begin(void **state) {
    (void)state;
    memset(&fake, 0, sizeof fake);
    fake.converse = converse;
    fake_start(&fake);
    link_to(&link, fake.port, 'a');
    return 0;
}

static int server_end(void **state) {
    (void)state;
    link_end(&link);
    fake_stop(&fake);
    return 0;
}

/* ---- the tests --------------------------------------------------------------------------------------------------- */

static const char *refuses_deletes(const char *body) {
    if (strstr(body, "deleterange")) return "";
    return "{\"header\":{\"raft_term\":\"2\",\"revision\":\"5\"},\"succeeded\":true}";
}

TEST(release_is_told_that_the_lease_has_ended) {
    struct dlock_error err = {0};
    answer = refuses_deletes;
    CLAIM_INIT(mine, "refused", 'a', 1);
    assert_int_equal(acquire(&link, &mine), 0);
    int before = atomic_load(&asked);
    held_run(backend->release, &link, &mine, 0, TIMEOUT_MS, &err);
    assert_int_equal(mine.claim.result, DLOCK_EPROTO);
    assert_in_range(atomic_load(&asked) - before, 1, 2);
}

static const char *grants(const char *body) {
    char lease[32];
    snprintf(lease, sizeof lease, "\"lease\":\"%d\"", FIRST_LEASE + atomic_load(&leases));
    return strstr(body, lease) ? "{\"header\":{\"raft_term\":\"3\",\"revision\":\"5\"},\"succeeded\":true}" : "";
}

/* An etcd without space: it refuses whatever puts a key. The put that fills it is executed all the same. */
static bool executes;
static char refused[4096]; /* the first request that it refused */
static atomic_int refusals, others, deletions;

static const char *has_no_space(const char *body) {
    static char shown[2048];
    char kvs[512] = "";
    const char *key = strstr(body, "\"key\":\"");
    if (strstr(body, "request_put")) {
        if (atomic_fetch_add(&refusals, 1) == 0) snprintf(refused, sizeof refused, "%s", body);
        if (strcmp(refused, body) != 0) atomic_fetch_add(&others, 1);
        return "{\"error\":\"etcdserver: mvcc: database space exceeded\",\"code\":8}";
    }
    if (strstr(body, "deleterange")) {
        atomic_fetch_add(&deletions, 1);
        return "{\"header\":{\"raft_term\":\"2\",\"revision\":\"6\"},\"deleted\":\"1\"}";
    }
    if (executes && key)
        snprintf(kvs, sizeof kvs, "\"kvs\":[{\"key\":\"%.*s\",\"create_revision\":\"5\"}]", (int)strcspn(key + 7, "\""),
                 key + 7);
    snprintf(shown, sizeof shown,
             "{\"header\":{\"raft_term\":\"2\",\"revision\":\"5\"},\"succeeded\":true,\"responses\":["
             "{\"response_range\":{%s}},{\"response_range\":{%s}},{\"response_range\":{%s}}]}",
             kvs, kvs, kvs);
    return shown;
}

static int without_space_begin(void **state) {
    answer = has_no_space;
    executes = false;
    atomic_store(&refusals, 0);
    atomic_store(&others, 0);
    atomic_store(&deletions, 0);
    return server_begin(state);
}

/* It would also be refused if it had to close the claim's slot. */
TEST_WITH(without_space_begin, server_end, a_refused_acquire_needs_no_release) {
    struct dlock_error err = {0};
    struct held mine;
    for (int i = 0; i < 2; i++) {
        claim_init(&mine, "full", 'a', 1);
        assert_int_equal(held_run(backend->acquire, &link, &mine, 0, TIMEOUT_MS, &err), 0);
        assert_int_equal(mine.claim.result, DLOCK_EUNAVAILABLE);
        assert_non_null(strstr(err.message, "no space left"));
        int before = atomic_load(&asked);
        held_run(backend->release, &link, &mine, 0, TIMEOUT_MS, &err);
        assert_int_equal(mine.claim.result, DLOCK_ELOST);
        assert_int_equal(atomic_load(&asked), before);
    }
    assert_int_equal(atomic_load(&refusals), 2);
    assert_int_equal(atomic_load(&others), 0); /* the second one has the first one's slot */
    assert_int_equal(atomic_load(&deletions), 0);
}

TEST_WITH(without_space_begin, server_end, a_put_that_fills_etcd_is_a_grant) {
    executes = true;
    CLAIM_INIT(mine, "full", 'a', 1);
    assert_int_equal(acquire(&link, &mine), 0);
    assert_int_equal(mine.claim.fence, 5);
    assert_int_equal(release(&link, &mine), 0);
    assert_int_equal(atomic_load(&refusals), 1);
    assert_int_equal(atomic_load(&deletions), 1);
}

static const char *grants_elsewhere(const char *body) {
    (void)body;
    return "{\"header\":{\"cluster_id\":\"14841639068965178419\",\"raft_term\":\"2\",\"revision\":\"5\"},"
           "\"succeeded\":true}";
}

/* Two servers that each believe to be the whole cluster would both grant. */
TEST(a_member_of_another_cluster_grants_nothing) {
    struct dlock_error err = {0};
    answer = grants_elsewhere;
    CLAIM_INIT(mine, "elsewhere", 'a', 1);
    held_run(backend->acquire, &link, &mine, 0, TIMEOUT_MS, &err);
    assert_int_equal(mine.claim.result, DLOCK_EUNAVAILABLE);
    assert_non_null(strstr(err.message, "of another cluster"));
}

static const char *takes_few_operations(const char *body) {
    (void)body;
    return "{\"error\":\"etcdserver: too many operations in txn request\",\"code\":3}";
}

static const char *denies(const char *body) {
    (void)body;
    return "{\"error\":\"etcdserver: permission denied\",\"code\":7}";
}

static void try_and_hear(int code, const char *words) {
    struct dlock_error err = {0};
    CLAIM_INIT(mine, "refused", 'a', 1);
    held_run(backend->acquire, &link, &mine, 0, TIMEOUT_MS, &err);
    assert_int_equal(mine.claim.result, code);
    assert_non_null(strstr(err.message, words));
}

TEST(refusals_say_what_to_do) {
    answer = takes_few_operations;
    try_and_hear(DLOCK_EPROTO, "--max-txn-ops at 128");
    answer = denies;
    try_and_hear(DLOCK_EAUTH, "grant-permission");
}

TEST(a_wrong_password_is_told) {
    struct dlock_error err = {0};
    struct uri uri;
    link_end(&link);
    uri_init(&uri, fake.port);
    uri.parts.user = "me";
    uri.parts.password = "wrong";
    assert_int_equal(link_try(&link, &uri.parts, 'a', 0, 1000, &err), DLOCK_EAUTH);
    assert_non_null(strstr(err.message, "refused the user or the password"));
}

static char deletion[4096]; /* the last transaction that deletes */

static const char *grants_and_deletes(const char *body) {
    static const char
        granted[] = "{\"succeeded\":true}",
        deleted[] =
            "{\"response_txn\":{\"succeeded\":true,\"responses\":[{\"response_delete_range\":{\"deleted\":\"1\"}}]}}";
    static char both[512];
    bool releases = strstr(body, "delete_range");
    if (releases) snprintf(deletion, sizeof deletion, "%s", body);
    snprintf(both, sizeof both,
             releases ? "{\"succeeded\":true,\"responses\":[%s,%s]}"
                      : "{\"header\":{\"raft_term\":\"2\",\"revision\":\"5\"},\"succeeded\":true,\"responses\":["
                        "{\"response_txn\":%s},{\"response_txn\":%s}]}",
             releases ? deleted : granted, releases ? deleted : granted);
    return both;
}

/* Another client may have deleted the key, and a later claim of this one may have created it again. */
TEST(a_release_of_several_deletes_only_the_keys_that_were_granted) {
    struct dlock_error err = {0};
    struct held mine[2];
    struct dlock_claim *claims[2] = {&mine[0].claim, &mine[1].claim};
    answer = grants_and_deletes;
    claim_init(&mine[0], "job", 'a', 1);
    claim_init(&mine[1], "work", 'a', 2);
    assert_int_equal(backend->acquire(link.conn, claims, 2, TIMEOUT_MS, &err), 0);
    assert_int_equal(backend->release(link.conn, claims, 2, TIMEOUT_MS, &err), 0);
    for (int i = 0; i < 2; i++) assert_int_equal(claims[i]->result, 0);
    const char *first = strstr(deletion, "\"create_revision\":\"5\"");
    assert_non_null(first);
    assert_non_null(strstr(first + 1, "\"create_revision\":\"5\""));
}

/* The former leader may know the lease, and may end it. */
TEST(a_lease_that_was_granted_while_the_leader_changed_is_not_used) {
    answer = grants;
    link_end(&link);
    atomic_store(&changes, 1);
    int before = atomic_load(&leases);
    link_to(&link, fake.port, 'a');
    assert_int_equal(atomic_load(&leases) - before, 2);
    CLAIM_INIT(mine, "changed", 'a', 1);
    assert_int_equal(acquire(&link, &mine), 0);
}

/* Returns how many unused leases were granted until the client gave up. */
static int leases_in_vain(void) {
    struct dlock_error err = {0};
    struct uri uri;
    int before = atomic_load(&leases);
    uri_init(&uri, fake.port);
    assert_int_equal(link_try(&link, &uri.parts, 'a', 0, 1000, &err), DLOCK_EUNAVAILABLE);
    return atomic_load(&leases) - before;
}

TEST(a_leader_that_always_changes) {
    link_end(&link);
    atomic_store(&changes, INT_MAX);
    assert_in_range(leases_in_vain(), 2, 150); /* each costs the members a write */
    atomic_store(&changes, 0);
}

TEST(no_lease_is_granted_while_a_member_does_not_know_the_term) {
    link_end(&link);
    atomic_store(&stale, true);
    assert_int_equal(leases_in_vain(), 1);
    atomic_store(&stale, false);
}

static const char *deletes_nothing(const char *body) {
    (void)body;
    return "{\"succeeded\":false,\"responses\":[]}";
}

/* The second one could end the grant of the next holder. */
TEST(a_break_without_an_answer_is_not_sent_again) {
    struct dlock_error err = {0};
    answer = deletes_nothing;
    range = "{\"kvs\":[{\"key\":\"ZGxvY2svam9iLzQ2\",\"value\":\"\",\"create_revision\":\"5\"}]}";
    atomic_store(&deletes, 0);
    atomic_store(&drops, true);
    int failed_before = atomic_load(&n_failed);
    assert_int_equal(backend->break_lock(link.conn, "job", TIMEOUT_MS, &err), DLOCK_EUNAVAILABLE);
    assert_int_equal(atomic_load(&deletes), 1);
    atomic_store(&drops, false);
    /* libcurl 8 crashes when it uses a handle again on which such a request has failed */
    assert_int_equal(atomic_load(&n_failed), failed_before + 1);
    assert_int_equal(backend->break_lock(link.conn, "job", 100, &err), DLOCK_EUNAVAILABLE);
    assert_int_equal(atomic_load(&used_again), 0);
}

/* The holder is shown again and again, and each answer comes at once. */
TEST(a_break_that_deletes_nothing_ends_in_time) {
    struct dlock_error err = {0};
    answer = deletes_nothing;
    range = "{\"kvs\":[{\"key\":\"ZGxvY2svam9iLzQ2\",\"value\":\"\",\"create_revision\":\"5\"}]}";
    ends_ms = now_ms() + 300 + 100;
    atomic_store(&beyond, 0);
    assert_int_equal(backend->break_lock(link.conn, "job", 300, &err), DLOCK_EUNAVAILABLE);
    assert_in_range(atomic_load(&beyond), 0, 2);
    int before = atomic_load(&asked);
    assert_int_equal(backend->break_lock(link.conn, "job", 0, &err), DLOCK_EUNAVAILABLE);
    assert_int_equal(atomic_load(&asked), before);
}

static int count_holders(const struct dlock_info *info, void *arg) {
    (void)info;
    ++*(int *)arg;
    return 0;
}

/* More keys of another program than an answer has: the next page begins after the last one. */
TEST(a_list_goes_on_behind_foreign_keys) {
    struct dlock_error err = {0};
    char cursor[256] = "", again[256], first[sizeof range_key];
    int holders = 0;
    range = "{\"more\":true,\"kvs\":[{\"key\":\"enp6Lw==\"},{\"key\":\"enp6eg==\"}]}"; /* zzz/, zzzz */
    assert_int_equal(backend->list(link.conn, "", cursor, count_holders, &holders, 4000, &err), 1);
    strcpy(first, range_key);
    strcpy(again, cursor);
    /* A server that shows the same ones again. */
    assert_int_equal(backend->list(link.conn, "", again, count_holders, &holders, 4000, &err), DLOCK_EPROTO);
    range = "{}";
    assert_int_equal(backend->list(link.conn, "", cursor, count_holders, &holders, 4000, &err), 0);
    assert_string_not_equal(range_key, first);
    assert_string_equal(range_key, "enp6egE="); /* zzzz\x01 */
    assert_int_equal(holders, 0);
}

/* Revision 5 shows two permits before the claim's place, revision 7 one. */
static const char *shows_a_queue(const char *body) {
    static const char value[] = "cGVybWl0IDEg"; /* "permit 1 " */
    static char shown[2048], own[512];
    static int looks;
    char before[512];
    const char *put = strstr(body, "request_put"), *key = put ? strstr(put, "\"key\":\"") : NULL;
    if (!strstr(body, "request_range")) return "{\"header\":{\"raft_term\":\"2\",\"revision\":\"4\"}}";
    if (key) snprintf(own, sizeof own, "%.*s", (int)strcspn(key + 7, "\""), key + 7);
    if (key) looks = 0;
    snprintf(before, sizeof before, "{\"key\":\"ZGxvY2svam9iLzQ1\",\"create_revision\":\"2\",\"value\":\"%s\"}%s",
             value, looks == 0 ? ",{\"key\":\"ZGxvY2svam9iLzQ2\",\"create_revision\":\"3\"}" : "");
    snprintf(shown, sizeof shown,
             "{\"header\":{\"raft_term\":\"%d\",\"revision\":\"%d\"},\"succeeded\":%s,\"responses\":[%s"
             "{\"response_range\":{\"kvs\":[{\"key\":\"%s\",\"create_revision\":\"5\"}]}},"
             "{\"response_range\":{\"kvs\":[%s]}},{\"response_range\":{\"kvs\":[%s]}}]}",
             term, looks == 0 ? 5 : 7, key ? "false" : "true", key ? "{\"response_txn\":{}}," : "", own, before,
             before);
    looks++;
    return shown;
}

/* Otherwise the second release, which that look did not show, would not wake the waiter. */
TEST(a_stream_that_is_ahead_of_a_look_is_replaced) {
    struct dlock_wake wake;
    answer = shows_a_queue;
    link_end(&link);
    closes = true;
    link_to(&link, fake.port, 'a');
    link_listen(&link);
    CLAIM_INIT(mine, "job", 'a', 1);
    mine.claim.mode = DLOCK_PERMIT;
    mine.claim.limit = 1;
    assert_int_equal(queue_up(&link, &mine), DLOCK_EBUSY);
    assert_false(wake_within(&link, &wake, 300)); /* the first of two releases */
    assert_int_equal(atomic_load(&n_streams), 1);
    assert_int_equal(queue_up(&link, &mine), DLOCK_EBUSY);
    wake_within(&link, &wake, 300);
    assert_int_equal(atomic_load(&n_streams), 2);
    for (int i = 0; i < 2; i++) fclose(streams[i]);
    closes = false;
}

TESTS(server_begin, server_end, backend_load, NULL)
