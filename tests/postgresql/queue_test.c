/* Waiting: the queue, hand-over, wake-ups, and who counts as alive. */
#include "site.h"

#include <pthread.h>

/* A holder, and two waiting clients; each client has one connection for requests and one that listens. */
struct scene {
    struct link holder, first, second, first_ear, second_ear;
    struct held held, one, two;
};

static void scene_begin(struct scene *s, const char *name) {
    link_new(&s->holder, 'a');
    link_new(&s->first, 'b');
    link_new(&s->second, 'c');
    link_new(&s->first_ear, 'b');
    link_new(&s->second_ear, 'c');
    link_listen(&s->first_ear);
    link_listen(&s->second_ear);
    held_new(&s->held, &s->holder, name);
    held_new(&s->one, &s->first, name);
    held_new(&s->two, &s->second, name);
    assert_int_equal(acquire(&s->holder, &s->held), 0);
    assert_int_equal(queue_up(&s->first, &s->one), DLOCK_EBUSY);
    assert_int_equal(queue_up(&s->second, &s->two), DLOCK_EBUSY);
}

static void scene_end(struct scene *s) {
    link_end(&s->holder);
    link_end(&s->first);
    link_end(&s->second);
    link_end(&s->first_ear);
    link_end(&s->second_ear);
}

static void assert_granted(const struct dlock_wake *wake, const struct held *held, uint64_t after) {
    assert_int_equal(wake->kind, DLOCK_WAKE_GRANTED);
    assert_string_equal(wake->name, held->claim.name);
    assert_string_equal(wake->token, held->token);
    assert_true(wake->fence > after);
    assert_true(wake->server_us > 0);
}

static int64_t waiting(const char *name) {
    return sql_number("SELECT count(*) FROM {}.queue WHERE name = '%s'", name);
}

static void first_come_first_served(void **state) {
    struct scene s;
    struct dlock_wake wake;
    (void)state;
    scene_begin(&s, "a name, with spaces");
    /* Before a hand-over of the meantime could have ended. */
    assert_int_equal(s.one.claim.retry_ms, 2250);
    assert_int_equal(s.two.claim.retry_ms, 2250);
    uint64_t fence = s.held.claim.fence;
    assert_int_equal(release(&s.holder, &s.held), 0);
    wake_get(&s.first_ear, &wake);
    assert_granted(&wake, &s.one, fence);
    assert_int_equal(wake.kept_ms, 3000);
    fence = wake.fence;
    assert_true(wake_none(&s.second_ear));
    /* The answer to a renewal or to asking again is the confirmation: the whole lease from then on. */
    assert_int_equal(acquire(&s.first, &s.one), 0);
    assert_true(s.one.claim.fence == fence);
    assert_true(sql_number("SELECT (expires_us - {}.clock_us()) / 1000 FROM {}.locks WHERE name = '%s'",
                           s.one.claim.name) > 7000);
    assert_int_equal(release(&s.first, &s.one), 0);
    wake_get(&s.second_ear, &wake);
    assert_granted(&wake, &s.two, fence);
    assert_int_equal(waiting(s.two.claim.name), 0);
    assert_int_equal(renew(&s.second, &s.two), 0);
    assert_int_equal(release(&s.second, &s.two), 0);
    scene_end(&s);
}

static void asking_again_keeps_the_place(void **state) {
    struct scene s;
    struct dlock_wake wake;
    (void)state;
    scene_begin(&s, "place");
    assert_int_equal(queue_up(&s.first, &s.one), DLOCK_EBUSY);
    assert_int_equal(queue_up(&s.second, &s.two), DLOCK_EBUSY);
    assert_int_equal(queue_up(&s.first, &s.one), DLOCK_EBUSY);
    assert_int_equal(waiting("place"), 2);
    assert_int_equal(release(&s.holder, &s.held), 0);
    wake_get(&s.first_ear, &wake);
    assert_granted(&wake, &s.one, s.held.claim.fence);
    scene_end(&s);
}

