/* dlock_free and dlock_close, in every order and at every moment. */
#include "thread.h"

#include <dirent.h>

void case_close_ends_waits(void) {
    enum { N = 4 };
    dlock_client *holder = open_client(), *client = open_client();
    SCOPED_LOCK *held = new_lock(holder, suite.name, NULL);
    EXPECT_CODE(0, dlock_acquire(held, 0, ERR));
    pthread_t threads[N];
    struct call waits[N];
    for (int i = 0; i < N; i++) {
        waits[i] = (struct call){.lock = new_lock(client, suite.name, NULL),
                                 .timeout_ms = i % 2 ? DLOCK_FOREVER : PATIENCE_MS};
        threads[i] = start_thread(acquire_here, &waits[i]);
    }
    sleep_ms(300);
    int64_t begun = now_ms();
    dlock_close(client);
    for (int i = 0; i < N; i++) {
        pthread_join(threads[i], NULL);
        EXPECT_CODE(DLOCK_ECANCELED, waits[i].code);
        EXPECT_CODE(DLOCK_ECANCELED, dlock_acquire(waits[i].lock, 0, ERR));
        EXPECT_CODE(DLOCK_ECANCELED, dlock_release(waits[i].lock, ERR));
        EXPECT(!dlock_held(waits[i].lock) && dlock_remaining_ms(waits[i].lock) == 0);
        dlock_free(waits[i].lock);
    }
    EXPECT_BETWEEN(0, SLACK_MS, now_ms() - begun);
    EXPECT_CODE(0, dlock_release(held, ERR));
    /* Until the server of a session notices that the connection of a wait is gone, it may grant that wait the lock. */
    EXPECT_CODE(0, dlock_acquire(held, suite.caps & DLOCK_CAP_SESSION ? PATIENCE_MS : 0, ERR));
    EXPECT_CODE(0, dlock_release(held, ERR));
    dlock_close(holder);
}

void case_close_refuses_every_call(void) {
    struct dlock_options by_handle = DLOCK_OPTIONS_INIT;
    by_handle.owner = DLOCK_OWNER_HANDLE;
    for (int held = 0; held < 2; held++) {
        dlock_client *client = open_client();
        SCOPED_LOCK *lock = new_lock(client, suite.name, &by_handle);
        char text[DLOCK_TICKET_MAX + 1] = "";
        if (held) EXPECT_CODE(0, dlock_acquire(lock, SLACK_MS, ERR));
        dlock_close(client);
        EXPECT_CODE(DLOCK_ECANCELED, dlock_acquire(lock, DLOCK_FOREVER, ERR));
        EXPECT_CODE(DLOCK_ECANCELED, dlock_release(lock, ERR));
        EXPECT_CODE(DLOCK_ECANCELED, dlock_acquire_all(&lock, 1, DLOCK_FOREVER, ERR));
        EXPECT_CODE(DLOCK_ECANCELED, dlock_release_all(&lock, 1, ERR));
        EXPECT_CODE(DLOCK_ECANCELED, dlock_acquire_async(lock, DLOCK_FOREVER, never_called, NULL));
        EXPECT_CODE(DLOCK_ECANCELED, dlock_release_async(lock, never_called, NULL));
        if (suite.caps & DLOCK_CAP_SHARED) EXPECT_CODE(DLOCK_ECANCELED, dlock_downgrade(lock, ERR));
        EXPECT_CODE(DLOCK_ECANCELED, dlock_extend(lock, 0, ERR));
        if (suite.caps & DLOCK_CAP_EXPORT) EXPECT_CODE(DLOCK_ECANCELED, dlock_export(lock, text, sizeof text, ERR));
        EXPECT_CODE(DLOCK_ECANCELED, dlock_token(lock, text, sizeof text, ERR));
        EXPECT_CODE(0, dlock_cancel(lock));
        EXPECT(!dlock_held(lock) && dlock_fence(lock) == 0 && dlock_remaining_ms(lock) == 0 && text[0] == '\0');
        EXPECT_FREE(suite.name);
    }
}

static void *work_until_closed(void *arg) {
    for (;;) {
        int code = dlock_acquire(arg, PATIENCE_MS, NULL);
        if (code == 0) code = dlock_release(arg, NULL);
        if (code == 0) continue;
        EXPECT_CODE(DLOCK_ECANCELED, code);
        return NULL;
    }
}

void case_close_while_threads_work(void) {
    enum { ROUNDS = 8, N = 4 };
    for (int round = 0; round < ROUNDS; round++) {
        dlock_client *client = open_client();
        dlock_lock *locks[N];
        pthread_t threads[N];
        for (int i = 0; i < N; i++) {
            locks[i] = new_lock(client, suite.name, NULL);
            threads[i] = start_thread(work_until_closed, locks[i]);
        }
        sleep_ms(20 + round);
        dlock_close(client);
        EXPECT_FREE(suite.name);
        for (int i = 0; i < N; i++) pthread_join(threads[i], NULL);
        for (int i = 0; i < N; i++) dlock_free(locks[i]);
    }
}

