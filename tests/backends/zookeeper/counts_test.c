/* The cost of operations: requests, counted in a proxy, and round trips: all that is sent while the answers are held
 * back goes out together. */
#include "behind.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int setup(void **state) {
    (void)state;
    behind_begin("10s");
    return 0;
}

TEST(acquire_is_one_round_trip) {
    struct task task;
    warm("one trip");
    int all = proxy_seen(proxy, -1), creates = proxy_seen(proxy, OP_CREATE2), lists = proxy_seen(proxy, OP_CHILDREN);
    proxy_hold(proxy, true);
    CLAIM_INIT(held, "one trip", 'a', 1);
    task_begin(&task, backend->acquire, &far, &held, 0);
    assert_true(proxy_await(proxy, OP_CREATE2, creates + 1));
    assert_true(proxy_await(proxy, OP_CHILDREN, lists + 1)); /* before any answer */
    assert_int_equal(proxy_seen(proxy, -1), all + 2);
    proxy_hold(proxy, false);
    assert_int_equal(task_end(&task), 0);
    assert_int_equal(held.claim.result, 0);
    assert_int_equal(proxy_seen(proxy, -1), all + 2); /* and nothing after them */
    assert_int_equal(release(&far, &held), 0);
    assert_int_equal(proxy_seen(proxy, -1), all + 3);
}

TEST(new_name_is_two_round_trips) {
    char name[64];
    warm("parents");
    snprintf(name, sizeof name, "new-%lld", (long long)now_ms());
    int all = proxy_seen(proxy, -1);
    CLAIM_INIT(held, name, 'a', 1);
    assert_int_equal(acquire(&far, &held), 0);
    assert_int_equal(proxy_seen(proxy, -1), all + 5); /* create, list; container, create, list */
    assert_int_equal(release(&far, &held), 0);
}

/* One cycle of `far`; returns how many requests it was. */
static int cycle(const char *name, int serial, uint64_t *fence) {
    int all = proxy_seen(proxy, -1);
    CLAIM_INIT(held, name, 'a', serial);
    assert_int_equal(acquire(&far, &held), 0);
    *fence = held.claim.fence;
    assert_int_equal(release(&far, &held), 0);
    return proxy_seen(proxy, -1) - all;
}

/* Nodes that are made in a container before the test looks at how its lock is taken. Fences count changes on the
 * server: with fewer changes than that between two cycles, the container cannot have been created again. */
enum { FAMILIAR = 60 };

struct cycles {
    const char *name;
    int serial;
    uint64_t fence; /* of the last one */
    bool calm;      /* none had more changes before it */
};

static int next_cycle(struct cycles *cycles) {
    uint64_t last = cycles->fence;
    int n = cycle(cycles->name, ++cycles->serial, &cycles->fence);
    cycles->calm = cycles->calm && cycles->fence - last < FAMILIAR;
    return n;
}

static void next_cycles(struct cycles *cycles, int n) {
    for (int i = 0; i < n; i++) next_cycle(cycles);
}

/* False: other tests have changed too much on the server in the meantime for this to prove anything. */
static bool is_not_listed(const char *name) {
    struct cycles cycles = {.name = name};
    warm(name);
    assert_int_equal(next_cycle(&cycles), 3); /* create, list; delete */
    next_cycles(&cycles, FAMILIAR);
    cycles.calm = true;
    next_cycles(&cycles, 20); /* a name for which counting has failed is listed for a while */
    int most = 0;
    for (int i = 0; i < 5; i++) {
        int n = next_cycle(&cycles);
        if (n > most) most = n;
    }
    if (cycles.calm) assert_int_equal(most, 2);
    warm(name);
    assert_int_equal(next_cycle(&cycles), 3); /* there was another client */
    assert_int_equal(next_cycle(&cycles), 3); /* and may come again */
    next_cycles(&cycles, 20);
    int n = next_cycle(&cycles);
    if (cycles.calm) assert_int_equal(n, 2);
    return cycles.calm;
}

/* No other client has made a node since ours was deleted: so there is none. */
TEST(lock_that_nobody_else_wants_is_not_listed) {
    char name[32];
    bool seen = false;
    for (int tries = 0; !seen && tries < 20; tries++) {
        snprintf(name, sizeof name, "mine-%d", tries);
        seen = is_not_listed(name);
    }
    assert_true(seen);
    CLAIM_INIT(held, name, 'b', 1);
    assert_int_equal(acquire(&near, &held), 0);
    claim_init(&held, name, 'a', 999);
    assert_int_equal(acquire(&far, &held), DLOCK_EBUSY);
    claim_init(&held, name, 'b', 1);
    (void)release(&near, &held);
}

