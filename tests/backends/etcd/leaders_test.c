/* A leader that was stopped may end the leases of its term when it continues, however long its successor kept them
 * alive (backends/etcd/lease.c). So keys move to another lease when the leader changes, and these tests revoke the
 * earlier one. Each restart of a single member begins another term. */
#include "support/held.h"
#include "support/loopback.h"
#include "support/pair.h"
#include "support/relay.h"
#include "support/test.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define BASE "leaders"

static char folder[64];
static int port;

/* ---- the server -------------------------------------------------------------------------------------------------- */

static void shell(char *out, size_t size, const char *command) {
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t n = fread(out, 1, size - 1, pipe);
    out[n] = '\0';
    if (pclose(pipe) != 0) fail_msg("%s: %s", command, out);
}

static void script(const char *verb, char out[512]) {
    char command[512];
    snprintf(command, sizeof command, "'%s' %s '%s'", DLOCK_ETCD_SCRIPT, verb, folder);
    shell(out, 512, command);
}

static int server_begin(void **state) {
    char out[512];
    const char *above = getenv("DLOCK_TEST_DIR");
    backend_load(state);
    snprintf(folder, sizeof folder, "%.40s/leaders.XXXXXX", above ? above : "/tmp");
    assert_non_null(mkdtemp(folder));
    script("start", out);
    assert_int_equal(sscanf(out, "DLOCK_TEST_ETCD=127.0.0.1:%d", &port), 1);
    return 0;
}