/* Freeing one of two handles releases its part of the count; the rest stays. */
void case_free_gives_back_its_share(void) {
    SCOPED_CLIENT *client = open_client();
    dlock_lock *one = new_lock(client, suite.name, NULL), *two = new_lock(client, suite.name, NULL);
    EXPECT_CODE(0, dlock_acquire(one, 0, ERR));
    EXPECT_CODE(0, dlock_acquire(one, 0, ERR));
    EXPECT_CODE(0, dlock_acquire(two, 0, ERR));
    dlock_free(one);
    EXPECT(dlock_held(two));
    EXPECT_TAKEN(suite.name);
    EXPECT_CODE(0, dlock_release(two, ERR));
    EXPECT_CODE(DLOCK_EOWNER, dlock_release(two, ERR));
    EXPECT_FREE(suite.name);
    dlock_free(two);
}

void case_free_ends_waits(void) {
    SCOPED_CLIENT *holder = open_client(), *client = open_client();
    SCOPED_LOCK *held = new_lock(holder, suite.name, NULL);
    EXPECT_CODE(0, dlock_acquire(held, 0, ERR));
    struct call wait = {.lock = new_lock(client, suite.name, NULL), .timeout_ms = DLOCK_FOREVER};
    pthread_t thread = start_thread(acquire_here, &wait);
    sleep_ms(300);
    dlock_free(wait.lock);
    pthread_join(thread, NULL);
    EXPECT_CODE(DLOCK_ECANCELED, wait.code);
    EXPECT_CODE(0, dlock_release(held, ERR));
    EXPECT_FREE(suite.name);
}

void case_free_while_another_handle_waits(void) {
    SCOPED_CLIENT *client = open_client();
    dlock_lock *one = new_lock(client, suite.name, NULL), *two = new_lock(client, suite.name, NULL);
    EXPECT_CODE(0, dlock_acquire(one, 0, ERR));
    struct call wait = {.lock = two, .timeout_ms = DLOCK_FOREVER};
    pthread_t thread = start_thread(acquire_here, &wait);
    sleep_ms(200);
    dlock_lock *idle = new_lock(client, suite.name, NULL);
    dlock_free(idle); /* neither holds nor waits: ends nothing */
    sleep_ms(100);
    EXPECT(dlock_held(one));
    int64_t begun = now_ms();
    dlock_free(one); /* holds: hands over */
    pthread_join(thread, NULL);
    EXPECT_CODE(0, wait.code);
    EXPECT_BETWEEN(0, SLACK_MS, now_ms() - begun);
    EXPECT_FREE(suite.name);
    dlock_free(two);
}

/* Two handles and their client are ended in each of the six orders, with nothing held, one held, and both held
 * (re-entry). */
void case_free_and_close_in_any_order(void) {
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    struct dlock_options options = options_with(LONG_LEASE_MS, 0);
    for (int i = 0; i < 18; i++) {
        dlock_client *client = open_client();
        dlock_lock *locks[2] = {new_lock(client, suite.name, &options), new_lock(client, suite.name, &options)};
        for (int held = 0; held < i / 6; held++) EXPECT_CODE(0, dlock_acquire(locks[held], 0, ERR));
        for (int step = 0; step < 3; step++) {
            int what = orders[i % 6][step];
            if (what == 2)
                dlock_close(client);
            else
                dlock_free(locks[what]);
        }
        EXPECT_FREE(suite.name);
    }
}

static int count_entries(const char *path) {
    int n = 0;
    DIR *directory = opendir(path);
    if (!directory) FAIL("cannot open %s", path);
    while (readdir(directory)) n++;
    closedir(directory);
    return n;
}

static void whole_life(void) {
    SCOPED_CLIENT *client = open_client(), *other = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, NULL), *wanted = new_lock(other, suite.name, NULL);
    /* The second one may be too short for an answer, and be granted without the client's knowledge: then the next first
     * one has to wait until that lease ends. */
    EXPECT_CODE(0, dlock_acquire(lock, PATIENCE_MS, ERR));
    int code = dlock_acquire(wanted, 5, NULL);
    EXPECT(code == DLOCK_ETIMEDOUT || code == DLOCK_EUNAVAILABLE);
    EXPECT_CODE(0, dlock_release(lock, ERR));
}

/* Neither descriptors nor threads accumulate. Threads that end in the background get a moment for it. */
void case_clients_leave_nothing_behind(void) {
    for (int i = 0; i < 3; i++) whole_life();
    sleep_ms(200);
    int fds = count_entries("/proc/self/fd"), tasks = count_entries("/proc/self/task");
    for (int i = 0; i < 30; i++) whole_life();
    int64_t until = now_ms() + SLACK_MS;
    while (count_entries("/proc/self/fd") > fds || count_entries("/proc/self/task") > tasks) {
        if (now_ms() > until)
            FAIL("after 30 clients there are %d descriptors instead of %d and %d threads instead of %d",
                 count_entries("/proc/self/fd"), fds, count_entries("/proc/self/task"), tasks);
        sleep_ms(20);
    }
}