static void make_node(const char *path, int flags) {
    assert_int_equal(zoo_create(plain(), path, NULL, -1, &ZOO_OPEN_ACL_UNSAFE, flags, NULL, 0), ZOK);
}

/* A container that was removed and created again, with no more changes than that takes, counts from 0: the next
 * sequence proves nothing. */
TEST(new_container_is_listed) {
    char name[32], path[64];
    struct held held;
    uint64_t fence;
    warm("parents");
    for (int used = 1; used <= 3; used++) {
        snprintf(name, sizeof name, "anew-%lld-%d", (long long)now_ms(), used);
        for (int i = 0; i < used; i++) cycle(name, i, &fence);
        snprintf(path, sizeof path, BASE "/%s", name);
        plain_delete(path);
        make_node(path, ZOO_CONTAINER);
        strcat(path, "/_c_stranger-lock-");
        for (int i = 0; i < used; i++) make_node(path, ZOO_EPHEMERAL | ZOO_SEQUENCE);
        claim_init(&held, name, 'a', 9);
        assert_int_equal(acquire(&far, &held), DLOCK_EBUSY);
    }
}

enum { BATCH = 100 };

static struct held batch[BATCH];
static char batch_names[BATCH][24];

/* Names that no test before has used. */
static void batch_new(struct dlock_claim *claims[BATCH]) {
    for (size_t i = 0; i < BATCH; i++) {
        snprintf(batch_names[i], sizeof batch_names[i], "%lld-%03zu", (long long)now_ms(), i);
        claim_init(&batch[i], batch_names[i], 'a', (int)i);
        claims[i] = &batch[i].claim;
    }
}

static void *acquire_batch(void *arg) {
    struct dlock_claim **claims = arg;
    assert_int_equal(backend->acquire(far.conn, claims, BATCH, TIMEOUT_MS, NULL), 0);
    return NULL;
}

static void all_are_granted(struct dlock_claim *const claims[BATCH]) {
    for (size_t i = 0; i < BATCH; i++) assert_int_equal(claims[i]->result, 0);
}

static void release_batch(struct dlock_claim *const claims[BATCH]) {
    assert_int_equal(backend->release(far.conn, claims, BATCH, TIMEOUT_MS, NULL), 0);
    all_are_granted(claims);
    for (size_t i = 0; i < BATCH; i++) memset(claims[i]->state, 0, sizeof claims[i]->state);
}

/* Most of it goes out before any answer: a hundred locks do not cost a hundred round trips. */
TEST(batch_goes_out_together) {
    enum { TOGETHER = 50 };
    struct dlock_claim *claims[BATCH];
    pthread_t thread;
    warm("parents");
    batch_new(claims);
    assert_null(acquire_batch(claims)); /* makes the containers */
    all_are_granted(claims);
    int all = proxy_seen(proxy, -1);
    release_batch(claims);
    assert_int_equal(proxy_seen(proxy, -1), all + BATCH);
    int creates = proxy_seen(proxy, OP_CREATE2);
    proxy_hold(proxy, true);
    assert_int_equal(pthread_create(&thread, NULL, acquire_batch, claims), 0);
    assert_true(proxy_await(proxy, OP_CREATE2, creates + TOGETHER));
    proxy_hold(proxy, false);
    pthread_join(thread, NULL);
    all_are_granted(claims);
    assert_in_range(proxy_seen(proxy, -1), all + 2 * BATCH, all + 3 * BATCH); /* some without a listing */
    int deletes = proxy_seen(proxy, OP_DELETE);
    release_batch(claims);
    assert_int_equal(proxy_seen(proxy, OP_DELETE), deletes + BATCH);
}

static void *release_dead(void *arg) {
    struct dlock_claim **claims = arg;
    assert_int_equal(backend->release(far.conn, claims, BATCH, TIMEOUT_MS, NULL), 0);
    return NULL;
}

/* A guardian does not know where its client's nodes are: it searches for them, and deletes them, in two round trips for
 * many. */
