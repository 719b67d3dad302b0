/* A server whose answers make no sense, or come from one leader after another. */
#include "support/fake.h"
#include "support/held.h"
#include "support/test.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

static struct fake fake;
static atomic_int asked, leases, changes; /* changes: how many grants are still answered in a later term */
static atomic_bool stale;                 /* another member answers which term it is, and knows of no later one */
static struct link link;

enum { FIRST_LEASE = 70 };

/* Returns the answer to a transaction; "": it is refused, since the lease has ended. */
typedef const char *answer_fn(const char *body);
static answer_fn *answer;

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

static bool converse(struct fake *me, int fd, int i, const char *request, size_t size) {
    static const char gone[] = "{\"error\":\"etcdserver: requested lease not found\",\"code\":5}";
    static int term = 2;
    char body[4096], text[8192], lease[128];
    bool status = memmem(request, size, "/v3/maintenance/status", 22);
    const char *at = memmem(request, size, "\r\n\r\n", 4), *says = lease;
    (void)me;
    (void)i;
    atomic_fetch_add(&asked, 1);
    snprintf(body, sizeof body, "%.*s", (int)(request + size - at - 4), at + 4);
    if (memmem(request, size, "/v3/kv/txn", 10)) says = answer(body);
    if (memmem(request, size, "/v3/lease/grant", 15)) {
        atomic_fetch_add(&leases, 1);
        if (atomic_load(&changes) > 0 && atomic_fetch_sub(&changes, 1)) term++;
    }
    snprintf(lease, sizeof lease, "{\"header\":{\"raft_term\":\"%d\"},\"ID\":\"%d\",\"TTL\":\"60\"}",
             status && atomic_load(&stale) ? 1 : term, FIRST_LEASE + atomic_load(&leases));
    snprintf(text, sizeof text, "HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n%s", *says ? "200 OK" : "404 Not Found",
             strlen(*says ? says : gone), *says ? says : gone);
    send(fd, text, strlen(text), MSG_NOSIGNAL);
    return true;
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
    if (strstr(body, "delete_range")) return "";
    return "{\"header\":{\"raft_term\":\"2\",\"revision\":\"5\"},\"succeeded\":true}";
}

static void release_is_told_that_the_lease_has_ended(void **state) {
    struct dlock_error err = {0};
    struct held mine;
    (void)state;
    answer = refuses_deletes;
    claim_init(&mine, "refused", 'a', 1);
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

/* The former leader may know the lease, and may end it. */
static void a_lease_that_was_granted_while_the_leader_changed_is_not_used(void **state) {
    struct held mine;
    (void)state;
    answer = grants;
    link_end(&link);
    atomic_store(&changes, 1);
    int before = atomic_load(&leases);
    link_to(&link, fake.port, 'a');
    assert_int_equal(atomic_load(&leases) - before, 2);
    claim_init(&mine, "changed", 'a', 1);
    assert_int_equal(acquire(&link, &mine), 0);
}

/* Returns how many leases were granted in vain until the client gave up. */
static int leases_in_vain(void) {
    struct dlock_error err = {0};
    struct uri uri;
    int before = atomic_load(&leases);
    uri_init(&uri, fake.port);
    assert_int_equal(link_try(&link, &uri.parts, 'a', 0, 1000, &err), DLOCK_EUNAVAILABLE);
    return atomic_load(&leases) - before;
}

static void a_leader_that_always_changes(void **state) {
    (void)state;
    link_end(&link);
    atomic_store(&changes, INT_MAX);
    assert_in_range(leases_in_vain(), 2, 150); /* each costs the members a write */
    atomic_store(&changes, 0);
}

static void no_lease_is_granted_while_a_member_does_not_know_the_term(void **state) {
    (void)state;
    link_end(&link);
    atomic_store(&stale, true);
    assert_int_equal(leases_in_vain(), 1);
    atomic_store(&stale, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(release_is_told_that_the_lease_has_ended, server_begin, server_end),
        cmocka_unit_test_setup_teardown(a_lease_that_was_granted_while_the_leader_changed_is_not_used, server_begin,
                                        server_end),
        cmocka_unit_test_setup_teardown(a_leader_that_always_changes, server_begin, server_end),
        cmocka_unit_test_setup_teardown(no_lease_is_granted_while_a_member_does_not_know_the_term, server_begin,
                                        server_end),
    };
    return cmocka_run_group_tests_name("etcd hostile", tests, backend_load, NULL);
}
