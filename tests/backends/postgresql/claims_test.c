/* Acquire, renew, release: their promises to the core. */
#include "site.h"

/* What the contract suite also tests, here with the functions that this program has just made; and rows and answers. */
TEST(grants_and_releases) {
    LINK(link, 'a');
    LINK(other, 'b');
    HELD(held, &link, "job");
    HELD(theirs, &other, "job");
    int64_t before_us = sql_number("SELECT extract(epoch FROM clock_timestamp()) * 1000000");
    assert_int_equal(acquire(&link, &held), 0);
    assert_true((int64_t)held.claim.fence >= before_us && held.claim.fence < UINT64_C(1) << 55);
    assert_true(held.claim.server_us >= before_us);
    assert_int_equal(held.claim.kept_ms, LEASE_MS);
    assert_string_equal(sql_text("SELECT token FROM {}.locks WHERE name = 'job'"), held.token);
    assert_int_equal(acquire(&other, &theirs), DLOCK_EBUSY);
    assert_int_equal(theirs.claim.retry_ms, -1); /* not queued: the core polls */
    assert_int_equal(renew(&other, &theirs), DLOCK_ELOST);
    assert_int_equal(release(&other, &theirs), DLOCK_ELOST);
    assert_int_equal(renew(&link, &held), 0);
    assert_true(held.claim.server_us > before_us);
    assert_int_equal(release(&link, &held), 0);
    assert_int_equal(sql_number("SELECT count(*) FROM {}.locks WHERE name = 'job' AND token IS NULL"), 1);
    assert_int_equal(acquire(&other, &theirs), 0);
    assert_true(theirs.claim.fence > held.claim.fence);
    assert_int_equal(release(&link, &held), DLOCK_ELOST);
    assert_int_equal(renew(&link, &held), DLOCK_ELOST);
    assert_int_equal(release(&other, &theirs), 0);
}

TEST(leases_end) {
    LINK(link, 'a');
    HELD(first, &link, "lease");
    HELD(second, &link, "lease");
    first.claim.lease_ms = 300;
    assert_int_equal(acquire(&link, &first), 0);
    assert_int_equal(acquire(&link, &second), DLOCK_EBUSY);
    sleep_ms(400);
    /* An expired grant is lost, although no other client has taken the lock yet. */
    assert_int_equal(renew(&link, &first), DLOCK_ELOST);
    assert_int_equal(acquire(&link, &second), 0);
    assert_int_equal(release(&link, &first), DLOCK_ELOST);
    assert_int_equal(renew(&link, &second), 0);
    assert_int_equal(release(&link, &second), 0);
}

/* A fence grows although the server's clock went back, or does not move. */
TEST(fences_grow) {
    LINK(link, 'a');
    HELD(held, &link, "fence");
    assert_int_equal(acquire(&link, &held), 0);
    assert_int_equal(release(&link, &held), 0);
    sql("UPDATE {}.locks SET fence = fence + 3600000000 WHERE name = 'fence'"); /* as granted in an hour */
    int64_t ahead = sql_number("SELECT fence FROM {}.locks WHERE name = 'fence'");
    for (int i = 1; i <= 3; i++) {
        held_new(&held, &link, "fence");
        assert_int_equal(acquire(&link, &held), 0);
        assert_int_equal(held.claim.fence, ahead + i);
        assert_int_equal(release(&link, &held), 0);
    }
}

/* Calls acquire() in a transaction that is rolled back, and returns whether its commit would wait for the disk. */
static bool is_flushed(const char *names, const char *modes, const char *flags) {
    sql("BEGIN");
    sql("SELECT count(*) FROM {}.acquire(ARRAY[%s]::bytea[], ARRAY['one', 'two'], ARRAY[60000, 60000], ARRAY[%s], "
        "ARRAY[0, 3], ARRAY[%s], 0, 1000)",
        names, modes, flags);
    bool flushed = strcmp(sql_text("SHOW synchronous_commit"), "off") != 0;
    sql("ROLLBACK");
    return flushed;
}