static void leaving_the_queue(void **state) {
    struct scene s;
    struct dlock_wake wake;
    (void)state;
    scene_begin(&s, "leave");
    /* It had no grant: an owner who believes that is told so. */
    assert_int_equal(release(&s.first, &s.one), DLOCK_ELOST);
    assert_int_equal(waiting("leave"), 1);
    assert_int_equal(release(&s.first, &s.one), DLOCK_ELOST);
    assert_int_equal(release(&s.holder, &s.held), 0);
    wake_get(&s.second_ear, &wake);
    assert_granted(&wake, &s.two, 0);
    assert_true(wake_none(&s.first_ear));
    scene_end(&s);
}

/* The first waiter's process is gone. */
static void dead_waiters_are_skipped(void **state) {
    struct scene s;
    struct dlock_wake wake;
    (void)state;
    scene_begin(&s, "dead");
    link_end(&s.first_ear);
    sql_wait("SELECT count(*) FROM (SELECT {}.lives('%s')) x(lives) WHERE NOT lives", s.one.token);
    assert_int_equal(release(&s.holder, &s.held), 0);
    wake_get(&s.second_ear, &wake);
    assert_granted(&wake, &s.two, 0);
    assert_int_equal(waiting("dead"), 0);
    scene_end(&s);
}

/* A new listener does not wait for the end of the old one, and one of the two is enough to be alive. */
static void listeners_of_one_client(void **state) {
    struct scene s;
    struct link third;
    struct dlock_wake wake;
    (void)state;
    scene_begin(&s, "twice");
    link_new(&third, 'b');
    int64_t before = now_ms();
    link_listen(&third);
    assert_true(now_ms() - before < 2000);
    link_end(&s.first_ear);
    assert_int_equal(release(&s.holder, &s.held), 0);
    wake_get(&third, &wake);
    assert_granted(&wake, &s.one, 0);
    link_end(&third);
    scene_end(&s);
}

/* A free lock that somebody waits for is that one's: the lease of its holder ended. */
static void nobody_barges(void **state) {
    struct scene s;
    struct link fourth;
    struct held late;
    struct dlock_wake wake;
    (void)state;
    scene_begin(&s, "barge");
    link_new(&fourth, 'd');
    held_new(&late, &fourth, "barge");
    sql("UPDATE {}.locks SET expires_us = {}.clock_us() - 1 WHERE name = 'barge'");
    assert_int_equal(acquire(&fourth, &late), DLOCK_EBUSY);
    wake_get(&s.first_ear, &wake);
    assert_granted(&wake, &s.one, s.held.claim.fence);
    /* The head itself may take it. */
    sql("UPDATE {}.locks SET expires_us = {}.clock_us() - 1, handed = false WHERE name = 'barge'");
    assert_int_equal(queue_up(&s.second, &s.two), 0);
    assert_int_equal(waiting("barge"), 0);
    link_end(&fourth);
    scene_end(&s);
}

/* A waiter listens, and is stopped: its hand-over ends unconfirmed, and all that its client waits with goes. */
static void a_hand_over_lapses(void **state) {
    struct scene s;
    struct held again;
    struct dlock_wake wake;
    (void)state;
    scene_begin(&s, "lapse");
    held_new(&again, &s.first, "lapse");
    assert_int_equal(queue_up(&s.first, &again), DLOCK_EBUSY);
    assert_int_equal(release(&s.holder, &s.held), 0);
    wake_get(&s.first_ear, &wake);
    assert_int_equal(waiting("lapse"), 2);
    assert_true(sql_number("SELECT (expires_us - {}.clock_us()) / 1000 FROM {}.locks WHERE name = 'lapse'") <= 3000);
    assert_int_equal(queue_up(&s.second, &s.two), DLOCK_EBUSY);
    assert_true(s.two.claim.retry_ms <= 3001); /* it is the head now */
    sql("UPDATE {}.locks SET expires_us = {}.clock_us() - 1 WHERE name = 'lapse'");
    assert_int_equal(queue_up(&s.second, &s.two), 0);
    assert_int_equal(waiting("lapse"), 0);
    assert_int_equal(renew(&s.first, &s.one), DLOCK_ELOST);
    scene_end(&s);
}

