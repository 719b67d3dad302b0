/* Tests of the fakes that the lock tests rely on. */
#include "fixture.h"

#include "support/scheduler.h"

#include <poll.h>
#include <stdatomic.h>
#include <unistd.h>

struct sleeper {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    int64_t until_us;
    _Atomic int64_t woke_us;
    bool signalled;
};

static void *sleeper_run(void *arg) {
    struct sleeper *sleeper = arg;
    pthread_mutex_lock(&sleeper->mutex);
    while (!sleeper->signalled && dlock__now_us() < sleeper->until_us)
        dlock__cond_wait(&sleeper->cond, &sleeper->mutex, sleeper->until_us);
    pthread_mutex_unlock(&sleeper->mutex);
    atomic_store(&sleeper->woke_us, dlock__now_us());
    return NULL;
}

static void sleeper_start(struct sleeper *sleeper, int64_t until_us, pthread_t *thread) {
    *sleeper = (struct sleeper){.until_us = until_us};
    pthread_mutex_init(&sleeper->mutex, NULL);
    dlock__cond_init(&sleeper->cond);
    assert_int_equal(dlock__thread_start(thread, sleeper_run, sleeper), 0);
}

TEST(waits_end_exactly_at_their_deadline) {
    enum { N = 8 };
    struct sleeper sleepers[N];
    pthread_t threads[N];
    int64_t began = dlock__now_us();
    for (int i = 0; i < N; i++) sleeper_start(&sleepers[i], began + 1000 * (1 + i * 7 % N), &threads[i]);
    fake_advance_us(999);
    for (int i = 0; i < N; i++) assert_int_equal(sleepers[i].woke_us, 0);
    fake_advance_ms(100);
    for (int i = 0; i < N; i++) assert_int_equal(sleepers[i].woke_us, sleepers[i].until_us);
    assert_int_equal(dlock__now_us(), began + 100999);
    for (int i = 0; i < N; i++) pthread_join(threads[i], NULL);
}

TEST(a_signal_ends_a_wait_and_settle_sees_it) {
    for (int i = 0; i < 200; i++) {
        struct sleeper sleeper;
        pthread_t thread;
        sleeper_start(&sleeper, DLOCK__NEVER, &thread);
        fake_settle();
        assert_int_equal(sleeper.woke_us, 0);
        pthread_mutex_lock(&sleeper.mutex);
        sleeper.signalled = true;
        pthread_cond_signal(&sleeper.cond);
        pthread_mutex_unlock(&sleeper.mutex);
        fake_settle();
        assert_int_equal(sleeper.woke_us, dlock__now_us());
        pthread_join(thread, NULL);
    }
}

TEST(a_jump_wakes_nobody_until_settled) {
    struct sleeper sleeper;
    pthread_t thread;
    sleeper_start(&sleeper, dlock__now_us() + 5000, &thread);
    fake_settle();
    fake_jump_ms(60000);
    for (int i = 0; i < 100; i++) sim_yield();
    assert_int_equal(sleeper.woke_us, 0);
    fake_settle();
    assert_int_equal(sleeper.woke_us, sleeper.until_us + 59995000);
    pthread_join(thread, NULL);
}

static bool readable(int fd) {
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return poll(&poll_fd, 1, 0) == 1;
}

TEST(timers_become_readable_in_time) {
    int fd = dlock__timer_open();
    dlock__timer_set(fd, dlock__now_us() + 2000);
    assert_int_equal(fake_next_deadline_us(), dlock__now_us() + 2000);
    fake_advance_us(1999);
    assert_false(readable(fd));
    fake_advance_us(1);
    assert_true(readable(fd));
    dlock__timer_set(fd, dlock__now_us() + 1000);
    assert_false(readable(fd));
    dlock__timer_set(fd, dlock__now_us());
    assert_true(readable(fd));
    dlock__timer_set(fd, DLOCK__NEVER);
    assert_false(readable(fd));
    fake_advance_ms(10);
    assert_false(readable(fd));
    close(fd);
    int other = dlock__timer_open();
    fake_advance_ms(10);
    assert_false(readable(other));
    close(other);
}

TEST(random_numbers_follow_from_the_seed) {
    unsigned char first[16], again[16], other[16];
    fake_env_reset(7);
    dlock__random(first, sizeof first);
    dlock__random(other, sizeof other);
    assert_memory_not_equal(first, other, sizeof first);
    fake_env_reset(7);
    dlock__random(again, sizeof again);
    assert_memory_equal(first, again, sizeof first);
    fake_env_reset(8);
    dlock__random(again, sizeof again);
    assert_memory_not_equal(first, again, sizeof first);
}

TEST(the_server_queues_hands_over_and_expires) {
    fake_other_acquire("n", 1000);
    struct fake_grant first = fake_holder("n");
    assert_true(first.other);
    assert_int_equal(first.left_ms, 1000);
    fake_other_acquire("n", 5000);
    assert_int_equal(fake_waiters("n"), 1);
    fake_other_release(&first, "n");
    struct fake_grant second = fake_holder("n");
    assert_string_not_equal(first.token, second.token);
    assert_true(second.fence > first.fence);
    assert_int_equal(second.left_ms, 3000);
    fake_advance_ms(2999);
    assert_string_equal(fake_holder("n").token, second.token);
    fake_server_step_ms(1);
    assert_string_equal(fake_holder("n").token, "");
    assert_int_equal(fake_grants("n"), 2);
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
