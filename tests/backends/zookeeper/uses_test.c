/* The use of a name: as a lock, or as permits of one limit. One use at a time, whatever clients do while another one
 * looks; and a request that will be refused is not a use. */
#include "trio.h"

#include <stdatomic.h>
#include <stdio.h>

static struct proxy *proxy;
static struct link far; /* client d, through the proxy */

static int setup(void **state) {
    trio_begin(state);
    proxy = proxy_new(shared_port());
    link_new(&far, proxy_port(proxy), "10s", 'd');
    return 0;
}

static int teardown(void **state) {
    link_end(&far);
    proxy_end(proxy);
    return trio_end(state);
}

/* ---- one use at a time ------------------------------------------------------------------------------------------- */

TEST(another_use_is_named) {
    CLAIM_AS(held, "one use", 'a', 1, DLOCK_PERMIT, 3);
    assert_int_equal(acquire(&one, &held), 0);
    CLAIM_AS(other, "one use", 'b', 2, DLOCK_PERMIT, 4);
    expect_einval(&two, &other, "in use as 3 permits, not 4");
    assert_int_equal(release(&one, &held), 0);
    assert_int_equal(plain_count(BASE "/one use/leases"), 0);
    assert_int_equal(plain_count(BASE "/one use/locks"), 0);
}

/* The first use of a name is not disturbed by wrong ones that come later, in whatever order they go. */
TEST(first_use_is_right) {
    char made[256];
    CLAIM_AS(holder, "rightful", 'a', 1, DLOCK_PERMIT, 2);
    assert_int_equal(acquire(&one, &holder), 0);
    plain_make(BASE "/rightful/x-lock-", "", ZOO_EPHEMERAL_SEQUENTIAL, made, sizeof made); /* some lock's node */
    CLAIM_AS(other, "rightful", 'b', 1, DLOCK_EXCLUSIVE, 0);
    expect_einval(&two, &other, "in use as 2 permits"); /* although it is not the first in the lock's line */
    assert_int_equal(acquire(&one, &holder), 0);
    plain_delete(made);
    assert_int_equal(release(&one, &holder), 0);

    claim_as(&holder, "rightful", 'a', 2, DLOCK_EXCLUSIVE, 0);
    CLAIM_AS(waiter, "rightful", 'b', 2, DLOCK_SHARED, 0);
    assert_int_equal(acquire(&one, &holder), 0);
    assert_int_equal(queue_up(&two, &waiter), DLOCK_EBUSY);
    plain_make(BASE "/rightful/leases/x-lease-", "", ZOO_EPHEMERAL_SEQUENTIAL, made, sizeof made);
    claim_as(&other, "rightful", 'c', 2, DLOCK_PERMIT, 1);
    expect_einval(&three, &other, "in use as a lock");
    assert_int_equal(release(&one, &holder), 0);
    assert_int_equal(queue_up(&two, &waiter), 0); /* it was here before that lease */
    claim_as(&holder, "rightful", 'a', 3, DLOCK_SHARED, 0);
    expect_einval(&one, &holder, "in use as permits"); /* and this was not */
    plain_delete(made);
    assert_int_equal(release(&two, &waiter), 0);
}

/* ---- changes while a client looks -------------------------------------------------------------------------------- */

/* The claim's answers stay in the proxy from its n-th listing on; then `move` does something; then they come. */
static void refused_whenever(struct held *held, int n, void (*move)(const char *)) {
    struct task task;
    int lists = proxy_seen(proxy, OP_CHILDREN);
    proxy_hold_after(proxy, OP_CHILDREN, n);
    task_begin(&task, backend->acquire, &far, held, DLOCK_CLAIM_QUEUE);
    while (proxy_seen(proxy, OP_CHILDREN) < lists + n && !atomic_load(&task.over)) sleep_ms(2);
    sleep_ms(100); /* the server has answered */
    move(held->claim.name);
    proxy_hold_after(proxy, 0, 0);
    proxy_hold(proxy, false);
    assert_int_equal(task_end(&task), 0);
    assert_int_equal(held->claim.result, DLOCK_EINVAL);
}

/* Client b's claim of one permit. */
static struct held moving;

/* Which it waits for, with a node in the queue and none among the leases, which are empty. */
static void wait_in_the_queue_alone(const char *name, int serial) {
    CLAIM_AS(holder, name, 'a', serial, DLOCK_PERMIT, 1);
    CLAIM_AS(first, name, 'c', serial, DLOCK_PERMIT, 1);
    claim_as(&moving, name, 'b', serial, DLOCK_PERMIT, 1);
    assert_int_equal(acquire(&one, &holder), 0);
    assert_int_equal(queue_up(&three, &first), DLOCK_EBUSY);
    assert_int_equal(queue_up(&two, &moving), DLOCK_EBUSY);
    assert_int_equal(release(&three, &first), DLOCK_ELOST);
    assert_int_equal(release(&one, &holder), 0);
    expect_look(&two, name);
}