/* Clients that listen and never ask, as if their host was lost, in front of one that lives. */
struct crowd {
    struct link holder, dead[3], dead_ear[3], live, live_ear;
    struct held held, waits[3], lives;
};

static void crowd_begin(struct crowd *c, const char *name, int64_t lease_ms) {
    link_new(&c->holder, 'a');
    held_new(&c->held, &c->holder, name);
    assert_int_equal(acquire(&c->holder, &c->held), 0);
    for (int i = 0; i < 3; i++) {
        link_new(&c->dead[i], (char)('b' + i));
        link_new(&c->dead_ear[i], (char)('b' + i));
        link_listen(&c->dead_ear[i]);
        held_new(&c->waits[i], &c->dead[i], name);
        c->waits[i].claim.lease_ms = lease_ms;
        assert_int_equal(queue_up(&c->dead[i], &c->waits[i]), DLOCK_EBUSY);
    }
    link_new(&c->live, 'e');
    link_new(&c->live_ear, 'e');
    link_listen(&c->live_ear);
    held_new(&c->lives, &c->live, name);
    assert_int_equal(queue_up(&c->live, &c->lives), DLOCK_EBUSY);
    assert_int_equal(release(&c->holder, &c->held), 0);
}

static void crowd_end(struct crowd *c) {
    link_end(&c->holder);
    for (int i = 0; i < 3; i++) {
        link_end(&c->dead[i]);
        link_end(&c->dead_ear[i]);
    }
    link_end(&c->live);
    link_end(&c->live_ear);
}

/* Ends the hand-over that is under way, as if its time had passed since it began. */
static void let_lapse(const char *name) {
    sql("UPDATE {}.queue q SET ticket = q.ticket - (l.expires_us - {}.clock_us()) - 1 FROM {}.locks l WHERE l.name = "
        "'%s' AND l.handed AND q.name = l.name",
        name);
    sql("UPDATE {}.locks SET fence = fence - (expires_us - {}.clock_us()) - 1, expires_us = {}.clock_us() - 1 WHERE "
        "name = '%s' AND handed",
        name);
}

/* However many of them there are, the one that lives waits for one hand-over, and nobody for theirs any more. */
static void several_dead_cost_one_hand_over(void **state) {
    struct crowd c;
    (void)state;
    crowd_begin(&c, "three dead", LEASE_MS);
    assert_int_equal(queue_up(&c.live, &c.lives), DLOCK_EBUSY);
    assert_in_range(c.lives.claim.retry_ms, 1, 2250);
    let_lapse("three dead");
    assert_int_equal(queue_up(&c.live, &c.lives), 0);
    assert_int_equal(waiting("three dead"), 0);
    crowd_end(&c);
}

/* A hand-over for a shorter lease is no proof against who has not asked meanwhile: it keeps its place, and one who asks
 * goes first this time. */
static void short_hand_overs_are_passed_over(void **state) {
    struct crowd c;
    (void)state;
    crowd_begin(&c, "short lives", 500);
    let_lapse("short lives");
    assert_int_equal(queue_up(&c.live, &c.lives), 0);
    assert_int_equal(waiting("short lives"), 2);
    crowd_end(&c);
}

/* A waiter that finds out that a hand-over has lapsed does not pass the living ones before it. */
static void who_asked_meanwhile_keeps_its_place(void **state) {
    struct crowd c;
    struct dlock_wake wake;
    (void)state;
    crowd_begin(&c, "in order", LEASE_MS);
    assert_int_equal(queue_up(&c.dead[1], &c.waits[1]), DLOCK_EBUSY);
    assert_int_equal(queue_up(&c.live, &c.lives), DLOCK_EBUSY);
    let_lapse("in order");
    assert_int_equal(queue_up(&c.live, &c.lives), DLOCK_EBUSY);
    wake_get(&c.dead_ear[1], &wake);
    assert_granted(&wake, &c.waits[1], 0);
    assert_int_equal(waiting("in order"), 1);
    crowd_end(&c);
}