TEST(dead_batch_goes_out_together) {
    enum { TOGETHER = 50 };
    struct dlock_claim *claims[BATCH];
    pthread_t thread;
    batch_new(claims);
    assert_int_equal(backend->acquire(near.conn, claims, BATCH, TIMEOUT_MS, NULL), 0);
    all_are_granted(claims);
    for (size_t i = 0; i < BATCH; i++) claims[i]->flags = DLOCK_CLAIM_DEAD;
    int all = proxy_seen(proxy, -1), lists = proxy_seen(proxy, OP_CHILDREN), deletes = proxy_seen(proxy, OP_DELETE);
    proxy_hold(proxy, true);
    assert_int_equal(pthread_create(&thread, NULL, release_dead, claims), 0);
    assert_true(proxy_await(proxy, OP_CHILDREN, lists + TOGETHER));
    proxy_hold_after(proxy, OP_DELETE, 1);
    proxy_hold(proxy, false); /* the searches' answers pass */
    assert_true(proxy_await(proxy, OP_DELETE, deletes + TOGETHER));
    proxy_hold(proxy, false);
    pthread_join(thread, NULL);
    all_are_granted(claims);
    assert_int_equal(proxy_seen(proxy, OP_DELETE), deletes + BATCH);
    assert_int_equal(proxy_seen(proxy, -1), all + 3 * BATCH); /* write, list; delete */
    release_dead(claims);
    for (size_t i = 0; i < BATCH; i++) assert_int_equal(claims[i]->result, DLOCK_ELOST); /* nothing is there any more */
}

/* An answer that is lost on the way is asked for again, and nothing stays behind. */
TEST(batch_survives_its_connection) {
    struct dlock_claim *claims[BATCH];
    const int lost[] = {OP_CREATE2, OP_CHILDREN, OP_DELETE};
    for (size_t k = 0; k < sizeof lost / sizeof *lost; k++) {
        batch_new(claims);
        proxy_lose_answer(proxy, lost[k]);
        assert_null(acquire_batch(claims));
        all_are_granted(claims);
        for (size_t i = 1; i < BATCH; i++) assert_true(claims[i]->fence != claims[i - 1]->fence);
        release_batch(claims);
        for (size_t i = 0; i < BATCH; i++) {
            char path[sizeof BASE + sizeof batch_names[i] + 1];
            snprintf(path, sizeof path, BASE "/%.23s", batch_names[i]);
            assert_int_equal(plain_count(path), 0);
        }
    }
}

/* A waiter asks three times for its place, and then for nothing until it is woken; taking the lock over is one round
 * trip, with a write where the last one is long ago. */
TEST(hand_over_is_one_round_trip) {
    struct dlock_wake wake;
    struct task task;
    warm("handed over");
    CLAIM_INIT(holder, "handed over", 'b', 1);
    CLAIM_INIT(waiter, "handed over", 'a', 1);
    assert_int_equal(acquire(&near, &holder), 0);
    int all = proxy_seen(proxy, -1);
    assert_int_equal(queue_up(&far, &waiter), DLOCK_EBUSY);
    assert_int_equal(proxy_seen(proxy, -1), all + 3); /* create, list; watch */
    sleep_ms(500);
    assert_int_equal(proxy_seen(proxy, -1), all + 3);
    assert_int_equal(release(&near, &holder), 0);
    assert_true(wake_within(&far, &wake, 5000));
    int lists = proxy_seen(proxy, OP_CHILDREN);
    proxy_hold(proxy, true);
    task_begin(&task, backend->acquire, &far, &waiter, DLOCK_CLAIM_QUEUE);
    assert_true(proxy_await(proxy, OP_CHILDREN, lists + 1));
    assert_int_equal(proxy_seen(proxy, -1), all + 4); /* list */
    proxy_hold(proxy, false);
    assert_int_equal(task_end(&task), 0);
    assert_int_equal(waiter.claim.result, 0);
    assert_int_equal(release(&far, &waiter), 0);
    assert_int_equal(proxy_seen(proxy, -1), all + 5);
}

