/* inspect, list and break. */
#include "pair.h"

#include <stdio.h>
#include <stdlib.h>

struct seen {
    int calls, stop_after;
    char name[256], token[DLOCK_TOKEN_MAX + 1];
    uint64_t fence;
    uint32_t waiters;
    int64_t remaining_ms;
};

static int note(const struct dlock_info *info, void *arg) {
    struct seen *seen = arg;
    seen->calls++;
    snprintf(seen->name, sizeof seen->name, "%s", info->name);
    snprintf(seen->token, sizeof seen->token, "%s", info->token);
    seen->fence = info->fence;
    seen->waiters = info->waiters;
    seen->remaining_ms = info->remaining_ms;
    return seen->calls == seen->stop_after;
}

TEST(inspect_shows_the_holder) {
    struct seen seen = {0};
    struct held holder, waiter;
    assert_int_equal(backend->inspect(one.conn, "inspected", note, &seen, TIMEOUT_MS, NULL), 0);
    assert_int_equal(seen.calls, 0);
    claim_init(&holder, "inspected", 'a', 1);
    claim_init(&waiter, "inspected", 'b', 1);
    assert_int_equal(acquire(&one, &holder), 0);
    assert_int_equal(queue_up(&two, &waiter), DLOCK_EBUSY);
    assert_int_equal(backend->inspect(two.conn, "inspected", note, &seen, TIMEOUT_MS, NULL), 0);
    assert_int_equal(seen.calls, 1);
    assert_string_equal(seen.name, "inspected");
    assert_string_equal(seen.token, holder.token);
    assert_int_equal(seen.fence, holder.claim.fence);
    assert_int_equal(seen.waiters, 1);
    assert_true(seen.remaining_ms == DLOCK_FOREVER);
    assert_int_equal(release(&one, &holder), 0);
    assert_int_equal(release(&two, &waiter), DLOCK_ELOST);
    seen.calls = 0;
    assert_int_equal(backend->inspect(one.conn, "inspected", note, &seen, TIMEOUT_MS, NULL), 0);
    assert_int_equal(seen.calls, 0);
}

/* Others' nodes may hold anything. */
TEST(inspect_of_foreign_holders) {
    char path[512], expected[64];
    static const char *const data[] = {"10.1.2.3", "", "two words", "<b>\x1b[31m", "line\nbreak"};
    for (size_t i = 0; i < sizeof data / sizeof *data; i++) {
        struct seen seen = {0};
        plain_make(BASE "/foreign holder/-lock-", data[i], ZOO_EPHEMERAL_SEQUENTIAL, path, sizeof path);
        snprintf(expected, sizeof expected, "session:0x%llx", (unsigned long long)zoo_client_id(plain())->client_id);
        assert_int_equal(backend->inspect(one.conn, "foreign holder", note, &seen, TIMEOUT_MS, NULL), 0);
        assert_int_equal(seen.calls, 1);
        assert_string_equal(seen.token, i == 0 ? "10.1.2.3" : i == 4 ? "line" : expected);
        assert_string_equal(seen.name, "foreign holder");
        plain_delete(path);
    }
}

TEST(break_hands_over) {
    struct dlock_wake wake;
    struct held holder, waiter;
    assert_int_equal(backend->break_lock(one.conn, "broken", TIMEOUT_MS, NULL), DLOCK_ELOST);
    claim_init(&holder, "broken", 'a', 1);
    claim_init(&waiter, "broken", 'b', 1);
    assert_int_equal(acquire(&one, &holder), 0);
    assert_int_equal(renew(&one, &holder), 0);
    assert_int_equal(queue_up(&two, &waiter), DLOCK_EBUSY);
    assert_int_equal(backend->break_lock(two.conn, "broken", TIMEOUT_MS, NULL), 0);
    assert_true(wake_within(&two, &wake, 5000));
    assert_int_equal(wake.kind, DLOCK_WAKE_LOOK);
    assert_int_equal(queue_up(&two, &waiter), 0);
    assert_int_equal(renew(&one, &holder), DLOCK_ELOST);
    assert_true(waiter.claim.fence > holder.claim.fence);
    assert_int_equal(release(&one, &holder), DLOCK_ELOST);
    assert_int_equal(release(&two, &waiter), 0);
}

/* ---- list -------------------------------------------------------------------------------------------------------- */

/* Walks all pages; returns how many there were. */
static int walk(const char *prefix, struct seen *seen) {
    char cursor[256] = "";
    int pages = 0, more;
    do {
        pages++;
        more = backend->list(two.conn, prefix, cursor, note, seen, TIMEOUT_MS, NULL);
        assert_in_range(more, 0, 1);
    } while (more == 1 && pages < 100);
    return pages;
}

TEST(list_walks_in_pages) {
    enum { MANY = 150 };
    static struct held held[MANY];
    static char names[MANY][32];
    struct seen seen = {0};
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "page-%03d", i);
        claim_init(&held[i], names[i], 'a', i);
        assert_int_equal(acquire(&one, &held[i]), 0);
    }
    assert_int_equal(release(&one, &held[7]), 0); /* its container stays, for a while */
    assert_true(walk("page-", &seen) > 1);
    assert_int_equal(seen.calls, MANY - 1);
    seen.calls = 0;
    walk("page-14", &seen);
    assert_int_equal(seen.calls, 10);
    seen.calls = 0;
    seen.stop_after = 3;
    char cursor[256] = "";
    assert_int_equal(backend->list(two.conn, "page-", cursor, note, &seen, TIMEOUT_MS, NULL), 0);
    assert_int_equal(seen.calls, 3);
    for (int i = 0; i < MANY; i++)
        if (i != 7) assert_int_equal(release(&one, &held[i]), 0);
}

/* Encoded, and too long to be decoded: the data has the name. */
TEST(list_shows_names_as_they_were_given) {
    char longest[256];
    struct held held;
    memset(longest, '/', 255);
    memcpy(longest, "odd", 3);
    longest[255] = '\0';
    const char *names[] = {"odd/\xc3\xa9 50%", "odd.", longest};
    for (size_t i = 0; i < 3; i++) {
        struct seen seen = {0};
        claim_init(&held, names[i], 'a', 1);
        assert_int_equal(acquire(&one, &held), 0);
        walk("odd", &seen);
        assert_int_equal(seen.calls, 1);
        assert_string_equal(seen.name, names[i]);
        assert_string_equal(seen.token, held.token);
        assert_int_equal(release(&one, &held), 0);
    }
}

TEST(list_of_nothing) {
    struct seen seen = {0};
    struct link link;
    struct uri uri;
    char cursor[256] = "";
    uri_session(&uri, shared_port(), "10s");
    uri.parts.path = "/dlock-nobody/was/here";
    assert_int_equal(link_try(&link, &uri.parts, 'c', 0, CONNECTS_MS, NULL), 0);
    assert_int_equal(backend->list(link.conn, "", cursor, note, &seen, TIMEOUT_MS, NULL), 0);
    assert_int_equal(seen.calls, 0);
    link_end(&link);
}

TESTS(pair_begin, pair_end, backend_load, NULL)