static void move_up(const char *name) {
    (void)name;
    assert_int_equal(queue_up(&two, &moving), 0);
}

/* From the queue to the leases, between any two listings of another claim. */
TEST_WITH(setup, teardown, waiter_that_moves_up_is_seen) {
    enum { LISTINGS = 5 };
    for (int n = 1; n <= 2 * LISTINGS; n++) {
        char name[32];
        snprintf(name, sizeof name, "moving-%d", n);
        wait_in_the_queue_alone(name, n);
        CLAIM_AS(other, name, 'd', n, n % 2 ? DLOCK_EXCLUSIVE : DLOCK_PERMIT, n % 2 ? 0 : 3);
        refused_whenever(&other, (n + 1) / 2, move_up);
        assert_int_equal(renew(&two, &moving), 0);
        assert_int_equal(release(&two, &moving), 0);
    }
}

static void move_down(const char *name) {
    (void)name;
    moving.claim.mode = DLOCK_SHARED;
    assert_int_equal(renew(&two, &moving), 0);
}

/* From a writer's node to a reader's, which is younger. */
TEST_WITH(setup, teardown, downgraded_writer_is_seen) {
    enum { LISTINGS = 10 };
    for (int n = 1; n <= LISTINGS; n++) {
        char name[32];
        snprintf(name, sizeof name, "moving down-%d", n);
        claim_as(&moving, name, 'b', n, DLOCK_EXCLUSIVE, 0);
        assert_int_equal(acquire(&two, &moving), 0);
        CLAIM_AS(other, name, 'd', n, DLOCK_PERMIT, 1);
        refused_whenever(&other, n, move_down);
        assert_int_equal(renew(&two, &moving), 0);
        assert_int_equal(release(&two, &moving), 0);
    }
}

/* ---- requests that will be refused ------------------------------------------------------------------------------- */

/* A node as made by clients that ask for this many permits. */
static void stranger(const char *dir, uint32_t limit, char *made, int size) {
    char path[128];
    snprintf(path, sizeof path, BASE "/%s/_c_0a1b2c3d-0000-4000-8000-000000000000-of-%u-%s-", dir, limit,
             strstr(dir, "/leases") ? "lease" : "lock");
    plain_make(path, "", ZOO_EPHEMERAL_SEQUENTIAL, made, size);
}

/* Another limit's node among the leases: the waiter in the queue decides, and the node does not block it. */
TEST(both_lines_decide) {
    char made[256];
    wait_in_the_queue_alone("both lines", 1);
    stranger("both lines/leases", 3, made, sizeof made);
    CLAIM_AS(other, "both lines", 'c', 2, DLOCK_PERMIT, 3);
    expect_einval(&three, &other, "in use as 1 permits, not 3");
    assert_int_equal(queue_up(&two, &moving), 0);
    assert_int_equal(renew(&two, &moving), 0);
    plain_delete(made);
    assert_int_equal(release(&two, &moving), 0);
}

/* It goes within a moment: a request that came after it is valid all the same. */
TEST(passing_node_is_no_use) {
    const char *dirs[] = {"passing/leases", "passing/locks", "passing"};
    const enum dlock_mode modes[] = {DLOCK_PERMIT, DLOCK_EXCLUSIVE};
    struct held held;
    struct task task;
    char made[256];
    CLAIM_AS(holder, "passing", 'a', 1, DLOCK_PERMIT, 2);
    assert_int_equal(acquire(&one, &holder), 0);
    assert_int_equal(release(&one, &holder), 0);
    for (int i = 0; i < 6; i++) {
        enum dlock_mode mode = modes[i / 3];
        if (i == 5) continue; /* a lock's node is another lock's holder */
        stranger(dirs[i % 3], 3, made, sizeof made);
        claim_as(&held, "passing", 'b', i, mode, mode == DLOCK_PERMIT ? 2 : 0);
        task_begin(&task, backend->acquire, &two, &held, i % 2 ? DLOCK_CLAIM_QUEUE : 0);
        sleep_ms(100);
        plain_delete(made);
        assert_int_equal(task_end(&task), 0);
        assert_int_equal(held.claim.result, 0);
        assert_int_equal(release(&two, &held), 0);
    }
}