/* A claim that has waited for long does not know that its session lives. */
TEST(long_wait_ends_with_a_write) {
    struct dlock_wake wake;
    LINK(brief, proxy_port(proxy), "2s", 'c');
    CLAIM_INIT(holder, "waited long", 'b', 1);
    CLAIM_INIT(waiter, "waited long", 'c', 1);
    assert_int_equal(acquire(&near, &holder), 0);
    assert_int_equal(queue_up(&brief, &waiter), DLOCK_EBUSY);
    sleep_ms(1500);
    int writes = proxy_seen(proxy, OP_MULTI), all = proxy_seen(proxy, -1);
    assert_int_equal(release(&near, &holder), 0);
    assert_true(wake_within(&brief, &wake, 5000));
    assert_int_equal(queue_up(&brief, &waiter), 0);
    assert_in_range(waiter.claim.kept_ms, 1, 2000);
    assert_int_equal(proxy_seen(proxy, OP_MULTI) - writes, 1);
    assert_int_equal(proxy_seen(proxy, -1) - all, 2);
    assert_int_equal(release(&brief, &waiter), 0);
}

enum { MANY = 1000 };

/* Claims of many names. */
struct many {
    struct held *held;
    struct dlock_claim *claims[MANY];
    char (*names)[16];
};

static void many_acquire(struct many *many, struct link *link, char letter, size_t n) {
    many->held = calloc(n, sizeof *many->held);
    many->names = calloc(n, sizeof *many->names);
    for (size_t i = 0; i < n; i++) {
        snprintf(many->names[i], sizeof many->names[i], "many-%04zu", i);
        claim_init(&many->held[i], many->names[i], letter, (int)i);
        many->claims[i] = &many->held[i].claim;
        assert_int_equal(acquire(link, &many->held[i]), 0);
    }
}

static void many_release(struct many *many, struct link *link, size_t n) {
    for (size_t i = 0; i < n; i++) release(link, &many->held[i]);
    free(many->held);
    free(many->names);
}

/* Renews n claims as the core does, 256 at a time. A write proves that the session lived when it began, or when it was
 * heard of 1.5 s ago, and no later. */
static void renew_all(struct dlock_claim **claims, size_t n) {
    int64_t age_ms = now_ms() - linked_ms, most_ms = 10000 - (age_ms < 1500 ? age_ms : 1500);
    for (size_t done = 0; done < n; done += 256) {
        size_t part = n - done < 256 ? n - done : 256;
        assert_int_equal(backend->renew(far.conn, claims + done, part, TIMEOUT_MS, NULL), 0);
        for (size_t i = done; i < done + part; i++) {
            assert_int_equal(claims[i]->result, 0);
            assert_in_range(claims[i]->kept_ms, 1000, most_ms);
        }
    }
}

/* The write has no more in it for many locks than for one, and reads leave nothing in the server's log: nor do those with
 * which the first renewal sets watches. */
TEST(renewing_a_thousand_is_one_write) {
    struct many many;
    many_acquire(&many, &far, 'a', MANY);
    int before = proxy_seen(proxy, -1), first = proxy_seen(proxy, OP_MULTI);
    renew_all(many.claims, MANY);
    assert_int_equal(proxy_seen(proxy, -1) - before, MANY + proxy_seen(proxy, OP_MULTI) - first);
    assert_in_range(proxy_seen(proxy, OP_MULTI) - first, 0, 1 + (MANY - 1) / 256);
    for (int i = 0; i < 3; i++) {
        sleep_ms(1000); /* without a write */
        int writes = proxy_seen(proxy, OP_MULTI), all = proxy_seen(proxy, -1), looks = proxy_seen(proxy, OP_EXISTS);
        size_t bytes = proxy_sent(proxy, OP_MULTI);
        int64_t begun = now_ms();
        renew_all(many.claims, MANY);
        if (now_ms() - begun > 10000 / 16) continue; /* a slow machine */
        assert_int_equal(proxy_seen(proxy, OP_MULTI) - writes, 1);
        assert_in_range(proxy_sent(proxy, OP_MULTI) - bytes, 1, 100);
        assert_int_equal(proxy_seen(proxy, -1) - all, 1);
        assert_in_range(proxy_seen(proxy, OP_EXISTS) - looks, MANY, MANY + 1); /* one may be a keepalive */
    }
    many_release(&many, &far, MANY);
}

