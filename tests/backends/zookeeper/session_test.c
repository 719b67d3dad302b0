/* Through servers of the test's own: stopped, killed, restarted, frozen. */
#include "pair.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static struct site site;

static int setup_site(void **state) {
    backend_load(state);
    setenv("JVMFLAGS", "-Dznode.container.checkIntervalMs=200", 1); /* a minute otherwise */
    site_start(&site);
    return 0;
}

static int teardown_site(void **state) {
    (void)state;
    site_stop(&site);
    return 0;
}

static int setup(void **state) {
    (void)state;
    pair_new(site.port, "60s"); /* longer than a restart takes, however busy the machine is */
    return 0;
}

/* Grants, the line and the fences are on the server's disk. Nor does SIGPIPE come when we write to who is not there. */
TEST(grants_survive_a_restart) {
    struct dlock_error err = {0};
    CLAIM_INIT(holder, "restart", 'a', 1);
    CLAIM_INIT(waiter, "restart", 'b', 1);
    assert_int_equal(acquire(&one, &holder), 0);
    assert_int_equal(renew(&one, &holder), 0);
    assert_int_equal(queue_up(&two, &waiter), DLOCK_EBUSY);
    signal(SIGPIPE, SIG_DFL);
    site_signal(&site, SIGKILL);
    sleep_ms(2000); /* renewed a while ago: the next is asked of the server */
    assert_int_equal(held_run(backend->renew, &one, &holder, 0, 500, &err), 0);
    assert_int_equal(holder.claim.result, DLOCK_EUNAVAILABLE);
    site_again(&site);
    assert_int_equal(persistently(&one, renew, &holder), 0);
    assert_int_equal(persistently(&two, queue_up, &waiter), DLOCK_EBUSY);
    assert_int_equal(release(&one, &holder), 0);
    struct dlock_wake wake;
    assert_true(wake_kind_within(&two, &wake, DLOCK_WAKE_LOOK, 10000));
    assert_int_equal(queue_up(&two, &waiter), 0);
    assert_true(waiter.claim.fence > holder.claim.fence);
    assert_int_equal(release(&two, &waiter), 0);
}

TEST(fences_survive_a_restart) {
    uint64_t last = 0;
    for (int i = 0; i < 3; i++) {
        CLAIM_INIT(held, "fences", 'a', i);
        assert_int_equal(persistently(&one, acquire, &held), 0);
        assert_true(held.claim.fence > last);
        last = held.claim.fence;
        assert_int_equal(persistently(&one, release, &held), 0);
        if (i == 1) {
            site_restart(&site);
        }
    }
}

enum { SHORTEST_MS = 400, LONGEST_MS = 60000 }; /* sessions that the server allows at first */

static void restart_with_sessions(int least_ms, int most_ms) {
    site_sessions(&site, least_ms, most_ms);
    site_restart(&site);
}

/* From a reconnect on the server keeps the session for what it allows by then. Grants that were promised for longer
 * would outlive it. */
TEST(shorter_session_ends_its_grants) {
    struct dlock_error err = {0};
    struct dlock_wake wake;
    CLAIM_INIT(held, "shorter", 'a', 1);
    assert_int_equal(acquire(&one, &held), 0);
    assert_in_range(held.claim.kept_ms, LONGEST_MS / 2, LONGEST_MS);
    restart_with_sessions(SHORTEST_MS, LONGEST_MS / 4);
    assert_true(wake_kind_within(&one, &wake, DLOCK_WAKE_LOST, LONGEST_MS));
    assert_null(wake.name);
    assert_int_equal(held_run(backend->renew, &one, &held, 0, TIMEOUT_MS, &err), DLOCK_EUNAVAILABLE);
    link_end(&one);
    link_new(&one, site.port, "60s", 'a');
    assert_int_equal(renew(&one, &held), DLOCK_ELOST);
    claim_init(&held, "shorter", 'a', 2);
    assert_int_equal(acquire(&one, &held), 0);
    assert_in_range(held.claim.kept_ms, 0, LONGEST_MS / 4);
    assert_int_equal(release(&one, &held), 0);
    restart_with_sessions(SHORTEST_MS, LONGEST_MS);
}

/* A new leader restarts every session with the length that it had when it began. */
TEST(longer_session_promises_no_more) {
    struct link brief;
    link_new(&brief, site.port, "40s", 'c');
    CLAIM_INIT(held, "longer", 'c', 1);
    assert_int_equal(acquire(&brief, &held), 0);
    restart_with_sessions(LONGEST_MS, LONGEST_MS);
    assert_int_equal(persistently(&brief, renew, &held), 0);
    assert_in_range(held.claim.kept_ms, 0, 40000);
    restart_with_sessions(SHORTEST_MS, 40000); /* no shorter than what it promised */
    assert_int_equal(persistently(&brief, renew, &held), 0);
    assert_int_equal(release(&brief, &held), 0);
    link_end(&brief);
    restart_with_sessions(SHORTEST_MS, LONGEST_MS);
}

/* A server that stops for longer than a session may end it or not; but no client is granted a lock that another one
   still has. */
