#include "players.h"

#include <hiredis.h>
#include <inttypes.h>
#include <stdatomic.h>

/* ---- servers whose roles change ---------------------------------------------------------------------------------- */

const char *said_to(const struct server *server, const char *question) {
    static char text[16384];
    redisContext *plain = redisConnect("127.0.0.1", server->port);
    redisReply *reply = plain && !plain->err ? redisCommand(plain, question) : NULL;
    snprintf(text, sizeof text, "%s", reply && reply->str ? reply->str : "");
    if (reply) freeReplyObject(reply);
    if (plain) redisFree(plain);
    return text;
}

void await_said(const struct server *server, const char *question, const char *expected) {
    for (int64_t until = now_ms() + CHANGE_MS; !strstr(said_to(server, question), expected); sleep_ms(20))
        if (now_ms() > until) fail_msg("not %s: %s", expected, said_to(server, question));
}

int try_lock(const char *uri, const char *name, struct dlock_error *err) {
    dlock_client *client;
    dlock_lock *lock;
    memset(err, 0, sizeof *err);
    int rc = dlock_open(uri, NULL, &client, err);
    if (rc) return rc;
    lock = api_lock(client, name, NULL);
    rc = dlock_acquire(lock, 0, err);
    dlock_free(lock);
    dlock_close(client);
    return rc;
}

/* ---- clients that contend ---------------------------------------------------------------------------------------- */

static struct player {
    dlock_client *client;
    dlock_lock *lock;
    atomic_int turns, refusal; /* refusal: of its last attempt that failed */
    pthread_t thread;
} player[PLAYERS + LATE], stranger;

static int players; /* that have begun */

static atomic_bool play_on;
static atomic_int inside, met, shrunk, granted, odd;
static _Atomic uint64_t last_fence;

static void enter(dlock_lock *lock) {
    const uint64_t fence = dlock_fence(lock);
    if (atomic_fetch_add(&inside, 1) > 0) met++;
    if (atomic_exchange(&last_fence, fence) >= fence) shrunk++;
    granted++;
}

static void *play(void *arg) {
    struct player *self = arg;
    while (play_on) {
        int rc = dlock_acquire(self->lock, 1000, NULL);
        if (rc != 0) {
            self->refusal = rc;
            if (rc != DLOCK_ETIMEDOUT && rc != DLOCK_EUNAVAILABLE && rc != DLOCK_ENOTREADY) odd = rc;
            continue;
        }
        enter(self->lock);
        sleep_ms(HOLD_MS);
        inside--;
        self->turns++;
        dlock_release(self->lock, NULL);
    }
    return NULL;
}

static void begin(struct player *one, const char *uri, const char *name, void *(*run)(void *)) {
    one->turns = 0;
    one->client = api_client("%s", uri);
    one->lock = api_lock(one->client, name, NULL);
    assert_int_equal(pthread_create(&one->thread, NULL, run, one), 0);
}

void players_begin(const char *uri, const char *name) {
    play_on = true;
    inside = met = shrunk = granted = odd = 0;
    last_fence = 0;
    for (players = 0; players < PLAYERS; players++) begin(&player[players], uri, name, play);
}

void players_join(const char *uri, const char *name) {
    for (int i = 0; i < LATE; i++) begin(&player[players++], uri, name, play);
}

static void end(struct player *one) {
    if (!one->client) return;
    dlock_free(one->lock);
    dlock_close(one->client);
    one->client = NULL;
}

int players_met(void) {
    return met;
}

void players_stop(void) {
    play_on = false;
    if (stranger.client) pthread_join(stranger.thread, NULL);
    for (int i = 0; i < players; i++) pthread_join(player[i].thread, NULL);
    end(&stranger);
    for (int i = 0; i < players; i++) end(&player[i]);
    assert_int_equal(odd, 0);
}

void players_end(void) {
    players_stop();
    assert_int_equal(met, 0);
    assert_int_equal(shrunk, 0);
}

static void await_turns(int first) {
    int before[PLAYERS + LATE];
    for (int i = first; i < players; i++) before[i] = player[i].turns;
    for (int i = first; i < players; i++)
        for (int64_t until = now_ms() + CHANGE_MS; player[i].turns == before[i]; sleep_ms(5))
            if (now_ms() > until) fail_msg("%d had no turn: %s", i, dlock_strerror(player[i].refusal));
}

void players_await_turns(void) {
    await_turns(0);
}

void players_await_late_turns(void) {
    await_turns(PLAYERS);
}

/* How many turns they have had since then; the fewest of one are *least. */
static int turns_since(const int before[PLAYERS + LATE], int *least) {
    int sum = 0;
    *least = INT32_MAX;
    for (int i = 0; i < players; i++) {
        const int own = player[i].turns - before[i];
        sum += own;
        if (own < *least) *least = own;
    }
    return sum;
}

void players_await_fairness(void) {
    enum { EACH = 50 };
    int before[PLAYERS + LATE], least = 0, sum = 0;
    for (int64_t until = now_ms() + CHANGE_MS; least < EACH / 2;) {
        if (now_ms() > until) fail_msg("somebody had %d turns, all had %d", least, sum);
        for (int i = 0; i < players; i++) before[i] = player[i].turns;
        while ((sum = turns_since(before, &least)) < EACH * players && now_ms() <= until) sleep_ms(5);
    }
}

/* ---- a failover -------------------------------------------------------------------------------------------------- */

static void *keep(void *arg) {
    struct player *self = arg;
    if (dlock_acquire(self->lock, CHANGE_MS, NULL) != 0) return NULL;
    enter(self->lock);
    self->turns++;
    while (play_on && dlock_held(self->lock)) sleep_ms(1);
    inside--;
    return NULL;
}

void players_keep(const char *uri, const char *name) {
    begin(&stranger, uri, name, keep);
    for (int64_t until = now_ms() + CHANGE_MS; !stranger.turns; sleep_ms(5)) assert_true(now_ms() < until);
}

void players_await_failover(struct server *replica, const char *how) {
    await_said(replica, "INFO replication", "role:master");
    const int64_t promoted = now_ms();
    const int so_far = granted;
    while (granted == so_far && now_ms() - promoted < CHANGE_MS) sleep_ms(1);
    print_message("%s: served %" PRId64 " ms after the promotion\n", how, now_ms() - promoted);
    assert_true(now_ms() - promoted < CHANGE_MS);
    players_await_turns();
}
