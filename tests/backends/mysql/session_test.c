/* mode=session: requests, fences from both sources, names, and a session that is ended from outside. */
#include "site.h"
#include "support/clock.h"

#include <maria.h>

#include <poll.h>
#include <stdio.h>
#include <unistd.h>

static int begin(void **state) {
    int rc = site_begin(state);
    backend = &maria_session;
    return rc;
}

TEST(a_cycle_is_two_requests) {
    check_cycles("session", "another");
}

/* The clock is past whatever a crash of the server may lose of a sequence. */
TEST(fences_begin_at_the_clock) {
    struct link link;
    struct held held;
    link_new(&link, "session", 'a');
    int64_t now = sql_number("SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)");
    link_end(&link);
    link_new(&link, "session", 'a');
    held_new(&held, &link, "clock");
    assert_int_equal(acquire(&link, &held), 0);
    assert_true((int64_t)held.claim.fence > now);
    link_end(&link);
}

/* MySQL has no sequences. */
TEST(fences_from_a_table) {
    struct link a, b;
    struct held mine, others;
    uint64_t fence = 0;
    link_new(&a, "session", 'a');
    link_new(&b, "session", 'b');
    ((struct maria *)a.conn)->has_sequence = ((struct maria *)b.conn)->has_sequence = false;
    for (int i = 0; i < 5; i++) {
        struct link *one = i % 2 ? &a : &b, *other = i % 2 ? &b : &a;
        held_new(&mine, one, "table");
        held_new(&others, other, "table");
        assert_int_equal(acquire(one, &mine), 0);
        assert_true(mine.claim.fence > fence);
        fence = mine.claim.fence;
        int before = requests;
        assert_int_equal(acquire(other, &others), DLOCK_EBUSY);
        assert_int_equal(requests - before, 1);
        assert_int_equal(release(one, &mine), 0);
        sql("UPDATE dlock_fences SET fence = fence + 1000000000"); /* as if the clock had been set back since */
        fence += 1000000000;
    }
    link_end(&a);
    link_end(&b);
}

/* The server's own names are short, and know no case. */
TEST(names_are_told_apart) {
    struct link links[4];
    struct held held[4];
    char long_a[256], long_b[256];
    memset(long_a, 'x', 255), memset(long_b, 'x', 255);
    long_a[255] = long_b[255] = '\0';
    long_b[254] = 'y';
    const char *const names[] = {"name", "Name", long_a, long_b};
    for (int i = 0; i < 4; i++) {
        link_new(&links[i], "session", (char)('a' + i));
        held_new(&held[i], &links[i], names[i]);
        assert_int_equal(acquire(&links[i], &held[i]), 0);
        assert_int_equal(renew(&links[i], &held[i]), 0);
    }
    for (int i = 0; i < 4; i++) link_end(&links[i]);
}

/* A session that waits for one lock after another keeps their keys apart. */
TEST(a_wait_is_for_its_own_name) {
    struct link a, b;
    struct held one, two, others;
    struct dlock_wake wake;
    link_new(&a, "session", 'a');
    link_new(&b, "session", 'b');
    held_new(&one, &a, "first");
    held_new(&two, &a, "second");
    held_new(&others, &b, "second");
    link_listen(&a);
    assert_int_equal(acquire(&a, &one), 0);
    assert_int_equal(release(&a, &one), 0);
    assert_int_equal(acquire(&b, &others), 0);
    assert_int_equal(queue_up(&a, &two), DLOCK_EBUSY);
    assert_true(two.claim.retry_ms == DLOCK_FOREVER);
    assert_int_equal(release(&b, &others), 0);
    assert_true(wake_within(&a, &wake, TIMEOUT_MS));
    assert_int_equal(wake.kind, DLOCK_WAKE_GRANTED);
    assert_int_equal(acquire(&a, &two), 0);
    assert_int_equal(release(&a, &two), 0);
    held_new(&one, &a, "first");
    held_new(&others, &b, "second");
    assert_int_equal(acquire(&b, &others), 0);
    assert_int_equal(acquire(&a, &one), 0);
    link_end(&a);
    link_end(&b);
}

/* A request that waits for a lock locks no table: backups, for one, would wait for it. */
TEST(a_wait_holds_up_no_backup) {
    struct link a, b;
    struct held mine, others;
    link_new(&a, "session", 'a');
    link_new(&b, "session", 'b');
    held_new(&mine, &a, "backup");
    held_new(&others, &b, "backup");
    link_listen(&a);
    assert_int_equal(acquire(&b, &others), 0);
    assert_int_equal(queue_up(&a, &mine), DLOCK_EBUSY);
    assert_true(mine.claim.retry_ms == DLOCK_FOREVER);
    sql("SET SESSION lock_wait_timeout = 5");
    sql("FLUSH TABLES WITH READ LOCK");
    sql("UNLOCK TABLES");
    link_end(&a);
    link_end(&b);
}

