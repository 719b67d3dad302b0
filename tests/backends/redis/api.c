#include "api.h"

dlock_client *api_open(const struct server *server, const char *query) {
    return api_client("redis://127.0.0.1:%d?%s", server->port, query);
}

static void *work(void *arg) {
    struct api_worker *worker = arg;
    for (int i = 0; i < worker->rounds && !worker->code; i++) {
        int rc;
        worker->code = dlock_acquire(worker->lock, worker->timeout_ms, &worker->err);
        if (worker->code) break;
        worker->got_it_ms = now_ms();
        worker->fence = dlock_fence(worker->lock);
        for (int64_t until = now_ms() + worker->hold_ms; now_ms() < until && !worker->lost_it_ms; sleep_ms(1))
            if (!dlock_held(worker->lock)) worker->lost_it_ms = now_ms();
        rc = dlock_release(worker->lock, &worker->err);
        if (rc != (worker->lost_it_ms ? DLOCK_ELOST : 0)) worker->code = rc ? rc : DLOCK_EPROTO;
        if (worker->lost_it_ms) break;
    }
    return NULL;
}

void api_begin(struct api_worker *worker) {
    assert_int_equal(pthread_create(&worker->thread, NULL, work, worker), 0);
}

void api_await_grant(struct api_worker *worker) {
    for (int64_t until = now_ms() + 20000; !worker->got_it_ms; sleep_ms(2))
        if (now_ms() > until) fail_msg("no grant in time");
}

void api_end(struct api_worker *worker) {
    pthread_join(worker->thread, NULL);
}