/* A confirmed one ends like every other grant. */
static void a_confirmed_hand_over_stays(void **state) {
    struct scene s;
    struct dlock_wake wake;
    (void)state;
    scene_begin(&s, "confirmed");
    assert_int_equal(release(&s.holder, &s.held), 0);
    wake_get(&s.first_ear, &wake);
    assert_int_equal(renew(&s.first, &s.one), 0);
    assert_int_equal(sql_number("SELECT count(*) FROM {}.locks WHERE name = 'confirmed' AND NOT handed"), 1);
    assert_true(sql_number("SELECT (expires_us - {}.clock_us()) / 1000 FROM {}.locks WHERE name = 'confirmed'") > 7000);
    scene_end(&s);
}

static void *release_in_thread(void *arg) {
    struct scene *s = arg;
    s->held.claim.result = release(&s->holder, &s->held);
    return NULL;
}

static void *acquire_in_thread(void *arg) {
    struct scene *s = arg;
    s->held.claim.result = acquire(&s->holder, &s->held);
    return NULL;
}

/* While `call` waits for the row, of which it has seen that nobody waits for it, the second waiter joins the queue.
 * When that was. */
static int64_t join_during(struct scene *s, void *(*call)(void *), const char *function) {
    const char *name = s->held.claim.name;
    char text[512];
    pthread_t thread;
    PGconn *plain = plain_open();
    sql("DELETE FROM {}.queue WHERE name = '%s'", name);
    sql("UPDATE {}.locks SET awaited = false WHERE name = '%s'", name);
    plain_run(plain, "SET search_path = {}, pg_temp");
    plain_run(plain, "BEGIN");
    snprintf(text, sizeof text, "SELECT FROM locks WHERE name = '%s' FOR UPDATE", name);
    plain_run(plain, text);
    assert_int_equal(pthread_create(&thread, NULL, call, s), 0);
    sql_wait("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid IN (SELECT pid FROM pg_stat_activity WHERE query "
             "LIKE '%%{}%%%s%%')",
             function);
    snprintf(text, sizeof text, "SELECT enqueue(ROW('%s', NULL, '%s', 10000, 0, 0, false)::queue)", name, s->two.token);
    plain_run(plain, text);
    int64_t joined_us = sql_number("SELECT {}.clock_us()");
    plain_run(plain, "COMMIT");
    pthread_join(thread, NULL);
    PQfinish(plain);
    return joined_us;
}

/* A release that knew only how the queue was before it waited would wake nobody; one that told the time from before it
 * waited would be taken for older than the answer that says so. */
static void joining_during_a_release(void **state) {
    static const char *const statements[] = {"give_v5", "release_v4"}; /* the short way, the long one */
    static const char *const names[] = {"during", "during, too"};
    struct scene s;
    struct dlock_wake wake;
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        scene_begin(&s, names[i]);
        strcpy(pg_of(&s.holder)->wanted, i == 0 ? "" : names[i]);
        int64_t joined_us = join_during(&s, release_in_thread, statements[i]);
        assert_int_equal(s.held.claim.result, 0);
        wake_get(&s.second_ear, &wake);
        assert_granted(&wake, &s.two, s.held.claim.fence);
        assert_true(wake.server_us > joined_us);
        scene_end(&s);
    }
}