TEST(frozen_server) {
    struct dlock_error err = {0};
    LINK(brief, site.port, "1s", 'c');
    CLAIM_INIT(held, "frozen", 'c', 1);
    CLAIM_INIT(next, "frozen", 'a', 1);
    assert_int_equal(acquire(&brief, &held), 0);
    site_signal(&site, SIGSTOP);
    int64_t begun = now_ms();
    sleep_ms(200);
    assert_int_equal(held_run(backend->renew, &brief, &held, 0, 300, &err), 0);
    assert_int_equal(held.claim.result, DLOCK_EUNAVAILABLE);
    assert_in_range(now_ms() - begun, 400, 2500);
    sleep_ms(2000);
    site_signal(&site, SIGCONT);
    int rc = DLOCK_EUNAVAILABLE;
    for (int64_t until = now_ms() + 20000; now_ms() < until; sleep_ms(20)) {
        rc = held_run(backend->renew, &brief, &held, 0, 1000, &err);
        if (rc != 0 || held.claim.result != DLOCK_EUNAVAILABLE) break;
    }
    if (rc == 0) {
        assert_int_equal(held.claim.result, 0);
        assert_int_equal(persistently(&one, acquire, &next), DLOCK_EBUSY);
    } else {
        assert_int_equal(rc, DLOCK_EUNAVAILABLE); /* given up, perhaps before the server has ended it: */
        link_end(&brief);                         /* as the core does then */
        for (int64_t until = now_ms() + 20000; (rc = persistently(&one, acquire, &next)) == DLOCK_EBUSY; sleep_ms(20))
            assert_true(now_ms() < until);
        assert_int_equal(rc, 0);
        assert_true(next.claim.fence > held.claim.fence);
        assert_int_equal(persistently(&one, release, &next), 0);
    }
}

/* The library alone would wait 1.5 s; the quickest of some closes, since the machine may be busy. */
TEST(closing_does_not_wait_for_a_frozen_server) {
    struct link late;
    struct held held;
    char name[32] = "";
    int64_t took = INT64_MAX;
    for (int i = 0; i < 4 && took > 1000; i++) {
        link_new(&late, site.port, "30s", 'c');
        snprintf(name, sizeof name, "frozen close %d", i);
        claim_init(&held, name, 'c', 1);
        assert_int_equal(persistently(&late, acquire, &held), 0);
        site_signal(&site, SIGSTOP);
        int64_t begun = now_ms();
        link_end(&late);
        took = now_ms() - begun;
        site_signal(&site, SIGCONT);
    }
    assert_in_range(took, 0, 1000);
    claim_init(&held, name, 'a', 1); /* the goodbye was read in the end */
    for (int64_t until = now_ms() + 10000; persistently(&one, acquire, &held) != 0; sleep_ms(20))
        assert_true(now_ms() < until);
    assert_int_equal(release(&one, &held), 0);
}

/* The server removes unused containers, at any moment also those that a claim is using. */
TEST(containers_go_and_come) {
    struct held held;
    struct Stat stat;
    zhandle_t *handle = plain_to(site.port);
    for (int i = 0; i < 5; i++) {
        claim_init(&held, "coming and going", 'a', i);
        assert_int_equal(acquire(&one, &held), 0);
        assert_int_equal(release(&one, &held), 0);
        for (int64_t until = now_ms() + 10000; zoo_exists(handle, BASE "/coming and going", 0, &stat) == ZOK;
             sleep_ms(20))
            assert_true(now_ms() < until);
    }
    for (int i = 0; i < 300; i++) {
        claim_init(&held, "coming and going", 'a', 100 + i);
        assert_int_equal(acquire(&one, &held), 0);
        assert_int_equal(release(&one, &held), 0);
        sleep_ms(i % 5);
    }
    zookeeper_close(handle);
}

static atomic_bool stopped;

static void stand_still(int number) {
    (void)number;
    atomic_store(&stopped, true);
    nanosleep(&(const struct timespec){0, 400000000}, NULL);
}

struct brief {
    struct link link;
    struct held held;
};

static void *ask_briefly(void *arg) {
    struct brief *brief = arg;
    held_run(backend->acquire, &brief->link, &brief->held, 0, 300, NULL);
    return NULL;
}

/* The answer is there, but the thread was not given a processor until its time was over. That there is no container yet
 * is nothing that the server did wrong. */
TEST(time_is_over_before_there_is_a_container) {
    const struct sigaction still = {.sa_handler = stand_still, .sa_flags = SA_RESTART};
    SCOPED_PROXY *proxy = proxy_new(site.port);
    struct brief brief;
    pthread_t thread;
    link_new(&brief.link, proxy_port(proxy), "10s", 'c');
    claim_init(&brief.held, "never seen before", 'c', 1);
    assert_int_equal(sigaction(SIGUSR1, &still, NULL), 0);
    proxy_hold(proxy, true);
    assert_int_equal(pthread_create(&thread, NULL, ask_briefly, &brief), 0);
    assert_true(proxy_await(proxy, OP_CREATE2, 1));
    assert_int_equal(pthread_kill(thread, SIGUSR1), 0);
    while (!atomic_load(&stopped)) sleep_ms(1);
    proxy_hold(proxy, false);
    pthread_join(thread, NULL);
    assert_int_equal(brief.held.claim.result, DLOCK_EUNAVAILABLE);
    assert_int_equal(acquire(&brief.link, &brief.held), 0);
    assert_int_equal(release(&brief.link, &brief.held), 0);
    link_end(&brief.link);
}

TESTS(setup, pair_end, setup_site, teardown_site)
