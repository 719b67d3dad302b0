/* A server that greets as PostgreSQL does, and then sends without end: no call outlasts its deadline. */
#include "site.h"

#include "support/flood.h"

/* For how long the server sends: longer than a call may take that has to end after SHORT_MS. */
enum { SHORT_MS = 300, SLACK_MS = 10000, SEND_MS = 15000 };

/* The messages before the endless part. */
enum stage { LOGIN, ANSWER, SESSION, REQUEST };

struct script {
    enum stage after;
    const char *endless; /* one message */
    size_t length;
};

#define ENDLESS(literal) .endless = (literal), .length = sizeof(literal) - 1

/* Messages: a letter, four bytes of length (which counts itself), the content. */
#define AUTHENTICATED "R\0\0\0\10\0\0\0\0"
#define STATUS "S\0\0\0\30server_version\00015.0\0"
#define WRITABLE "S\0\0\0\46default_transaction_read_only\0off\0S\0\0\0\27in_hot_standby\0off\0"
#define KEY "K\0\0\0\14\0\0\0\1\0\0\0\2"
#define READY "Z\0\0\0\5I"
#define FIELD "c\0\0\0\0\0\0\0\0\0\0\31\377\377\377\377\377\377\0\0"
#define ABOUT_SESSION                                                      \
    "T\0\0\0\102\0\3" FIELD FIELD FIELD "D\0\0\0\44\0\3\0\0\0\1t\0\0\0\20" \
    "1700000000000000"                                                     \
    "\0\0\0\1"                                                             \
    "9"                                                                    \
    "C\0\0\0\15SELECT 1\0"

#define NOTICE "N\0\0\0\30SNOTICE\0C00000\0Mhi\0\0"
#define NOTIFICATION "A\0\0\0\14\0\0\0\1x\0y\0"
#define DONE "C\0\0\0\15SELECT 1\0"
#define COPIES_OUT "H\0\0\0\7\0\0\0"
#define COPIES_BOTH "W\0\0\0\7\0\0\0"

#define SEND(fd, literal) flood_send(fd, literal, sizeof(literal) - 1)

/* Does what an honest server does until that stage. */
static bool begin(const struct script *script, int fd) {
    if (!flood_hear(fd) || !SEND(fd, AUTHENTICATED)) return false;
    if (script->after == LOGIN) return true;
    if (!SEND(fd, STATUS WRITABLE KEY READY) || !flood_hear(fd)) return false;
    if (script->after == ANSWER) return true;
    if (!SEND(fd, ABOUT_SESSION READY)) return false;
    return script->after == SESSION || flood_hear(fd);
}

static size_t play(void *arg, int fd, unsigned char *piece) {
    const struct script *script = arg;
    size_t used = 0;
    if (!begin(script, fd)) return 0;
    for (; used + script->length <= FLOOD_PIECE; used += script->length)
        memcpy(piece + used, script->endless, script->length);
    return used;
}

static int connect_to(struct flood *flood, struct script *script, struct link *link, int timeout_ms,
                      struct dlock_error *err) {
    const struct dlock_param plain[] = {{"sslmode", "disable"}, {"gssencmode", "disable"}, {"mode", "session"}};
    struct uri uri;
    *flood = (struct flood){.begin = play, .arg = script, .most_ms = SEND_MS};
    flood_start(flood);
    uri_init(&uri, flood->port);
    uri.parts.path = "/db";
    uri.parts.user = "u";
    uri.parts.params = plain;
    uri.parts.n_params = 3;
    return link_try(link, &uri.parts, 'a', 0, timeout_ms, err);
}

/* The error when such a server is connected to within SHORT_MS. */
static void meet(struct script script, int code, const char *word) {
    struct dlock_error err = {0};
    struct flood flood;
    struct link link;
    const int64_t begun = now_ms();
    const int rc = connect_to(&flood, &script, &link, SHORT_MS, &err);
    const int64_t took_ms = now_ms() - begun;
    link_end(&link);
    flood_end(&flood);
    if (rc != code || !strstr(err.message, word)) fail_msg("%d (%s) instead of %d (%s)", rc, err.message, code, word);
    assert_true(took_ms < SHORT_MS + SLACK_MS);
}

TEST(while_connecting) {
    meet((struct script){.after = LOGIN, ENDLESS(NOTICE)}, DLOCK_EUNAVAILABLE, "in time");
    meet((struct script){.after = LOGIN, ENDLESS(STATUS)}, DLOCK_EUNAVAILABLE, "in time");
}