/* One who asks, and finds it free, would pass who joined first. */
static void joining_during_an_acquire(void **state) {
    static const char *const statements[] = {"take_v5", "acquire_v4"}; /* the short way, the long one */
    static const char *const names[] = {"meanwhile", "meanwhile, too"};
    struct scene s;
    struct dlock_wake wake;
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        scene_begin(&s, names[i]);
        assert_int_equal(release(&s.first, &s.one), DLOCK_ELOST);
        assert_int_equal(release(&s.second, &s.two), DLOCK_ELOST);
        assert_int_equal(release(&s.holder, &s.held), 0);
        strcpy(pg_of(&s.holder)->wanted, i == 0 ? "" : names[i]);
        int64_t joined_us = join_during(&s, acquire_in_thread, statements[i]);
        assert_int_equal(s.held.claim.result, DLOCK_EBUSY);
        wake_get(&s.second_ear, &wake);
        assert_granted(&wake, &s.two, 0);
        assert_true(wake.server_us > joined_us);
        scene_end(&s);
    }
}

/* A session of a role that has no right to anything of ours. */
static PGconn *stranger_open(void) {
    PGconn *plain = plain_open();
    sql("DO $$ BEGIN IF to_regrole('stranger_{}') IS NULL THEN CREATE ROLE stranger_{}; END IF; END $$");
    plain_run(plain, "SET ROLE stranger_{}");
    return plain;
}

static void stranger_end(PGconn *plain) {
    PQfinish(plain);
    sql("DROP ROLE stranger_{}");
}

/* A call that waits for the row in order to join the queue is not passed: a free lock is not taken before its turn. But
 * anybody can take the turn, and keep it: that delays, and no more. */
static void a_turn_is_waited_for_but_not_for_long(void **state) {
    struct scene s;
    struct dlock_wake wake;
    (void)state;
    scene_begin(&s, "turn");
    PGconn *stranger = stranger_open();
    plain_run(stranger, "SELECT pg_advisory_lock(hashtextextended(encode('turn', 'hex'), 1))");
    assert_int_equal(release(&s.first, &s.one), DLOCK_ELOST);
    int64_t began = now_ms();
    assert_int_equal(queue_up(&s.first, &s.one), DLOCK_EBUSY);
    assert_true(now_ms() - began >= 90);
    assert_int_equal(release(&s.holder, &s.held), 0);
    wake_get(&s.second_ear, &wake);
    assert_granted(&wake, &s.two, 0);
    assert_int_equal(release(&s.second, &s.two), 0);
    wake_get(&s.first_ear, &wake);
    assert_granted(&wake, &s.one, 0);
    assert_int_equal(release(&s.first, &s.one), 0);
    began = now_ms();
    held_new(&s.held, &s.holder, "turn");
    assert_int_equal(acquire(&s.holder, &s.held), 0);
    assert_true(now_ms() - began >= 90);
    stranger_end(stranger);
    scene_end(&s);
}

/* A release may have the row already, and so waits for no turn. */
static void a_release_needs_no_turn(void **state) {
    struct scene s;
    PGconn *plain = plain_open();
    (void)state;
    scene_begin(&s, "no turn");
    plain_run(plain, "BEGIN");
    plain_run(plain, "SELECT pg_advisory_xact_lock({}.turn_key('no turn'))");
    assert_int_equal(release(&s.first, &s.one), DLOCK_ELOST);
    assert_int_equal(waiting("no turn"), 1);
    assert_int_equal(release(&s.holder, &s.held), 0);
    PQfinish(plain);
    scene_end(&s);
}

static const char *channel_of(const struct link *ear) {
    return sql_text("SELECT channel FROM {}.listeners WHERE client = '%s'", ear->client);
}