/* User locks belong to the whole server, and names to their database. */
TEST(databases_are_told_apart) {
    struct link link;
    struct held held;
    link_new(&link, "session", 'a');
    held_new(&held, &link, "shared");
    assert_int_equal(acquire(&link, &held), 0);
    assert_int_equal(sql_number("SELECT IS_USED_LOCK(SHA2(CONCAT(CAST(DATABASE() AS BINARY), x'00', 'shared'), 256))"),
                     link_id(&link));
    assert_int_equal(release(&link, &held), 0);
    link_end(&link);
}

TEST(a_session_that_ends_gives_up) {
    struct link a, b;
    struct held mine, others;
    struct dlock_error err;
    for (int i = 0; i < 3; i++) {
        link_new(&a, "session", 'a');
        link_new(&b, "session", 'b');
        held_new(&mine, &a, "killed");
        held_new(&others, &b, "killed");
        if (i == 2) mine.claim.lease_ms = 1000; /* which it does not renew */
        assert_int_equal(acquire(&a, &mine), 0);
        assert_int_equal(acquire(&b, &others), DLOCK_EBUSY);
        if (i == 0)
            assert_int_equal(backend->break_lock(b.conn, "killed", TIMEOUT_MS, &err), 0);
        else if (i == 1)
            sql("KILL CONNECTION %lld", (long long)link_id(&a));
        for (int64_t until = now_ms() + TIMEOUT_MS; acquire(&b, &others) == DLOCK_EBUSY && now_ms() < until;)
            usleep(1000);
        assert_int_equal(others.claim.result, 0);
        assert_true(others.claim.fence > mine.claim.fence);
        assert_int_equal(held_run(backend->renew, &a, &mine, 0, TIMEOUT_MS, &err), DLOCK_EUNAVAILABLE);
        assert_int_equal(renew(&b, &others), 0);
        assert_int_equal(release(&b, &others), 0);
        assert_int_equal(backend->break_lock(b.conn, "killed", TIMEOUT_MS, &err), DLOCK_ELOST);
        link_end(&a);
        link_end(&b);
    }
}

static struct link owner;
static struct held left, next;

static void go_on_with_another(const char *text, size_t length) {
    if (!memmem(text, length, "KILL", 4)) return;
    before_request = NULL;
    assert_int_equal(release(&owner, &left), 0);
    assert_int_equal(acquire(&owner, &next), 0);
}

/* A break ends the grant of its name, and not that of another name which the same session holds by then. */
TEST(a_session_that_went_on_is_not_broken) {
    struct link b;
    struct dlock_error err;
    link_new(&owner, "session", 'a');
    link_new(&b, "session", 'b');
    held_new(&left, &owner, "left");
    held_new(&next, &owner, "next");
    assert_int_equal(acquire(&owner, &left), 0);
    before_request = go_on_with_another;
    assert_int_equal(backend->break_lock(b.conn, "left", TIMEOUT_MS, &err), DLOCK_ELOST);
    assert_null(before_request);
    assert_int_equal(renew(&owner, &next), 0);
    assert_int_equal(release(&owner, &next), 0);
    link_end(&owner);
    link_end(&b);
}

/* Long before the next renewal: the server says something, or closes the connection, and the backend knows that that is
 * the end. Until then nothing comes, not even the answers to requests. */
TEST(the_end_of_a_session_is_heard_of) {
    struct link link;
    struct held held;
    struct dlock_wake wake;
    struct dlock_error err;
    struct pollfd end = {.events = POLLIN};
    link_new(&link, "session", 'a');
    assert_int_equal(backend->listen(link.conn, &end.fd, TIMEOUT_MS, &err), 0);
    held_new(&held, &link, "heard of");
    assert_int_equal(acquire(&link, &held), 0);
    assert_int_equal(renew(&link, &held), 0);
    assert_int_equal(poll(&end, 1, 0), 0);
    assert_int_equal(backend->wake(link.conn, &wake, &err), 0);
    sql("KILL CONNECTION %lld", (long long)link_id(&link));
    assert_int_equal(poll(&end, 1, TIMEOUT_MS), 1);
    assert_int_equal(backend->wake(link.conn, &wake, &err), DLOCK_EUNAVAILABLE);
    assert_non_null(strstr(err.message, "ended this session"));
    link_end(&link);
}

