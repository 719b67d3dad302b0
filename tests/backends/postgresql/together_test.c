/* mode=session: several locks at once, which have a connection each. */
#include "site.h"
#include "support/api.h"

#include <pthread.h>
#include <stdio.h>

enum { LOCKS = 10, CLIENTS = 10, ROUNDS = 10 };

struct together {
    dlock_client *client;
    dlock_lock *locks[LOCKS];
    pthread_barrier_t *barrier;
    int result;
};

static void together_new(struct together *together, const char *names) {
    together->client = api_client("%s&application_name=%s", getenv("DLOCK_TEST_URI_postgresql_session"), names);
    for (int i = 0; i < LOCKS; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s %d", names, i);
        together->locks[i] = api_lock(together->client, name, NULL);
    }
}

static void together_end(struct together *together) {
    for (int i = 0; i < LOCKS; i++) dlock_free(together->locks[i]);
    dlock_close(together->client);
}

static void *try_once(void *arg) {
    struct together *together = arg;
    pthread_barrier_wait(together->barrier);
    together->result = dlock_acquire_all(together->locks, LOCKS, 0, NULL);
    pthread_barrier_wait(together->barrier);
    if (together->result == 0) dlock_release_all(together->locks, LOCKS, NULL);
    return NULL;
}

/* They do not take the locks from under each other. */
TEST(one_of_many_tries_wins) {
    struct together all[CLIENTS];
    pthread_t threads[CLIENTS];
    pthread_barrier_t barrier;
    assert_int_equal(pthread_barrier_init(&barrier, NULL, CLIENTS), 0);
    for (int i = 0; i < CLIENTS; i++) together_new(&all[i], "tries");
    for (int round = 0; round < ROUNDS; round++) {
        int won = 0;
        for (int i = 0; i < CLIENTS; i++) {
            all[i].barrier = &barrier;
            assert_int_equal(pthread_create(&threads[i], NULL, try_once, &all[i]), 0);
        }
        for (int i = 0; i < CLIENTS; i++) {
            assert_int_equal(pthread_join(threads[i], NULL), 0);
            assert_true(all[i].result == 0 || all[i].result == DLOCK_EBUSY);
            won += all[i].result == 0;
        }
        assert_int_equal(won, 1);
    }
    for (int i = 0; i < CLIENTS; i++) together_end(&all[i]);
    pthread_barrier_destroy(&barrier);
}

/* A turn of more locks than idle connections are kept opens no new ones. */
TEST(turns_keep_their_connections) {
    struct together together;
    char since[64];
    together_new(&together, "turns");
    for (int turn = 0; turn < ROUNDS; turn++) {
        assert_int_equal(dlock_acquire_all(together.locks, LOCKS, -1, NULL), 0);
        if (turn == 0) snprintf(since, sizeof since, "%s", sql_text("SELECT clock_timestamp()::text"));
        if (turn > 0)
            assert_int_equal(
                sql_number("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE '%%turns' AND "
                           "backend_start > '%s'",
                           since),
                0);
        assert_int_equal(sql_number(
                             "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = "
                             "'advisory' AND a.application_name LIKE '%%turns'"),
                         LOCKS);
        assert_int_equal(dlock_release_all(together.locks, LOCKS, NULL), 0);
    }
    together_end(&together);
}

TESTS(NULL, NULL, site_begin, site_end)
