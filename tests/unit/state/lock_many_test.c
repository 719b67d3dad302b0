/* A process with very many locks: work for one of them must not cost a walk over all of them. */
#include "fixture.h"

#include "state/client.h"

#include <stdio.h>
#include <string.h>

enum { MANY = 400, LONG_MS = 600000 };

static dlock_lock *many[MANY];

static void make_many(dlock_client *client) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    options.lease_ms = LONG_MS;
    for (int i = 0; i < MANY; i++) {
        char name[16];
        snprintf(name, sizeof name, "many%03d", i);
        many[i] = lock_new_with(client, name, &options);
    }
}

static uint64_t walks(dlock_client *client) {
    return settled_count(client, &client->walks);
}

/* A client that waits probes its listener, and needs to know that it waits. */
TEST(a_probe_walks_over_no_locks) {
    struct scene s;
    scene_begin(&s, 0, -1);
    make_many(s.client);
    assert_int_equal(dlock_acquire_all(many, MANY, 0, NULL), 0);
    fake_log_clear();
    uint64_t before = walks(s.client);
    fake_advance_ms(3 * THIRD_MS);
    assert_in_range(fake_calls(FAKE_PROBE), 2, 4);
    assert_int_equal(walks(s.client), before);
    fake_other_release(&s.other, "n");
    fake_settle();
    assert_int_equal(result(s.actor), 0);
    assert_int_equal(release_by(s.actor, s.lock), 0);
}

/* A wake-up that announces a grant already known from an answer. */
TEST(a_late_wake_up_walks_over_no_locks) {
    struct scene s;
    char token[DLOCK_TOKEN_MAX + 1];
    scene_begin(&s, 0, -1);
    make_many(s.client);
    assert_int_equal(dlock_acquire_all(many, MANY, 0, NULL), 0);
    dlock__enter(s.client);
    strcpy(token, s.lock->name->asking->token);
    dlock__leave(s.client);
    fake_other_release(&s.other, "n");
    fake_settle();
    assert_int_equal(result(s.actor), 0);
    struct dlock_wake wake = {.kind = DLOCK_WAKE_GRANTED, .name = "n", .token = token, .fence = 1, .kept_ms = 1000};
    uint64_t before = walks(s.client);
    fake_wake_push(&wake);
    assert_int_equal(walks(s.client), before);
    assert_true(held_by(s.actor, s.lock));
    assert_int_equal(release_by(s.actor, s.lock), 0);
}

/* Several requests, since one has room for 256: behind a busy lock none is sent. */
TEST(behind_a_busy_lock_no_more_are_asked_for) {
    make_many(client_new("fake:"));
    struct fake_grant other = taken("many007");
    assert_int_equal(dlock_acquire_all(many, MANY, 0, NULL), DLOCK_EBUSY);
    assert_int_equal(fake_claims(FAKE_ACQUIRE, NULL), DLOCK__BATCH);
    assert_int_equal(fake_claims(FAKE_RELEASE, NULL), DLOCK__BATCH - 1);
    fake_other_release(&other, "many007");
    fake_log_clear();
    assert_int_equal(dlock_acquire_all(many, MANY, 0, NULL), 0);
    assert_int_equal(fake_calls(FAKE_ACQUIRE), (MANY + DLOCK__BATCH - 1) / DLOCK__BATCH);
    assert_int_equal(dlock_release_all(many, MANY, NULL), 0);
}

/* The table grows with each name. */
TEST(each_name_is_found_however_many_there_are) {
    dlock_client *client = client_new("fake:");
    make_many(client);
    dlock_lock *first[MANY];
    memcpy(first, many, sizeof first);
    make_many(client);
    for (int i = 0; i < MANY; i++) assert_ptr_equal(first[i]->name, many[i]->name);
    assert_int_equal(client->n_names, MANY);
    for (int i = 0; i < MANY; i++) {
        lock_end(first[i]);
        lock_end(many[i]);
    }
    assert_int_equal(client->n_names, 0);
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
