#include "servers.h"

#include "support/clock.h"
#include "support/test.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

struct server member[MEMBERS_MAX];
static bool is_up[MEMBERS_MAX];

void members_begin(int n) {
    for (int i = 0; i < n; i++) {
        server_start(&member[i], NULL);
        is_up[i] = true;
    }
}

void members_end(void) {
    for (int i = 0; i < MEMBERS_MAX; i++) {
        if (!is_up[i]) continue;
        server_stop(&member[i]);
        is_up[i] = false;
    }
}

int members_three(void **state) {
    (void)state;
    members_begin(3);
    return 0;
}

int members_none(void **state) {
    (void)state;
    for (int i = 0; i < MEMBERS_MAX; i++)
        if (member[i].pid) member_continue(i);
    members_end();
    return 0;
}

void member_stop(int i) {
    kill(member[i].pid, SIGSTOP);
}

void member_continue(int i) {
    kill(member[i].pid, SIGCONT);
}

void member_kill(int i) {
    server_kill(&member[i]);
}

void member_restart(int i) {
    server_again(&member[i], NULL);
}

void quorum_uri(char *out, size_t size, int n, const char *query) {
    size_t used = (size_t)snprintf(out, size, "quorum:?%s", query);
    for (int i = 0; i < n; i++)
        used += (size_t)snprintf(out + used, size - used, "&of=redis%%3A%%2F%%2F%s:%d",
                                 i == 1 ? "localhost" : "127.0.0.1", member[i].port); /* one has a name */
    assert_true(used < size);
}

dlock_client *quorum_of(int n, const char *query) {
    char uri[500];
    quorum_uri(uri, sizeof uri, n, query);
    return api_client("%s", uri);
}

static void await_exists(int i, const char *name, int64_t there) {
    for (int64_t until = now_ms() + 30000; ask_number(&member[i], "EXISTS %s", name) != there; sleep_ms(5))
        if (now_ms() > until) fail_msg("member %d: %s is not %s", i, name, there ? "held" : "free");
}

void await_held(int i, const char *name) {
    await_exists(i, name, 1);
}

void await_free(int i, const char *name) {
    await_exists(i, name, 0);
}

int try_once(dlock_client *client, const char *name, uint64_t *fence) {
    dlock_lock *lock = api_lock(client, name, NULL);
    int rc = dlock_acquire(lock, 0, NULL);
    if (rc == 0 && fence) *fence = dlock_fence(lock);
    if (rc == 0) assert_int_equal(dlock_release(lock, NULL), 0);
    dlock_free(lock);
    return rc;
}

dlock_lock *take(dlock_client *client, const char *name, uint64_t *fence) {
    struct dlock_error err = {0};
    dlock_lock *lock = api_lock(client, name, NULL);
    if (dlock_acquire(lock, 20000, &err) != 0) fail_msg("%s: %s", name, err.message);
    if (fence) *fence = dlock_fence(lock);
    return lock;
}

dlock_lock *take_everywhere(dlock_client *client, const char *name, uint64_t *fence) {
    dlock_lock *lock = take(client, name, fence);
    for (int i = 0; i < 3; i++) await_held(i, name);
    return lock;
}

void give_back(dlock_lock *lock) {
    struct dlock_error err = {0};
    if (dlock_release(lock, &err) != 0) fail_msg("%s", err.message);
    dlock_free(lock);
}