/* A proof whose answer is late comes over the same connection, and is no end. */
TEST(a_late_answer_is_no_end) {
    struct link link;
    struct held held;
    struct dlock_wake wake;
    struct dlock_error err;
    struct pollfd answer = {.events = POLLIN};
    link_new(&link, "session", 'a');
    held_new(&held, &link, "late");
    assert_int_equal(acquire(&link, &held), 0);
    struct dlock_claim *claim = &held.claim;
    while (!((struct maria *)link.conn)->session.owed)
        assert_int_equal(backend->renew(link.conn, &claim, 1, 0, &err), 0);
    assert_int_equal(held.claim.result, DLOCK_EUNAVAILABLE);
    assert_int_equal(backend->listen(link.conn, &answer.fd, TIMEOUT_MS, &err), 0);
    assert_int_equal(poll(&answer, 1, TIMEOUT_MS), 1);
    while (poll(&answer, 1, 0) == 1) assert_int_equal(backend->wake(link.conn, &wake, &err), 0);
    assert_false(((struct maria *)link.conn)->session.owed);
    assert_int_equal(renew(&link, &held), 0);
    assert_int_equal(release(&link, &held), 0);
    link_end(&link);
}

static void copy(const char *from, const char *to) {
    char bytes[4096], directory[256], path[512];
    sql_text(directory, sizeof directory, "SELECT CONCAT(@@datadir, DATABASE())");
    snprintf(path, sizeof path, "%s/%s", directory, from);
    FILE *file = fopen(path, "re");
    if (!file) fail_msg("%s cannot be read", path);
    size_t length = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    assert_in_range(length, 1, sizeof bytes - 1);
    snprintf(path, sizeof path, "%s/%s", directory, to);
    file = fopen(path, "r+e"); /* the server's, and stays so */
    if (!file) fail_msg("%s cannot be written", path);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

/* As a server that was killed can leave it. By no statement does one become so: a table without rows gets the
 * definition of a sequence. */
static void empty_the_sequence(void) {
    sql("CREATE OR REPLACE SEQUENCE model ENGINE = InnoDB");
    sql("DROP SEQUENCE IF EXISTS dlock_fence_sequence");
    sql("CREATE TABLE dlock_fence_sequence (next_not_cached_value BIGINT NOT NULL, minimum_value BIGINT NOT NULL, "
        "maximum_value BIGINT NOT NULL, start_value BIGINT NOT NULL, increment BIGINT NOT NULL, cache_size BIGINT "
        "UNSIGNED NOT NULL, cycle_option TINYINT UNSIGNED NOT NULL, cycle_count BIGINT NOT NULL) ENGINE = InnoDB");
    sql("FLUSH TABLES");
    copy("model.frm", "dlock_fence_sequence.frm");
    sql("FLUSH TABLES");
}

/* The first client replaces it, and fences continue, also on connections from before. */
TEST(a_sequence_without_its_row) {
    struct link old, new;
    struct held first, second, third;
    link_new(&old, "session", 'a');
    held_new(&first, &old, "row");
    assert_int_equal(acquire(&old, &first), 0);
    assert_int_equal(release(&old, &first), 0);
    empty_the_sequence();
    link_new(&new, "session", 'b');
    held_new(&second, &new, "row");
    assert_int_equal(acquire(&new, &second), 0);
    assert_true(second.claim.fence > first.claim.fence);
    held_new(&third, &old, "row");
    assert_int_equal(acquire(&old, &third), DLOCK_EBUSY);
    assert_int_equal(release(&new, &second), 0);
    assert_int_equal(acquire(&old, &third), 0);
    assert_true(third.claim.fence > second.claim.fence);
    assert_int_equal(release(&old, &third), 0);
    empty_the_sequence();
    held_new(&second, &old, "row");
    assert_int_equal(acquire(&old, &second), 0);
    assert_true(second.claim.fence > third.claim.fence);
    assert_int_equal(sql_number("SELECT IS_FREE_LOCK('dlock_fence_sequence')"), 1);
    link_end(&old);
    link_end(&new);
}

/* A lock that was released elsewhere shows at the renewal: here by the session itself, without the backend. */
TEST(a_renewal_is_a_proof) {
    struct link link;
    struct held held;
    link_new(&link, "session", 'a');
    held_new(&held, &link, "proof");
    assert_int_equal(acquire(&link, &held), 0);
    struct maria *maria = link.conn;
    maria_begin(maria);
    maria_say(maria, "DO RELEASE_ALL_LOCKS()");
    assert_int_equal(maria_ask(maria, dlock_deadline_us(TIMEOUT_MS), NULL), 0);
    assert_int_equal(renew(&link, &held), DLOCK_ELOST);
    link_end(&link);
}

TESTS(NULL, NULL, begin, site_end)