/* A client that renews very many looks at some of the nodes with each renewal, and at each node with one of them. */
TEST(nodes_of_very_many_are_looked_at_in_turns) {
    enum { VERY_MANY = 200, SESSION_MS = 2000 };
    struct many many;
    LINK(brief, proxy_port(proxy), "2s", 'c');
    many_acquire(&many, &brief, 'c', VERY_MANY);
    int fewest = VERY_MANY;
    for (int64_t until = now_ms() + 2 * SESSION_MS; now_ms() < until;) {
        int looks = proxy_seen(proxy, OP_EXISTS);
        assert_int_equal(backend->renew(brief.conn, many.claims, VERY_MANY, TIMEOUT_MS, NULL), 0);
        for (size_t i = 0; i < VERY_MANY; i++) assert_int_equal(many.claims[i]->result, 0);
        looks = proxy_seen(proxy, OP_EXISTS) - looks;
        if (looks < fewest) fewest = looks;
        sleep_ms(10);
    }
    assert_in_range(fewest, 0, VERY_MANY / 2);
    assert_int_equal(backend->break_lock(near.conn, many.names[VERY_MANY / 2], TIMEOUT_MS, NULL), 0);
    const struct dlock_claim *broken = many.claims[VERY_MANY / 2];
    for (int i = 0; broken->result == 0 && i < 1024; i++)
        assert_int_equal(backend->renew(brief.conn, many.claims, VERY_MANY, TIMEOUT_MS, NULL), 0);
    assert_int_equal(broken->result, DLOCK_ELOST);
    many_release(&many, &brief, VERY_MANY);
}

static int count_one(const struct dlock_info *info, void *arg) {
    (void)info;
    ++*(int *)arg;
    return 0;
}

/* Returns how many holders were shown. */
static void *list_all(void *arg) {
    char cursor[256] = "";
    int shown = 0;
    (void)arg;
    while (backend->list(far.conn, "many-", cursor, count_one, &shown, TIMEOUT_MS, NULL) == 1) {
    }
    return (void *)(intptr_t)shown;
}

/* The names are read once for all pages, and a page's locks are read without waiting for each other. */
TEST(list_of_a_thousand_is_two_round_trips_a_page) {
    enum {
        PAGE = 500,
        OTHERS = 4 /* locks of other tests whose names are too long to be told from these by their nodes */
    };
    struct many many;
    pthread_t thread;
    void *shown;
    many_acquire(&many, &far, 'a', MANY);
    int lists = proxy_seen(proxy, OP_CHILDREN), gets = proxy_seen(proxy, OP_GET);
    proxy_hold_after(proxy, OP_CHILDREN, 2);
    assert_int_equal(pthread_create(&thread, NULL, list_all, NULL), 0);
    assert_true(proxy_await(proxy, OP_CHILDREN, lists + 1 + PAGE)); /* before any answer but the first */
    proxy_hold_after(proxy, OP_GET, 1);
    proxy_hold(proxy, false);
    assert_true(proxy_await(proxy, OP_GET, gets + PAGE));
    proxy_hold(proxy, false);
    pthread_join(thread, &shown);
    assert_int_equal((intptr_t)shown, MANY);
    assert_in_range(proxy_seen(proxy, OP_CHILDREN) - lists, 1 + MANY, 1 + MANY + OTHERS);
    assert_in_range(proxy_seen(proxy, OP_GET) - gets, MANY, MANY + OTHERS);
    many_release(&many, &far, MANY);
}

/* An operation whose time is over returns; its late answers disturb no other. */
TEST(late_answers_are_dropped) {
    struct dlock_error err = {0};
    warm("late");
    CLAIM_INIT(held, "late", 'a', 1);
    proxy_hold(proxy, true);
    int64_t begun = now_ms();
    assert_int_equal(held_run(backend->acquire, &far, &held, 0, 300, &err), 0);
    assert_int_equal(held.claim.result, DLOCK_EUNAVAILABLE);
    assert_int_equal(err.code, DLOCK_EUNAVAILABLE);
    assert_in_range(now_ms() - begun, 290, 2000);
    assert_int_equal(held_run(backend->renew, &far, &held, 0, 300, &err), 0);
    proxy_hold(proxy, false);
    assert_int_equal(release(&far, &held), 0); /* found, although nothing was answered */
    assert_int_equal(plain_count(BASE "/late"), 0);
    CLAIM_INIT(next, "late", 'a', 2);
    assert_int_equal(acquire(&far, &next), 0);
    assert_int_equal(release(&far, &next), 0);
}

TESTS(setup, behind_end, backend_load, NULL)