static int server_end(void **state) {
    char out[512], command[128];
    (void)state;
    script("stop", out);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static void change_leader(void) {
    char out[512], command[128];
    snprintf(command, sizeof command, "kill -KILL $(cat '%s/etcd.pid')", folder);
    shell(out, sizeof out, command);
    script("again", out);
    script("await", out);
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static void ctl(char *out, size_t size, const char *words) {
    char command[256];
    snprintf(command, sizeof command, "ETCDCTL_API=3 etcdctl --endpoints http://127.0.0.1:%d %s", port, words);
    shell(out, size, command);
}

struct key {
    uint64_t named, lease, revision; /* of the first key of a name; 0: there is none */
};

static struct key first_key(const char *name) {
    char out[4096], words[128];
    struct key key = {0, 0, 0};
    snprintf(words, sizeof words, "get --prefix --sort-by=CREATE %s/%s/ -w fields", BASE, name);
    ctl(out, sizeof out, words);
    const char *at = strstr(out, "\"Key\" : \""), *revision = strstr(out, "\"CreateRevision\" : "),
               *lease = strstr(out, "\"Lease\" : ");
    if (!at || !revision || !lease) return key;
    key.named = strtoull(at + strlen("\"Key\" : \"" BASE "/") + strlen(name) + 1, NULL, 16);
    key.revision = strtoull(revision + strlen("\"CreateRevision\" : "), NULL, 10);
    key.lease = strtoull(lease + strlen("\"Lease\" : "), NULL, 10);
    return key;
}

static void revoke_lease(uint64_t lease) {
    char out[256], words[64];
    snprintf(words, sizeof words, "lease revoke %" PRIx64, lease);
    ctl(out, sizeof out, words);
}

/* ---- the tests --------------------------------------------------------------------------------------------------- */

static void link_new(struct link *link, int to, char letter) {
    struct dlock_error err = {0};
    struct uri uri;
    uri_init(&uri, to);
    uri.param[0] = (struct dlock_param){"session", "60s"};
    uri.parts.path = "/" BASE;
    uri.parts.n_params = 1;
    if (link_try(link, &uri.parts, letter, 0, CONNECTS_MS, &err) != 0) fail_msg("connect: %s", err.message);
    link_listen(link);
}

static int pair_begin(void **state) {
    (void)state;
    link_new(&one, port, 'a');
    link_new(&two, port, 'b');
    return 0;
}

TEST(renewal_moves_the_key) {
    CLAIM_INIT(mine, "renewed", 'a', 1);
    CLAIM_INIT(other, "renewed", 'b', 1);
    assert_int_equal(acquire(&one, &mine), 0);
    for (int i = 0; i < 2; i++) {
        struct key before = first_key("renewed");
        change_leader();
        assert_int_equal(renew(&one, &mine), 0);
        revoke_lease(before.lease);
        struct key after = first_key("renewed");
        assert_int_equal(after.revision, before.revision);
        assert_int_not_equal(after.lease, before.lease);
    }
    assert_int_equal(acquire(&two, &other), DLOCK_EBUSY);
    assert_int_equal(renew(&one, &mine), 0);
    assert_int_equal(release(&one, &mine), 0);
    assert_int_equal(acquire(&two, &other), 0);
    assert_int_equal(release(&two, &other), 0);
}

TEST(renewal_of_a_key_that_is_gone_is_a_loss) {
    CLAIM_INIT(mine, "gone", 'a', 1);
    assert_int_equal(acquire(&one, &mine), 0);
    struct key key = first_key("gone");
    change_leader();
    revoke_lease(key.lease);
    assert_int_equal(renew(&one, &mine), DLOCK_ELOST);
    assert_int_equal(release(&one, &mine), DLOCK_ELOST);
}

TEST(downgrade_moves_the_key) {
    CLAIM_INIT(mine, "shared", 'a', 1);
    CLAIM_INIT(other, "shared", 'b', 1);
    other.claim.mode = DLOCK_SHARED;
    assert_int_equal(acquire(&one, &mine), 0);
    struct key key = first_key("shared");
    change_leader();
    mine.claim.mode = DLOCK_SHARED;
    assert_int_equal(renew(&one, &mine), 0);
    revoke_lease(key.lease);
    assert_int_equal(acquire(&two, &other), 0);
    assert_int_equal(renew(&one, &mine), 0);
    assert_int_equal(release(&one, &mine), 0);
    assert_int_equal(release(&two, &other), 0);
}

TEST(waiter_moves_its_key_and_keeps_its_place) {
    CLAIM_INIT(holder, "queue", 'a', 1);
    CLAIM_INIT(first, "queue", 'b', 1);
    CLAIM_INIT(second, "queue", 'a', 2);
    assert_int_equal(queue_up(&one, &holder), 0);
    assert_int_equal(queue_up(&two, &first), DLOCK_EBUSY);
    assert_int_equal(queue_up(&one, &second), DLOCK_EBUSY);
    struct key key = first_key("queue");
    change_leader();
    assert_int_equal(queue_up(&two, &first), DLOCK_EBUSY);
    assert_int_equal(queue_up(&one, &second), DLOCK_EBUSY);
    assert_int_equal(renew(&one, &holder), 0);
    revoke_lease(key.lease);
    assert_int_equal(release(&one, &holder), 0);
    key = first_key("queue");
    revoke_lease(key.named);
    assert_int_equal(queue_up(&one, &second), DLOCK_EBUSY);
    assert_int_equal(queue_up(&two, &first), 0);
    assert_int_equal(first.claim.fence, key.revision);
    assert_int_equal(release(&two, &first), 0);
    assert_int_equal(queue_up(&one, &second), 0);
    assert_int_equal(release(&one, &second), 0);
}

/* The connection has its lease from before. */
TEST(acquire_moves_its_key) {
    CLAIM_INIT(mine, "acquired", 'a', 1);
    change_leader();
    assert_int_equal(acquire(&one, &mine), 0);
    struct key key = first_key("acquired");
    assert_int_not_equal(key.lease, key.named);
    revoke_lease(key.named);
    assert_int_equal(renew(&one, &mine), 0);
    assert_int_equal(release(&one, &mine), 0);
}

/* The member has executed it, and its client has not heard of that. */
TEST(acquire_without_an_answer_begins_anew) {
    SCOPED_RELAY *relay = relay_new(port);
    struct dlock_error err = {0};
    LINK(far, relay_port(relay), 'c');
    CLAIM_INIT(mine, "unheard", 'c', 1);
    CLAIM_INIT(other, "unheard", 'b', 1);
    relay_hold(relay, RELAY_ANSWERS, true);
    held_run(backend->acquire, &far, &mine, 0, 500, &err);
    assert_int_equal(mine.claim.result, DLOCK_EUNAVAILABLE);
    relay_hold(relay, RELAY_ANSWERS, false);
    assert_int_not_equal(first_key("unheard").revision, 0);
    change_leader();
    assert_int_equal(acquire(&far, &mine), 0);
    assert_int_equal(first_key("unheard").revision, mine.claim.fence);
    assert_int_equal(acquire(&two, &other), DLOCK_EBUSY);
    assert_int_equal(release(&far, &mine), 0);
    assert_int_equal(acquire(&two, &other), 0);
    assert_int_equal(release(&two, &other), 0);
    assert_int_equal(first_key("unheard").revision, 0);
}

/* A renewal has moved the key with its value, unanswered; the answer of a downgrade must also be about the value. */
TEST(downgrade_follows_a_move_without_an_answer) {
    char words[200], out[256];
    CLAIM_INIT(mine, "moved", 'a', 1);
    CLAIM_INIT(probe, "probe", 'a', 2);
    CLAIM_INIT(other, "moved", 'b', 1);
    other.claim.mode = DLOCK_SHARED;
    assert_int_equal(acquire(&one, &mine), 0);
    struct key key = first_key("moved");
    change_leader();
    assert_int_equal(acquire(&one, &probe), 0);
    snprintf(words, sizeof words, "put --lease=%" PRIx64 " %s/moved/%" PRIx64 " %s", first_key("probe").lease, BASE,
             key.named, mine.token);
    ctl(out, sizeof out, words);
    mine.claim.mode = DLOCK_SHARED;
    assert_int_equal(renew(&one, &mine), 0);
    assert_int_equal(acquire(&two, &other), 0);
    assert_int_equal(release(&one, &mine), 0);
    assert_int_equal(release(&one, &probe), 0);
    assert_int_equal(release(&two, &other), 0);
}

/* The lease ends between two requests of the acquire. */
TEST(downgrade_follows_an_acquire_in_two_leases) {
    CLAIM_INIT(first, "ended", 'a', 1);
    CLAIM_INIT(mine, "ended", 'a', 2);
    CLAIM_INIT(other, "ended", 'b', 1);
    other.claim.mode = DLOCK_SHARED;
    assert_int_equal(acquire(&one, &first), 0);
    revoke_lease(first_key("ended").lease);
    assert_int_equal(acquire(&one, &mine), 0);
    mine.claim.mode = DLOCK_SHARED;
    assert_int_equal(renew(&one, &mine), 0);
    assert_int_equal(acquire(&two, &other), 0);
    assert_int_equal(release(&one, &mine), 0);
    assert_int_equal(release(&two, &other), 0);
    assert_int_equal(release(&one, &first), DLOCK_ELOST);
}

/* Revokes all leases but *arg, which the claim's key is in, before the first transaction passes. */
static int revoke_others(void *arg, size_t pair, bool first, const char *bytes, size_t size) {
    static const char path[] = "/v3/kv/txn";
    uint64_t *kept = arg;
    char out[4096], *at = out;
    (void)pair;
    (void)first;
    if (!*kept || !memmem(bytes, size, path, sizeof path - 1)) return RELAY_PASS;
    ctl(out, sizeof out, "lease list");
    while ((at = strchr(at, '\n'))) {
        uint64_t lease = strtoull(++at, NULL, 16);
        if (lease && lease != *kept) revoke_lease(lease);
    }
    *kept = 0;
    return RELAY_PASS;
}

TEST(renewal_takes_another_lease_if_one_ends_meanwhile) {
    SCOPED_RELAY *relay = relay_new(port);
    LINK(far, relay_port(relay), 'c');
    CLAIM_INIT(mine, "twice", 'c', 1);
    assert_int_equal(acquire(&far, &mine), 0);
    uint64_t kept = first_key("twice").lease;
    change_leader();
    relay_watch(relay, revoke_others, &kept);
    assert_int_equal(renew(&far, &mine), 0);
    assert_int_equal(kept, 0);
    assert_int_equal(renew(&far, &mine), 0);
    assert_int_equal(release(&far, &mine), 0);
}

/* An admin has deleted the waiter's key, and a late copy of its request has put it again, in the former lease. */
TEST(key_that_is_there_anew_is_moved_too) {
    char words[200], out[256];
    CLAIM_INIT(mine, "anew", 'a', 1);
    CLAIM_INIT(probe, "probe", 'a', 2);
    assert_int_equal(queue_up(&one, &mine), 0);
    struct key key = first_key("anew");
    snprintf(words, sizeof words, "del %s/anew/%" PRIx64, BASE, key.named);
    ctl(out, sizeof out, words);
    snprintf(words, sizeof words, "put --lease=%" PRIx64 " %s/anew/%" PRIx64 " %s", key.lease, BASE, key.named,
             mine.token);
    ctl(out, sizeof out, words);
    change_leader();
    assert_int_equal(acquire(&one, &probe), 0); /* the connection has another lease */
    assert_int_equal(queue_up(&one, &mine), 0);
    assert_int_not_equal(first_key("anew").lease, key.lease);
    assert_int_equal(mine.claim.fence, first_key("anew").revision);
    assert_int_equal(release(&one, &probe), 0);
    assert_int_equal(release(&one, &mine), 0);
}

static int hang_up_on_grants(void *arg, size_t pair, bool first, const char *bytes, size_t size) {
    static const char path[] = "/v3/lease/grant";
    (void)arg;
    (void)pair;
    (void)first;
    return memmem(bytes, size, path, sizeof path - 1) ? RELAY_END_IT : RELAY_PASS;
}

static int pass(void *arg, size_t pair, bool first, const char *bytes, size_t size) {
    (void)arg;
    (void)pair;
    (void)first;
    (void)bytes;
    (void)size;
    return RELAY_PASS;
}

/* Two claims without a lease, and so without keys, are released together with one that has a key. */
TEST(release_together_with_claims_that_were_not_sent) {
    SCOPED_RELAY *relay = relay_new(port);
    struct held sent, ended, unsent[2];
    struct dlock_claim *all[3] = {&sent.claim, &unsent[0].claim, &unsent[1].claim};
    struct dlock_error err = {0};
    LINK(far, relay_port(relay), 'c');
    claim_init(&ended, "together", 'c', 1);
    claim_init(&sent, "together", 'c', 2);
    claim_init(&unsent[0], "together", 'c', 3);
    claim_init(&unsent[1], "together", 'c', 4);
    assert_int_equal(acquire(&far, &ended), 0);
    revoke_lease(first_key("together").lease);
    relay_watch(relay, hang_up_on_grants, NULL);
    held_run(backend->acquire, &far, &sent, 0, TIMEOUT_MS, &err);
    for (int i = 0; i < 2; i++) {
        held_run(backend->acquire, &far, &unsent[i], 0, TIMEOUT_MS, &err);
        assert_int_equal(unsent[i].claim.result, DLOCK_EUNAVAILABLE);
    }
    relay_watch(relay, pass, NULL);
    assert_int_equal(acquire(&far, &sent), 0);
    if (backend->release(far.conn, all, 3, TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
    if (sent.claim.result != 0) fail_msg("%d: %s", sent.claim.result, err.message);
    assert_int_equal(first_key("together").revision, 0);
}

/* A client whose connection broke has repeated its request with the same token, twice, and died: each release finds
 * another key. */
TEST(release_of_a_dead_client_with_several_keys) {
    static const char *const keys[] = {"1a/2", "1b/4", "1c"};
    struct dlock_error err = {0};
    char words[200], out[256];
    CLAIM_INIT(dead, "probe", 'c', 1);
    assert_int_equal(acquire(&one, &dead), 0);
    uint64_t lease = first_key("probe").lease;
    claim_init(&dead, "dead", 'c', 2);
    for (size_t i = 0; i < 3; i++) {
        snprintf(words, sizeof words, "put --lease=%" PRIx64 " %s/dead/%s %s", lease, BASE, keys[i], dead.token);
        ctl(out, sizeof out, words);
    }
    for (size_t i = 0; i < 3; i++) held_run(backend->release, &two, &dead, DLOCK_CLAIM_DEAD, TIMEOUT_MS, &err);
    assert_int_equal(first_key("dead").revision, 0);
    revoke_lease(lease);
}

static char late[4096]; /* a request that deletes, which its member did not get */
static atomic_size_t late_size;

static int take_deletion(void *arg, size_t pair, bool first, const char *bytes, size_t size) {
    static const char path[] = "POST /v3/kv/deleterange";
    (void)arg, (void)pair, (void)first;
    if (!memmem(bytes, size, path, sizeof path - 1) || size >= sizeof late || atomic_load(&late_size))
        return RELAY_PASS;
    memcpy(late, bytes, size);
    atomic_store(&late_size, size);
    return RELAY_MUTE;
}

static void deletion_arrives(void) {
    char answer[4096];
    int fd = loopback_connect(port);
    size_t size = atomic_load(&late_size);
    assert_int_equal(send(fd, late, size, MSG_NOSIGNAL), size);
    assert_true(recv(fd, answer, sizeof answer, 0) > 0);
    close(fd);
}

/* The first member is stopped, and executes it when it continues. */
TEST(release_that_arrives_late_spares_the_next_grant) {
    struct relay *relay = relay_new(port);
    struct dlock_error err = {0};
    struct link far;
    struct uri uri;
    uri_init(&uri, relay_port(relay));
    uri.host[1].port = port;
    uri.parts.n_hosts = 2;
    uri.parts.path = "/" BASE;
    if (link_try(&far, &uri.parts, 'c', 0, CONNECTS_MS, &err) != 0) fail_msg("connect: %s", err.message);
    CLAIM_INIT(mine, "late", 'c', 1);
    CLAIM_INIT(next, "late", 'c', 2);
    assert_int_equal(acquire(&far, &mine), 0);
    relay_watch(relay, take_deletion, NULL);
    held_run(backend->release, &far, &mine, 0, 1000, &err);
    assert_int_equal(mine.claim.result, 0);
    assert_true(atomic_load(&late_size) > 0);
    assert_int_equal(acquire(&far, &next), 0);
    deletion_arrives();
    assert_int_equal(renew(&far, &next), 0);
    assert_int_equal(release(&far, &next), 0);
    link_end(&far);
    relay_end(relay);
}

TESTS(pair_begin, pair_end, server_begin, server_end)