/* A crash of the server must undo no grant, in whatever way it came about; a place in the queue may be lost. */
TEST(grants_are_flushed) {
    static const char *const names[] = {"flushed-1", "flushed-2"};
    struct held held;
    LINK(link, 'a');
    for (int i = 0; i < 2; i++) { /* their rows are there */
        held_new(&held, &link, names[i]);
        assert_int_equal(acquire(&link, &held), 0);
        if (i == 0) assert_int_equal(release(&link, &held), 0);
    }
    assert_true(is_flushed("'flushed-1'", "0", "0"));
    assert_true(is_flushed("'flushed-1'", "1", "0"));
    assert_true(is_flushed("'flushed-new'", "0", "0"));
    assert_true(is_flushed("'flushed-1', 'flushed-2'", "0, 0", "0, 0"));
    assert_true(is_flushed("'flushed-1', 'flushed-new'", "0, 2", "0, 0"));
    assert_false(is_flushed("'flushed-2'", "0", "1"));
    assert_int_equal(release(&link, &held), 0);
}

/* Rows unused for a day are deleted, others stay; the next fence of a deleted name is greater than its last one. */
TEST(idle_rows_are_swept) {
    LINK(link, 'a');
    sql("TRUNCATE {}.locks");
    HELD(held, &link, "idle-7");
    assert_int_equal(acquire(&link, &held), 0);
    uint64_t fence = held.claim.fence;
    assert_int_equal(release(&link, &held), 0);
    sql("INSERT INTO {}.locks (name, fence, expires_us) SELECT ('idle-' || n)::bytea, 1, {}.clock_us() "
        "FROM generate_series(1, 500) n ON CONFLICT DO NOTHING");
    for (int i = 0; i < 50; i++) sql("SELECT {}.sweep()");
    assert_int_equal(sql_number("SELECT count(*) FROM {}.locks"), 500);
    /* A day later, one of them is held, one is waited for, and one is held by a reader; of others, all readers and waiters
     * have died. */
    sql("UPDATE {}.locks SET expires_us = expires_us - 86500000000, fence = greatest(fence - 86500000000, 1)");
    sql("UPDATE {}.locks SET expires_us = {}.clock_us() + 1000000, token = 'somebody' WHERE name = 'idle-1'");
    sql("UPDATE {}.locks SET mode = 1 WHERE name IN ('idle-3', 'idle-4')");
    sql("INSERT INTO {}.queue VALUES ('idle-2', {}.clock_us(), 'somebody', 1000, 0, 0, false), "
        "('idle-4', 1, 'nobody', 1000, 0, 0, false), ('idle-5', 1, 'nobody', 1000, 0, 0, false)");
    sql("INSERT INTO {}.shares VALUES ('idle-3', 'somebody', 1, {}.clock_us() + 1000000, false), "
        "('idle-3', 'nobody', 1, 2, false), ('idle-4', 'nobody', 1, 2, false)");
    for (int i = 0; i < 600; i++) sql("SELECT {}.sweep()");
    assert_int_equal(sql_number("SELECT count(*) FROM {}.locks WHERE name IN ('idle-1', 'idle-2', 'idle-3')"), 3);
    assert_int_equal(sql_number("SELECT count(*) FROM {}.queue"), 1);
    assert_int_equal(sql_number("SELECT count(*) FROM {}.shares"), 2);
    assert_true(sql_number("SELECT count(*) FROM {}.locks") < 100);
    assert_int_equal(sql_number("SELECT count(*) FROM {}.locks WHERE name IN ('idle-4', 'idle-5', 'idle-7')"), 0);
    held_new(&held, &link, "idle-7");
    assert_int_equal(acquire(&link, &held), 0);
    assert_true(held.claim.fence > fence);
    /* New names do it by themselves. */
    sql("INSERT INTO {}.locks (name) SELECT ('old-' || n)::bytea FROM generate_series(1, 300) n");
    for (int i = 0; i < 400; i++) {
        char name[16];
        snprintf(name, sizeof name, "new-%d", i);
        held_new(&held, &link, name);
        assert_int_equal(acquire(&link, &held), 0);
    }
    assert_true(sql_number("SELECT count(*) FROM {}.locks WHERE name LIKE 'old-%%'") < 250);
    assert_int_equal(sql_number("SELECT count(*) FROM {}.locks WHERE name LIKE 'new-%%'"), 400);
    sql("TRUNCATE {}.locks, {}.queue, {}.shares");
}

TESTS(NULL, NULL, site_begin, site_end)