/* A server that greets as CockroachDB is refused before any request. */
TEST(another_database) {
    meet((struct script){.after = LOGIN, ENDLESS("S\0\0\0\27crdb_version\0v23.1\0" STATUS WRITABLE KEY READY)},
         DLOCK_ENOTSUP, "CockroachDB");
}

TEST(in_place_of_an_answer) {
    meet((struct script){.after = ANSWER, ENDLESS(NOTICE)}, DLOCK_EUNAVAILABLE, "in time");
    meet((struct script){.after = ANSWER, ENDLESS(STATUS)}, DLOCK_EUNAVAILABLE, "in time");
}

TEST(results_without_end) {
    meet((struct script){.after = ANSWER, ENDLESS(DONE)}, DLOCK_EPROTO, "more results");
    meet((struct script){.after = ANSWER, ENDLESS(COPIES_OUT)}, DLOCK_EPROTO, "COPY");
    meet((struct script){.after = ANSWER, ENDLESS(COPIES_BOTH)}, DLOCK_EPROTO, "COPY");
}

/* A session of such a server, which begins to send after the request that follows. */
struct visit {
    struct script script;
    struct flood flood;
    struct link link;
    struct held held;
    int64_t begun;
};

static void visit(struct visit *visit, struct script script) {
    struct dlock_error err = {0};
    visit->script = script;
    if (connect_to(&visit->flood, &visit->script, &visit->link, TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
    struct pg *pg = pg_of(&visit->link);
    pg->session.idle_s = INT32_MAX;
    pg->session.tried = pg->session.drawn = pg->prepared[PG_WAIT_LEASE] = true;
    held_new(&visit->held, &visit->link, "endless");
    visit->begun = now_ms();
}

static void leave(struct visit *visit) {
    assert_true(now_ms() - visit->begun < SHORT_MS + SLACK_MS);
    link_end(&visit->link);
    flood_end(&visit->flood);
}

TEST(to_an_idle_session) {
    struct visit here;
    struct dlock_wake wake;
    struct dlock_error err = {0};
    visit(&here, (struct script){.after = SESSION, ENDLESS(NOTIFICATION)});
    assert_true(dlock_wait_fd(PQsocket(pg_of(&here.link)->link), POLLIN, dlock_deadline_us(TIMEOUT_MS)));
    int rc = 0;
    while (rc == 0 && now_ms() - here.begun < SLACK_MS) rc = backend->wake(here.link.conn, &wake, &err);
    assert_int_equal(rc, DLOCK_EUNAVAILABLE);
    leave(&here);
}

/* The waiter is told to wait, and can be released. */
TEST(to_a_waiter) {
    struct visit here;
    struct dlock_wake wake;
    struct dlock_error err = {0};
    visit(&here, (struct script){.after = REQUEST, ENDLESS(NOTICE)});
    assert_int_equal(held_run(backend->acquire, &here.link, &here.held, DLOCK_CLAIM_QUEUE, SHORT_MS, &err), 0);
    assert_int_equal(here.held.claim.result, DLOCK_EBUSY);
    assert_int_equal(backend->wake(here.link.conn, &wake, &err), 0);
    assert_int_equal(held_run(backend->release, &here.link, &here.held, 0, SHORT_MS, &err), DLOCK_EUNAVAILABLE);
    leave(&here);
}

/* It would be the next result again and again. */
TEST(a_copy_to_a_waiter) {
    struct visit here;
    struct dlock_error err = {0};
    visit(&here, (struct script){.after = REQUEST, ENDLESS(COPIES_BOTH)});
    int rc = held_run(backend->acquire, &here.link, &here.held, DLOCK_CLAIM_QUEUE, SHORT_MS, &err);
    for (struct dlock_wake wake; rc == 0 && now_ms() - here.begun < SLACK_MS;)
        rc = backend->wake(here.link.conn, &wake, &err);
    assert_true(rc == DLOCK_EPROTO || rc == DLOCK_EUNAVAILABLE);
    assert_non_null(strstr(err.message, "COPY"));
    leave(&here);
}

static int begin_sessions(void **state) {
    if (backend_load(state) != 0) return 1;
    backend = &pg_session;
    return 0;
}

TESTS(NULL, NULL, begin_sessions, NULL)
