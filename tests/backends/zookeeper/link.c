/* The backend, driven by its table. */
#include "harness.h"

/* ---- connections ------------------------------------------------------------------------------------------------- */

void uri_session(struct uri *uri, int port, const char *session) {
    uri_init(uri, port);
    uri->param[0] = (struct dlock_param){"session", session};
    uri->parts.path = BASE;
    uri->parts.n_params = 1;
}

void link_new(struct link *link, int port, const char *session, char letter) {
    struct dlock_error err = {0};
    struct uri uri;
    uri_session(&uri, port, session);
    if (link_try(link, &uri.parts, letter, 0, CONNECTS_MS, &err) != 0) fail_msg("connect: %s", err.message);
    link_listen(link);
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

void claim_as(struct held *held, const char *name, char letter, int serial, enum dlock_mode mode, uint32_t limit) {
    claim_init(held, name, letter, serial);
    held->claim.mode = mode;
    held->claim.limit = limit;
}

int persistently(struct link *link, int (*operation)(struct link *, struct held *), struct held *held) {
    int rc;
    for (int64_t until = now_ms() + 90000; (rc = operation(link, held)) == DLOCK_EUNAVAILABLE; sleep_ms(50))
        assert_true(now_ms() < until);
    return rc;
}

static void *task_main(void *arg) {
    struct task *task = arg;
    task->rc = held_run(task->batch, task->link, task->held, task->flags, task->timeout_ms, &task->err);
    atomic_store(&task->over, true);
    return NULL;
}

void task_begin(struct task *task, dlock_batch *batch, struct link *link, struct held *held, uint32_t flags) {
    memset(task, 0, sizeof *task);
    task->batch = batch;
    task->link = link;
    task->held = held;
    task->flags = flags;
    task->timeout_ms = TIMEOUT_MS;
    assert_int_equal(pthread_create(&task->thread, NULL, task_main, task), 0);
}

int task_end(struct task *task) {
    pthread_join(task->thread, NULL);
    return task->rc;
}

bool told_within(struct link *link, struct dlock_wake *wake, int ms) {
    int64_t until = now_ms() + ms;
    bool told;
    do told = wake_within(link, wake, (int)(until - now_ms()));
    while (told && wake->kind == DLOCK_WAKE_LOOK && !wake->name);
    return told;
}

bool wake_kind_within(struct link *link, struct dlock_wake *wake, enum dlock_wake_kind kind, int ms) {
    for (int64_t until = now_ms() + ms, left = ms; left >= 0; left = until - now_ms())
        if (wake_within(link, wake, (int)left) && wake->kind == kind) return true;
    return false;
}