struct wrong {
    pthread_t thread;
    struct link link;
    enum dlock_mode mode;
    uint32_t limit;
    atomic_bool *stop;
    atomic_int asked;
    int granted;
};

static void *ask_wrongly(void *arg) {
    struct wrong *wrong = arg;
    struct held held;
    while (!atomic_load(wrong->stop)) {
        int asked = atomic_load(&wrong->asked);
        claim_as(&held, "handed on", wrong->link.client[0], asked, wrong->mode, wrong->limit);
        int rc = asked % 2 ? acquire(&wrong->link, &held) : queue_up(&wrong->link, &held);
        if (rc == 0) wrong->granted++;
        (void)release(&wrong->link, &held);
        atomic_store(&wrong->asked, asked + 1);
    }
    return NULL;
}

static bool all_have_asked(struct wrong *wrong, int n) {
    while (n > 0 && atomic_load(&wrong[n - 1].asked) >= 2) n--;
    return n == 0;
}

/* One holder after another, never none, while others make invalid requests: only those are refused. */
TEST(wrong_questions_disturb_nobody) {
    struct wrong wrong[] = {{.mode = DLOCK_PERMIT, .limit = 3}, {.mode = DLOCK_EXCLUSIVE}, {.mode = DLOCK_SHARED}};
    enum { WRONG = sizeof wrong / sizeof *wrong, ROUNDS = 400 };
    atomic_bool stop = false;
    struct held held[2];
    int last = 0;
    claim_as(&held[0], "handed on", 'a', 0, DLOCK_PERMIT, 2);
    assert_int_equal(acquire(&one, &held[0]), 0);
    for (int i = 0; i < WRONG; i++) {
        wrong[i].stop = &stop;
        link_new(&wrong[i].link, shared_port(), "10s", (char)('d' + i));
        assert_int_equal(pthread_create(&wrong[i].thread, NULL, ask_wrongly, &wrong[i]), 0);
    }
    for (int i = 1; i <= ROUNDS || !all_have_asked(wrong, WRONG); i++) {
        struct link *links[] = {&one, &two};
        struct dlock_error err = {0};
        struct held *next = &held[i % 2];
        last = i;
        claim_as(next, "handed on", "ab"[i % 2], i, DLOCK_PERMIT, 2);
        assert_int_equal(held_run(backend->acquire, links[i % 2], next, 0, TIMEOUT_MS, &err), 0);
        if (next->claim.result != 0) fail_msg("round %d: %s", i, err.message);
        assert_int_equal(release(links[(i + 1) % 2], &held[(i + 1) % 2]), 0);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < WRONG; i++) {
        pthread_join(wrong[i].thread, NULL);
        link_end(&wrong[i].link);
        assert_int_equal(wrong[i].granted, 0);
    }
    assert_int_equal(release(last % 2 ? &two : &one, &held[last % 2]), 0);
}

/* They are refused at once, and so ask all the time: one of their nodes, older than the valid request's, always
 * exists. */
TEST(constant_wrong_questions_disturb_nobody) {
    enum { WRONG = 3, ROUNDS = 200, SETTLED_MS = 500 };
    struct wrong wrong[WRONG] = {{.limit = 3}, {.limit = 3}, {.limit = 4}};
    atomic_bool stop = false;
    struct dlock_error err = {0};
    struct held held;
    int rc = 0;
    CLAIM_AS(holder, "handed on", 'a', 0, DLOCK_PERMIT, 2);
    assert_int_equal(acquire(&one, &holder), 0);
    sleep_ms(2 * SETTLED_MS);
    for (int i = 0; i < WRONG; i++) {
        wrong[i].mode = DLOCK_PERMIT;
        wrong[i].stop = &stop;
        link_new(&wrong[i].link, shared_port(), "10s", (char)('d' + i));
        assert_int_equal(pthread_create(&wrong[i].thread, NULL, ask_wrongly, &wrong[i]), 0);
    }
    for (int i = 0; (i < ROUNDS || !all_have_asked(wrong, WRONG)) && rc == 0; i++) {
        claim_as(&held, "handed on", 'b', i, DLOCK_PERMIT, 2);
        (void)held_run(backend->acquire, &two, &held, 0, TIMEOUT_MS, &err);
        rc = held.claim.result;
        if (rc == 0) rc = release(&two, &held);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < WRONG; i++) {
        pthread_join(wrong[i].thread, NULL);
        link_end(&wrong[i].link);
        assert_int_equal(wrong[i].granted, 0);
    }
    if (rc != 0) fail_msg("%d: %s", rc, err.message);
    assert_int_equal(release(&one, &holder), 0);
}

TESTS(trio_begin, trio_end, backend_load, NULL)