/* Messages that are no wake-ups of ours, from somebody who knows the channel. */
static void nonsense_on_the_channel(void **state) {
    static const char *const nonsense[] = {"",
                                           "hello",
                                           "granted",
                                           "granted x",
                                           "granted bbbbbbbbbbbbbbbbbbbbbbbb.1 1 1 1 6",
                                           "granted bbbbbbbbbbbbbbbbbbbbbbbb.1 0 1 1 61",
                                           "granted bbbbbbbbbbbbbbbbbbbbbbbb.1 -1 1 1 61",
                                           "granted bbbbbbbbbbbbbbbbbbbbbbbb.1 1 1 99999999999999999999 61",
                                           "granted bbbbbbbbbbbbbbbbbbbbbbbb.1 36028797018963968 1 1 61",
                                           "granted bbbbbbbbbbbbbbbbbbbbbbbb.1 1 1 1 00",
                                           "granted bbbbbbbbbbbbbbbbbbbbbbbb.1 1 1 1 zz",
                                           "granted cccccccccccccccccccccccc.1 1 1 1 61",
                                           "granted",
                                           "wanted",
                                           "wanted ",
                                           "wanted 6",
                                           "wanted 6100",
                                           "wantedx61"};
    struct scene s;
    struct dlock_wake wake;
    (void)state;
    scene_begin(&s, "stranger");
    char channel[64];
    snprintf(channel, sizeof channel, "%s", channel_of(&s.first_ear));
    for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++)
        sql("SELECT pg_notify('%s', '%s')", channel, nonsense[i]);
    sql("SELECT pg_notify('%s', repeat('granted ', 900))", channel);
    assert_true(wake_none(&s.first_ear));
    assert_int_equal(release(&s.holder, &s.held), 0);
    wake_get(&s.first_ear, &wake);
    assert_granted(&wake, &s.one, 0);
    scene_end(&s);
}

/* What a stranger's session has heard on the channel that it listens on, too; "" for nothing. */
static void overhear(PGconn *stranger, char out[1024]) {
    PGnotify *notice;
    out[0] = '\0';
    plain_run(stranger, "SELECT"); /* until then nothing is delivered */
    while ((notice = PQnotifies(stranger))) {
        snprintf(out, 1024, "%s", notice->extra);
        PQfreemem(notice);
    }
}

static void forge(PGconn *stranger, const char *channel, const char *message) {
    char text[4096];
    snprintf(text, sizeof text, "SELECT pg_notify('%s', '%s')", channel, message);
    plain_run(stranger, text);
}

/* Every role may notify. One that has found out the channel, from somebody who may see statements, hears every token
 * and every message, and can still not say what the client would believe. */
static void nobody_can_forge_a_wake(void **state) {
    struct scene s;
    struct held again;
    struct dlock_wake wake;
    char channel[64], heard[1024], text[2048];
    (void)state;
    scene_begin(&s, "forged");
    snprintf(channel, sizeof channel, "%s", channel_of(&s.first_ear));
    PGconn *stranger = stranger_open();
    snprintf(text, sizeof text, "LISTEN \"%s\"", channel);
    plain_run(stranger, text);
    int64_t now_us = sql_number("SELECT {}.clock_us()");
    snprintf(text, sizeof text, "granted %s %lld %lld 3000 666f72676564", s.one.token, (long long)now_us,
             (long long)now_us);
    forge(stranger, channel, text);
    snprintf(text + strlen(text), sizeof text - strlen(text), " %064d", 0);
    forge(stranger, channel, text);
    forge(stranger, channel, "wanted 666f72676564");
    assert_true(wake_none(&s.first_ear));
    /* With the code of another message, and one more piece behind what the code is for. */
    overhear(stranger, heard);
    assert_int_equal(release(&s.holder, &s.held), 0);
    wake_get(&s.first_ear, &wake);
    assert_granted(&wake, &s.one, 0);
    overhear(stranger, heard);
    assert_int_equal(strncmp(heard, "granted ", 8), 0);
    char *code = strrchr(heard, ' ');
    assert_non_null(code);
    held_new(&again, &s.first, "forged");
    assert_int_equal(queue_up(&s.first, &again), DLOCK_EBUSY);
    snprintf(text, sizeof text, "granted %s %lld %lld 3000 666f72676564%s", again.token, (long long)now_us,
             (long long)now_us, code);
    forge(stranger, channel, text);
    snprintf(text, sizeof text, "%s%s", heard, code);
    forge(stranger, channel, text);
    snprintf(text, sizeof text, "%s 61", heard);
    forge(stranger, channel, text);
    assert_true(wake_none(&s.first_ear));
    stranger_end(stranger);
    scene_end(&s);
}

