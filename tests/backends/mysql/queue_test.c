/* The queue of mode=rows: hand-overs, waiters that have died, and older clients beside it. */
#include "site.h"

#include <maria.h>

/* An older client's statements, which know no queue. */
#define NOW_US "CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)"
#define OLD_RELEASE "UPDATE dlock_locks SET token = '', until_us = " NOW_US " WHERE name = '%s'"
#define OLD_RENEWAL "UPDATE dlock_locks SET until_us = (" NOW_US " + 10000000) DIV 4 * 4 WHERE name = '%s'"

/* A client has two links: one asks, the other listens. */
struct client {
    struct link link, ear;
};

static void client_new(struct client *client, char letter) {
    link_new(&client->link, NULL, letter);
    link_new(&client->ear, NULL, letter);
    link_listen(&client->ear);
}

static void client_end(struct client *client) {
    link_end(&client->link);
    link_end(&client->ear);
}

#define CLIENT(name, letter)                                 \
    __attribute__((cleanup(client_end))) struct client name; \
    client_new(&name, letter)

/* True if a wake-up came. */
static bool is_woken(struct client *client, int ms) {
    struct dlock_wake wake;
    do {
        if (!wake_within(&client->ear, &wake, ms)) return false;
    } while (wake.kind != DLOCK_WAKE_LOOK);
    return true;
}

static void hold_and_wait(struct link *holder, struct held *held, const char *name, struct client *client,
                          struct held *waiting) {
    held_new(held, holder, name);
    held_new(waiting, &client->link, name);
    assert_int_equal(acquire(holder, held), 0);
    assert_int_equal(queue_up(&client->link, waiting), DLOCK_EBUSY);
    assert_in_range(waiting->claim.retry_ms, 1, 1000);
}

/* A waiter that is woken has the lock after one request, and leaves no row. */
TEST(a_turn_is_one_request) {
    LINK(holder, NULL, 'a');
    CLIENT(client, 'b');
    struct held held, waiting;
    hold_and_wait(&holder, &held, "requests", &client, &waiting);
    for (int i = 0; i < 2; i++) {
        if (i) hold_and_wait(&holder, &held, "requests", &client, &waiting);
        while (is_woken(&client, 20)) continue;
        int before = requests;
        assert_int_equal(release(&holder, &held), 0);
        assert_int_equal(requests - before, 3); /* it learns that others wait, hands over, and wakes */
        assert_true(is_woken(&client, TIMEOUT_MS));
        before = requests;
        assert_int_equal(queue_up(&client.link, &waiting), 0);
        assert_true(waiting.claim.fence > held.claim.fence);
        assert_int_equal(requests - before, 1);
        assert_int_equal(sql_number("SELECT COUNT(*) FROM dlock_claims"), 0);
        assert_int_equal(release(&client.link, &waiting), 0);
    }
}

/* An older client wakes nobody and hands nothing over: the waiter's next question does. */
TEST(older_clients_release_and_renew) {
    LINK(holder, NULL, 'a');
    CLIENT(client, 'b');
    struct held held, waiting;
    for (int i = 0; i < 4; i++) { /* the bits of an older client's times are what they happen to be */
        hold_and_wait(&holder, &held, "older", &client, &waiting);
        while (is_woken(&client, 20)) continue;
        if (i == 3) sql(OLD_RENEWAL, "older"); /* which forgets that others wait */
        if (i == 3) assert_int_equal(release(&holder, &held), 0);
        if (i < 3) sql(OLD_RELEASE, "older");
        assert_int_equal(queue_up(&client.link, &waiting), 0);
        assert_int_equal(renew(&holder, &held), DLOCK_ELOST);
        assert_int_equal(release(&client.link, &waiting), 0);
    }
}

/* A client that died before it could confirm a hand-over is passed, and not one that has confirmed it. */
TEST(the_dead_lose_a_hand_over) {
    LINK(holder, NULL, 'a');
    CLIENT(next, 'c');
    struct held held, first, second;
    for (int confirmed = 0; confirmed < 2; confirmed++) {
        CLIENT(dead, 'b');
        hold_and_wait(&holder, &held, "dead", &dead, &first);
        held_new(&second, &next.link, "dead");
        assert_int_equal(queue_up(&next.link, &second), DLOCK_EBUSY);
        assert_int_equal(release(&holder, &held), 0);
        if (confirmed) assert_int_equal(queue_up(&dead.link, &first), 0);
        link_end(&dead.ear);
        while (sql_number("SELECT IS_USED_LOCK('dlock.bbbbbbbbbbbbbbbbbbbbbbbb') IS NOT NULL")) usleep(1000);
        assert_int_equal(queue_up(&next.link, &second), DLOCK_EBUSY);
        if (confirmed) assert_true(second.claim.retry_ms > 0);
        if (!confirmed) assert_int_equal(second.claim.retry_ms, 0);
        assert_int_equal(queue_up(&next.link, &second), confirmed ? DLOCK_EBUSY : 0);
        assert_int_equal(renew(&dead.link, &first), confirmed ? 0 : DLOCK_ELOST);
        assert_int_equal(release(&dead.link, &first), confirmed ? 0 : DLOCK_ELOST);
        assert_int_equal(queue_up(&next.link, &second), 0);
        assert_int_equal(release(&next.link, &second), 0);
    }
}

/* The server has ended the listener: the waiter is told, and keeps its place. */
TEST(a_lost_listener_is_noticed) {
    LINK(holder, NULL, 'a');
    CLIENT(client, 'b');
    struct held held, waiting;
    struct dlock_wake wake;
    hold_and_wait(&holder, &held, "unheard", &client, &waiting);
    assert_int_equal(queue_up(&client.link, &waiting), DLOCK_EBUSY);
    assert_false(waiting.claim.hints & DLOCK_HINT_UNHEARD);
    sql("KILL CONNECTION %lld", (long long)link_id(&client.ear));
    while (sql_number("SELECT IS_USED_LOCK('dlock.bbbbbbbbbbbbbbbbbbbbbbbb') IS NOT NULL")) usleep(1000);
    assert_int_equal(queue_up(&client.link, &waiting), DLOCK_EBUSY);
    assert_true(waiting.claim.hints & DLOCK_HINT_UNHEARD);
    int rc;
    while ((rc = backend->wake(client.ear.conn, &wake, NULL)) >= 0) usleep(1000);
    assert_int_equal(rc, DLOCK_EUNAVAILABLE);
    assert_int_equal(release(&holder, &held), 0);
    assert_int_equal(queue_up(&client.link, &waiting), 0);
    assert_int_equal(release(&client.link, &waiting), 0);
}

/* Rows of waiters that have died are deleted by those that come later. */
TEST(rows_of_dead_waiters_go) {
    LINK(holder, NULL, 'a');
    CLIENT(client, 'b');
    struct held held, waiting;
    hold_and_wait(&holder, &held, "gone", &client, &waiting);
    sql("INSERT INTO dlock_claims (name, token, since_us, until_us) "
        "VALUES ('other', 'dddddddddddddddddddddddd.1', 1, 1)");
    for (int i = 0; i < 16; i++) {
        assert_int_equal(release(&client.link, &waiting), DLOCK_ELOST);
        held_new(&waiting, &client.link, "gone");
        assert_int_equal(queue_up(&client.link, &waiting), DLOCK_EBUSY);
    }
    assert_int_equal(sql_number("SELECT COUNT(*) FROM dlock_claims"), 1);
    assert_int_equal(release(&client.link, &waiting), DLOCK_ELOST);
    assert_int_equal(release(&holder, &held), 0);
}

TESTS(NULL, NULL, site_begin, site_end)
