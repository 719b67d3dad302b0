/* NOTIFY takes a lock that the whole cluster shares, until its transaction is over, and may find no room: neither holds
 * up a lock. The server is a private one, on which no transaction that waits for its disk ends once nobody_commits().
 */
#include "site.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

struct scene {
    struct link holder, waiter, ear;
    struct held held, waits;
};

static void scene_begin(struct scene *s, const char *name) {
    static const struct params local = {.more = {{"options", "-c synchronous_commit=local"}}};
    struct dlock_error err;
    link_new(&s->ear, 'b');
    link_listen(&s->ear);
    if (link_with(&s->holder, &local, 'a', TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
    if (link_with(&s->waiter, &local, 'b', TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
    held_new(&s->held, &s->holder, name);
    held_new(&s->waits, &s->waiter, name);
    assert_int_equal(acquire(&s->holder, &s->held), 0);
    assert_int_equal(queue_up(&s->waiter, &s->waits), DLOCK_EBUSY);
}

static void scene_end(struct scene *s) {
    link_end(&s->holder);
    link_end(&s->waiter);
    link_end(&s->ear);
}

#define SCOPED_SCENE __attribute__((cleanup(scene_end))) struct scene

/* A commit waits for a standby that does not exist, except where synchronous_commit is off or local. */
static void standby(const char *name) {
    sql("SET synchronous_commit = local");
    sql("ALTER SYSTEM SET synchronous_standby_names = '%s'", name);
    sql("SELECT pg_reload_conf()");
    sql_wait("SELECT (current_setting('synchronous_standby_names') = '%s')::integer", name);
}

/* Without other notifying transactions the release notifies by itself, in the same statement. */
TEST(a_release_tells_by_itself) {
    SCOPED_SCENE s;
    struct dlock_wake wake;
    scene_begin(&s, "alone");
    sql("ALTER FUNCTION {}.tell(text) RENAME TO untold");
    assert_int_equal(release(&s.holder, &s.held), 0);
    wake_get(&s.ear, &wake);
    assert_string_equal(wake.token, s.waits.token);
    sql("ALTER FUNCTION {}.untold(text) RENAME TO tell");
}

/* Another client's hand-over is not committed yet. */
TEST(a_release_beside_another_tells_afterwards) {
    SCOPED_SCENE s;
    struct dlock_wake wake;
    SCOPED_PLAIN *other = plain_open();
    scene_begin(&s, "beside");
    plain_run(other, "BEGIN");
    plain_run(other, "SELECT pg_advisory_xact_lock(x'646c6f636b01'::bigint)");
    sql("ALTER FUNCTION {}.tell(text) RENAME TO untold");
    assert_int_equal(release(&s.holder, &s.held), 0);
    assert_true(wake_none(&s.ear));
    sql("ALTER FUNCTION {}.untold(text) RENAME TO tell");
    assert_int_equal(release(&s.holder, &s.held), DLOCK_ELOST); /* which tells again */
    wake_get(&s.ear, &wake);
    assert_string_equal(wake.token, s.waits.token);
}

static void commits_take_ms(int ms) {
    sql("ALTER SYSTEM SET commit_siblings = 0");
    sql("ALTER SYSTEM SET commit_delay = %d", ms * 1000);
    sql("SELECT pg_reload_conf()");
    sql_wait("SELECT (setting = '%d')::integer FROM pg_settings WHERE name = 'commit_delay'", ms * 1000);
}

/* Which is flushed nowhere: the holder's connection learns what a round trip takes. */
static void release_nothing(struct scene *s) {
    HELD(nothing, &s->holder, "nothing");
    for (int i = 0; i < 10; i++) assert_int_equal(release(&s->holder, &nothing), DLOCK_ELOST);
}

/* NOTIFY's lock is kept while a commit is flushed: where that takes long, a release drops one before it takes the
 * other. */
TEST(where_commits_are_slow_others_are_told_afterwards) {
    SCOPED_SCENE s;
    struct held again, waits;
    struct dlock_wake wake;
    scene_begin(&s, "flushed");
    commits_take_ms(50);
    release_nothing(&s);
    static const char *const names[] = {"flushed-1", "flushed-2", "flushed-3", "flushed-4",
                                        "flushed-5", "flushed-6", "flushed-7", "flushed-8"};
    for (int i = 0; i < 8; i++) {
        held_new(&again, &s.holder, names[i]);
        held_new(&waits, &s.waiter, names[i]);
        assert_int_equal(acquire(&s.holder, &again), 0);
        assert_int_equal(queue_up(&s.waiter, &waits), DLOCK_EBUSY);
        assert_int_equal(release(&s.holder, &again), 0);
        wake_get(&s.ear, &wake);
    }
    sql("ALTER FUNCTION {}.tell(text) RENAME TO untold");
    assert_int_equal(release(&s.holder, &s.held), 0);
    assert_true(wake_none(&s.ear));
    sql("ALTER FUNCTION {}.untold(text) RENAME TO tell");
    assert_int_equal(release(&s.holder, &s.held), DLOCK_ELOST); /* which tells again */
    wake_get(&s.ear, &wake);
    assert_string_equal(wake.token, s.waits.token);
    commits_take_ms(0);
}

/* One release may be late for many reasons, and the next ones are not. */
TEST(after_one_slow_release_others_are_told_at_once) {
    SCOPED_SCENE s;
    struct dlock_wake wake;
    scene_begin(&s, "late-once");
    HELD(again, &s.holder, "late");
    HELD(waits, &s.waiter, "late");
    release_nothing(&s);
    assert_int_equal(acquire(&s.holder, &again), 0);
    assert_int_equal(queue_up(&s.waiter, &waits), DLOCK_EBUSY);
    commits_take_ms(50);
    pg_of(&s.holder)->commit_us = 0; /* the machine may have made others late */
    assert_int_equal(release(&s.holder, &again), 0);
    wake_get(&s.ear, &wake);
    commits_take_ms(0);
    pg_of(&s.holder)->apart_until_us = 0; /* another test's notification may have been in progress */
    sql("ALTER FUNCTION {}.tell(text) RENAME TO untold");
    assert_int_equal(release(&s.holder, &s.held), 0);
    sql("ALTER FUNCTION {}.untold(text) RENAME TO tell");
    wake_get(&s.ear, &wake);
    assert_string_equal(wake.token, s.waits.token);
}

/* Each release of a lock that others wait for begins with a call that only a free lock needs. */
TEST(a_release_that_tells_nobody_says_nothing_of_commits) {
    SCOPED_SCENE s;
    scene_begin(&s, "unawaited");
    HELD(again, &s.holder, "nobody-waits");
    assert_int_equal(acquire(&s.holder, &again), 0);
    pg_of(&s.holder)->commit_us = 1000000;
    assert_int_equal(release(&s.holder, &again), 0);
    assert_int_equal(pg_of(&s.holder)->commit_us, 1000000);
}

static atomic_bool commit_waits;

/* Commits until one waits: commits before the checkpointer has read the setting do not. */
static void *notify_in_thread(void *arg) {
    while (!commit_waits) plain_run(arg, "CREATE TEMP TABLE written (x integer); DROP TABLE written; NOTIFY somebody");
    return NULL;
}

/* Another session's slow commit has NOTIFY's lock. The grant is there before any client is told. */
TEST(a_slow_commit_elsewhere) {
    SCOPED_SCENE s;
    SCOPED_PLAIN *slow = plain_open();
    pthread_t thread;
    scene_begin(&s, "slow");
    release_nothing(&s); /* so quick that the next one is slow */
    standby("nobody");
    assert_int_equal(pthread_create(&thread, NULL, notify_in_thread, slow), 0);
    sql_wait("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND pid = %d", PQbackendPID(slow));
    commit_waits = true;
    assert_int_equal(release(&s.holder, &s.held), 0);
    assert_int_equal(acquire(&s.waiter, &s.waits), 0);
    assert_true(s.waits.claim.fence > s.held.claim.fence);
    standby("");
    pthread_join(thread, NULL);
}

/* Calls notice it when they look, as where the queue is half full. */
static void no_room(void) {
    sql("ALTER FUNCTION {}.may_notify() RENAME TO might_notify");
    sql("CREATE FUNCTION {}.may_notify() RETURNS boolean LANGUAGE sql VOLATILE AS $$ SELECT false $$");
    sql("ALTER FUNCTION {}.send(text) RENAME TO true_send");
    sql("CREATE FUNCTION {}.send(notices text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION "
        "'too many notifications in the NOTIFY queue' USING ERRCODE = '54000'; END $$");
}

static void room_again(void) {
    sql("DROP FUNCTION {}.may_notify()");
    sql("ALTER FUNCTION {}.might_notify() RENAME TO may_notify");
    sql("DROP FUNCTION {}.send(text)");
    sql("ALTER FUNCTION {}.true_send(text) RENAME TO send");
}

/* A waiter that was not told asks, and has it. */
TEST(no_room_for_notices) {
    SCOPED_SCENE s;
    struct dlock_wake wake;
    scene_begin(&s, "full");
    no_room();
    assert_int_equal(release(&s.holder, &s.held), 0);
    assert_true(wake_none(&s.ear));
    assert_int_equal(queue_up(&s.waiter, &s.waits), 0);
    HELD(again, &s.holder, "full");
    held_new(&s.held, &s.waiter, "full");
    assert_int_equal(queue_up(&s.waiter, &s.held), DLOCK_EBUSY);
    room_again();
    /* The connection lives, and tells again. */
    struct dlock_error err;
    assert_int_equal(backend->break_lock(s.holder.conn, "full", TIMEOUT_MS, &err), 0);
    wake_get(&s.ear, &wake);
    assert_string_equal(wake.token, s.held.token);
}

/* A client dies after its release has handed the lock over and before it has told so: its guardian releases again. */
TEST(a_second_release_tells_again) {
    SCOPED_SCENE s;
    struct dlock_wake wake;
    scene_begin(&s, "again");
    no_room();
    assert_int_equal(release(&s.holder, &s.held), 0);
    room_again();
    assert_true(wake_none(&s.ear));
    assert_int_equal(release(&s.holder, &s.held), DLOCK_ELOST);
    wake_get(&s.ear, &wake);
    assert_int_equal(wake.kind, DLOCK_WAKE_GRANTED);
    assert_string_equal(wake.token, s.waits.token);
    assert_int_equal(renew(&s.waiter, &s.waits), 0);
    assert_int_equal(release(&s.holder, &s.held), DLOCK_ELOST);
    assert_true(wake_none(&s.ear)); /* it has confirmed the grant by now */
}

TESTS(NULL, NULL, site_begin, site_end)