/* Of the next listener everything is another. */
static void every_listener_has_its_own_secret(void **state) {
    struct link ear;
    char channel[64], secret[64];
    (void)state;
    link_new(&ear, 'b');
    link_listen(&ear);
    snprintf(channel, sizeof channel, "%s", channel_of(&ear));
    snprintf(secret, sizeof secret, "%s", sql_text("SELECT secret FROM {}.listeners WHERE client = '%s'", ear.client));
    assert_int_equal(strlen(secret), PG_SECRET);
    assert_null(strstr(channel, secret));
    link_end(&ear);
    link_new(&ear, 'b');
    link_listen(&ear);
    assert_string_not_equal(channel_of(&ear), channel);
    assert_string_not_equal(sql_text("SELECT secret FROM {}.listeners WHERE client = '%s'", ear.client), secret);
    /* No statement shows it. */
    assert_int_equal(sql_number("SELECT count(*) FROM pg_stat_activity a WHERE pid <> pg_backend_pid() AND position("
                                "(SELECT secret FROM {}.listeners WHERE client = '%s') IN a::text) > 0",
                                ear.client),
                     0);
    link_end(&ear);
}

/* Waiters that live stay in the table, and most of the others go. */
static void listeners_that_ended_are_forgotten(void **state) {
    struct link ear, other;
    (void)state;
    link_new(&ear, 'b');
    link_listen(&ear);
    sql("INSERT INTO {}.listeners (client, channel) SELECT 'ended-' || n, 'ended-' || n FROM generate_series(1, 100) "
        "n");
    for (int i = 0; i < 40; i++) {
        link_new(&other, (char)('c' + i % 2));
        link_listen(&other);
        link_end(&other);
    }
    assert_true(sql_number("SELECT count(*) FROM {}.listeners") < 20);
    assert_int_equal(sql_number("SELECT count(*) FROM {}.listeners WHERE client = '%s'", ear.client), 1);
    link_end(&ear);
}

static int acquire_lingering(struct link *link, struct held *held, uint32_t flags) {
    struct dlock_error err;
    assert_int_equal(held_run(backend->acquire, link, held, flags | DLOCK_CLAIM_LINGER, TIMEOUT_MS, &err), 0);
    return held->claim.result;
}

static void assert_wanted(struct link *ear, const char *name) {
    struct dlock_wake wake;
    wake_get(ear, &wake);
    assert_int_equal(wake.kind, DLOCK_WAKE_WANTED);
    assert_string_equal(wake.name, name);
    assert_true(wake_none(ear));
}

/* A holder that may linger is told of everybody else who asks; no other one is. */
static void who_lingers_is_told(void **state) {
    struct link link, ear, other, other_ear;
    struct held held, mine, theirs, shared;
    struct dlock_wake wake;
    (void)state;
    link_new(&link, 'b');
    link_new(&ear, 'b');
    link_new(&other, 'c');
    link_new(&other_ear, 'c');
    link_listen(&ear);
    link_listen(&other_ear);
    held_new(&held, &link, "linger");
    held_new(&mine, &link, "linger");
    held_new(&theirs, &other, "linger");
    held_new(&shared, &other, "linger");
    shared.claim.mode = DLOCK_SHARED;
    assert_int_equal(acquire_lingering(&link, &held, 0), 0);
    assert_int_equal(acquire(&link, &mine), DLOCK_EBUSY);
    assert_true(wake_none(&ear));
    assert_int_equal(acquire(&other, &theirs), DLOCK_EBUSY);
    assert_wanted(&ear, "linger");
    assert_int_equal(acquire(&other, &shared), DLOCK_EBUSY);
    assert_wanted(&ear, "linger");
    assert_int_equal(acquire_lingering(&other, &theirs, DLOCK_CLAIM_QUEUE), DLOCK_EBUSY);
    assert_wanted(&ear, "linger");
    assert_int_equal(acquire_lingering(&other, &theirs, DLOCK_CLAIM_QUEUE), DLOCK_EBUSY);
    assert_wanted(&ear, "linger");
    /* The wish goes along with the place in the queue. */
    assert_int_equal(release(&link, &held), 0);
    wake_get(&other_ear, &wake);
    assert_granted(&wake, &theirs, held.claim.fence);
    assert_int_equal(acquire(&link, &mine), DLOCK_EBUSY);
    assert_wanted(&other_ear, "linger");
    /* A holder that has not asked for it is not told. */
    assert_int_equal(acquire(&other, &theirs), 0);
    assert_int_equal(acquire(&link, &mine), DLOCK_EBUSY);
    assert_true(wake_none(&other_ear));
    link_end(&link);
    link_end(&ear);
    link_end(&other);
    link_end(&other_ear);
}

/* Several wake-ups are read one by one, until none is left. */
static void many_wakes(void **state) {
    enum { N = 50 };
    static struct held held[N], waiter[N];
    static char names[N][16];
    struct link holder, waiting_link, ear;
    struct dlock_wake wake;
    struct dlock_error err;
    struct dlock_claim *claims[N];
    (void)state;
    link_new(&holder, 'a');
    link_new(&waiting_link, 'b');
    link_new(&ear, 'b');
    link_listen(&ear);
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "many-%02d", i);
        held_new(&held[i], &holder, names[i]);
        held_new(&waiter[i], &waiting_link, names[i]);
        assert_int_equal(acquire(&holder, &held[i]), 0);
        assert_int_equal(queue_up(&waiting_link, &waiter[i]), DLOCK_EBUSY);
        claims[i] = &held[i].claim;
    }
    assert_int_equal(backend->release(holder.conn, claims, N, TIMEOUT_MS, &err), 0);
    for (int i = 0; i < N; i++) {
        wake_get(&ear, &wake);
        assert_string_equal(wake.name, names[i]);
        assert_string_equal(wake.token, waiter[i].token);
    }
    assert_true(wake_none(&ear));
    link_end(&holder);
    link_end(&waiting_link);
    link_end(&ear);
}

static void the_listeners_end_shows(void **state) {
    struct link ear;
    struct dlock_wake wake;
    struct dlock_error err;
    int rc = 0;
    (void)state;
    link_new(&ear, 'b');
    link_listen(&ear);
    sql("SELECT pg_terminate_backend(%d)", PQbackendPID(pg_of(&ear)->link));
    for (int64_t until = now_ms() + 5000; rc == 0 && now_ms() < until; sleep_ms(10))
        rc = backend->wake(ear.conn, &wake, &err);
    assert_int_equal(rc, DLOCK_EUNAVAILABLE);
    link_end(&ear);
}

SITE_MAIN(cmocka_unit_test(first_come_first_served), cmocka_unit_test(asking_again_keeps_the_place),
          cmocka_unit_test(leaving_the_queue), cmocka_unit_test(dead_waiters_are_skipped),
          cmocka_unit_test(listeners_of_one_client), cmocka_unit_test(nobody_barges),
          cmocka_unit_test(a_hand_over_lapses), cmocka_unit_test(a_confirmed_hand_over_stays),
          cmocka_unit_test(joining_during_a_release), cmocka_unit_test(joining_during_an_acquire),
          cmocka_unit_test(a_turn_is_waited_for_but_not_for_long), cmocka_unit_test(a_release_needs_no_turn),
          cmocka_unit_test(nonsense_on_the_channel), cmocka_unit_test(nobody_can_forge_a_wake),
          cmocka_unit_test(every_listener_has_its_own_secret), cmocka_unit_test(several_dead_cost_one_hand_over),
          cmocka_unit_test(short_hand_overs_are_passed_over), cmocka_unit_test(who_asked_meanwhile_keeps_its_place),
          cmocka_unit_test(who_lingers_is_told), cmocka_unit_test(listeners_that_ended_are_forgotten),
          cmocka_unit_test(many_wakes), cmocka_unit_test(the_listeners_end_shows))
