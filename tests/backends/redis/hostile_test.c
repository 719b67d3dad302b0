/* A server that lies, stutters, floods, says nothing or goes away: an error in time, and the right one. */
#include "harness.h"
#include "support/fake.h"

enum { SHORT_MS = 300, SLACK_MS = 3000 };

/* An honest busy answer, and an honest grant. */
#define BUSY "*5\r\n:1790000000000000\r\n:0\r\n:-1\r\n:500\r\n:1\r\n"
#define GRANTED "*5\r\n:1790000000000000\r\n:1790000000000000\r\n:0\r\n:10000\r\n:1\r\n"

/* The answer to a request that gives the server a script. */
#define SHA "$40\r\n0123456789012345678901234567890123456789\r\n"

/* The requests of the greeting, in their order. */
enum { FAKE_SETNAME, FAKE_SERVER, FAKE_REPLICATION, FAKE_PUBLISH };

enum operation { ACQUIRE, RENEW, RELEASE, BREAK, INSPECT, LIST, LISTEN };

static int never(const struct dlock_info *info, void *arg) {
    (void)info, (void)arg;
    fail_msg("a holder out of nothing");
    return 1;
}

static int operate(struct link *link, enum operation operation, struct dlock_error *err) {
    struct held held;
    struct dlock_claim *claim = &held.claim;
    char cursor[256] = "";
    claim_init(&held, "hostile", 'a', 1);
    switch (operation) {
    case ACQUIRE: return backend->acquire(link->conn, &claim, 1, SHORT_MS, err);
    case RENEW: return backend->renew(link->conn, &claim, 1, SHORT_MS, err);
    case RELEASE: return backend->release(link->conn, &claim, 1, SHORT_MS, err);
    case BREAK: return backend->break_lock(link->conn, "hostile", SHORT_MS, err);
    case INSPECT: return backend->inspect(link->conn, "hostile", never, NULL, SHORT_MS, err);
    case LIST: return backend->list(link->conn, "", cursor, never, NULL, SHORT_MS, err);
    case LISTEN: return backend->listen(link->conn, &link->fd, SHORT_MS, err);
    }
    return 0;
}

static void assert_answer_is(struct fake *fake, enum operation operation, const char *answer, int code) {
    struct dlock_error err = {0};
    struct link link;
    int64_t begin;
    int rc;
    fake->answers = FAKE_SAYS(answer);
    fake_link(fake, &link);
    begin = now_ms();
    rc = operate(&link, operation, &err);
    if (rc != code || err.code != code || !*err.message)
        fail_msg("operation %d, answer \"%.60s\": %d (%s) instead of %d", operation, answer, rc, err.message, code);
    assert_true(now_ms() - begin < SHORT_MS + SLACK_MS);
    fake_unlink(fake, &link);
}

TEST(answers_that_make_no_sense) {
    static const struct {
        enum operation operation;
        const char *answer;
    } nonsense[] = {
        {ACQUIRE, "+OK\r\n"},
        {ACQUIRE, ":0\r\n"},
        {ACQUIRE, ":-1\r\n"},
        {ACQUIRE, ":-36028797018963968\r\n"}, /* no fence, counted up or not */
        {ACQUIRE, ":36028797018963968\r\n"},  /* a fence of 2^55 */
        {ACQUIRE, "$-1\r\n"},
        {ACQUIRE, "$12\r\ndlock:shared\r\n"}, /* in use as what it might be asked for */
        {ACQUIRE, "$15\r\ndlock:permits:0\r\n"},
        {ACQUIRE, "$24\r\ndlock:permits:4294967296\r\n"},
        {ACQUIRE, "$15\r\ndlock:permits:x\r\n"},
        {ACQUIRE, "*0\r\n"},
        {ACQUIRE, "*-1\r\n"},
        {ACQUIRE, "*4\r\n:1\r\n:1\r\n:0\r\n:1\r\n"},
        {ACQUIRE, "*6\r\n:1\r\n:1\r\n:0\r\n:1\r\n:1\r\n:1\r\n"},
        {ACQUIRE, "*5\r\n:1\r\n:1\r\n:0\r\n:1\r\n$1\r\n1\r\n"},
        {ACQUIRE, "*5\r\n:1\r\n:1\r\n:0\r\n:1\r\n*1\r\n:1\r\n"},
        {ACQUIRE, "*5\r\n:0\r\n:1\r\n:0\r\n:1\r\n:1\r\n"},                   /* no clock */
        {ACQUIRE, "*5\r\n:1\r\n:-1\r\n:0\r\n:1\r\n:1\r\n"},                  /* a negative fence */
        {ACQUIRE, "*5\r\n:1\r\n:36028797018963968\r\n:0\r\n:1\r\n:1\r\n"},   /* a fence of 2^55 */
        {ACQUIRE, "*5\r\n:1\r\n:0\r\n:-2\r\n:1\r\n:1\r\n"},                  /* a place before the first */
        {ACQUIRE, "*5\r\n:1\r\n:0\r\n:9223372036854775807\r\n:1\r\n:1\r\n"}, /* a place out of this world */
        {ACQUIRE, "*5\r\n:1\r\n:0\r\n:0\r\n:-3\r\n:1\r\n"},
        {ACQUIRE, "-ERR what a day\r\n"},
        {ACQUIRE, "-\r\n"},
        {ACQUIRE, "HTTP/1.1 400 Bad Request\r\n\r\n"},
        {ACQUIRE, "\r\n\r\n\r\n"},
        {ACQUIRE, "*1000000000\r\n"}, /* eight gigabytes of pointers */
        {ACQUIRE, "*2147483647\r\n*2147483647\r\n*2147483647\r\n"},
        {ACQUIRE, "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n"},
        {ACQUIRE, "*-2\r\n"},
        {RENEW, ":-1\r\n"},
        {RENEW, "*0\r\n"},
        {RENEW, "$1\r\n1\r\n"},
        {RELEASE, ":4\r\n"},
        {RELEASE, ":-1\r\n"},
        {RELEASE, "$-1\r\n"},
        {BREAK, ":3\r\n"},
        {BREAK, "+OK\r\n"},
        {INSPECT, ":1\r\n"},
        {INSPECT, "*1\r\n$0\r\n\r\n"},
        {INSPECT, "*2\r\n:1\r\n:0\r\n"},
        {INSPECT, "*2\r\n$0\r\n\r\n:-1\r\n"},
        {INSPECT, "*2\r\n$0\r\n\r\n:4294967296\r\n"},
        {INSPECT, "*2\r\n$15\r\ndlock:permits:0\r\n:0\r\n"},
        {INSPECT, "*4\r\n$0\r\n\r\n:0\r\n$1\r\nx\r\n:1\r\n"}, /* half a holder */
        {INSPECT, "*5\r\n$0\r\n\r\n:0\r\n:1\r\n:1\r\n:1\r\n"},
        {INSPECT, "*5\r\n$0\r\n\r\n:0\r\n$1\r\nx\r\n:-1\r\n:1\r\n"},
        {INSPECT, "*5\r\n$0\r\n\r\n:0\r\n$1\r\nx\r\n:36028797018963968\r\n:1\r\n"},
        {INSPECT, "*5\r\n$0\r\n\r\n:0\r\n$1\r\nx\r\n:1\r\n:-2\r\n"},
        {LIST, "*0\r\n"},
        {LIST, "*2\r\n$1\r\n0\r\n$1\r\nx\r\n"},
        {LIST, "*2\r\n$3\r\nabc\r\n*0\r\n"},
        {LIST, "*2\r\n$0\r\n\r\n*0\r\n"},
        {LIST, "*2\r\n$21\r\n111111111111111111111\r\n*0\r\n"},
        {LIST, "*2\r\n$1\r\n0\r\n*2\r\n$1\r\nx\r\n:1\r\n"},
        {LISTEN, "+OK\r\n"},
        {LISTEN, "*3\r\n$9\r\nsubscribe\r\n$5\r\nother\r\n:1\r\n"},
        {LISTEN, "*2\r\n$9\r\nsubscribe\r\n$30\r\ndlock:aaaaaaaaaaaaaaaaaaaaaaaa\r\n"},
        {LISTEN, "*3\r\n:1\r\n:1\r\n:1\r\n"},
    };
    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++) {
        struct fake fake = {.port = 0};
        assert_answer_is(&fake, nonsense[i].operation, nonsense[i].answer, DLOCK_EPROTO);
    }
}

TEST(refusals_are_told_apart) {
    static const struct {
        const char *answer;
        int code;
    } refusals[] = {
        {"-NOAUTH Authentication required.\r\n", DLOCK_EAUTH},
        {"-NOPERM this user has no permissions\r\n", DLOCK_EAUTH},
        {"-WRONGPASS x\r\n", DLOCK_EAUTH},
        {"-LOADING Redis is loading the dataset in memory\r\n", DLOCK_EUNAVAILABLE},
        {"-BUSY Redis is busy running a script\r\n", DLOCK_EUNAVAILABLE},
        {"-MASTERDOWN Link with MASTER is down\r\n", DLOCK_EUNAVAILABLE},
        {"-CLUSTERDOWN The cluster is down\r\n", DLOCK_EUNAVAILABLE},
        {"-READONLY You can't write against a read only replica.\r\n", DLOCK_EUNAVAILABLE},
        {"-MISCONF Redis is configured to save RDB snapshots\r\n", DLOCK_EUNAVAILABLE},
        {"-ERR max number of clients reached\r\n", DLOCK_EUNAVAILABLE},
        /* as Redis 5 and 6 put it */
        {"-ERR Error running script (call to f_01): @user_script:9: @user_script: 9: -OOM command not allowed\r\n",
         DLOCK_EUNAVAILABLE},
        {"-@user_script: 9: -OOM command not allowed\r\n", DLOCK_EUNAVAILABLE},
        {"-OOMPH\r\n", DLOCK_EPROTO},
        {"-MOVED 1234 127.0.0.1:6381\r\n", DLOCK_EPROTO},
        {"-ASK 1234 127.0.0.1:6381\r\n", DLOCK_EPROTO},
        {"-ERR ACL failure in script: User locks has no permissions to run the 'publish' command\r\n", DLOCK_EAUTH},
        {"-ERR Error running script (call to f_01): @user_script:9: The user executing the script can't run this "
         "command or subcommand\r\n",
         DLOCK_EAUTH},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++)
        for (int operation = ACQUIRE; operation <= LISTEN; operation++) {
            struct fake fake = {.port = 0};
            assert_answer_is(&fake, (enum operation)operation, refusals[i].answer, refusals[i].code);
        }
}

TEST(silence_ends_in_time) {
    for (int operation = ACQUIRE; operation <= LISTEN; operation++) {
        struct fake silent = {.port = 0}, cut = {.close_after = true};
        assert_answer_is(&silent, (enum operation)operation, "", DLOCK_EUNAVAILABLE);
        assert_answer_is(&cut, (enum operation)operation, "*5\r\n:1\r\n:1", DLOCK_EUNAVAILABLE);
    }
}

TEST(slow_bytes_end_in_time) {
    struct fake fake = {.drip_ms = 40};
    /* Every byte would restart a time limit on single reads. */
    assert_answer_is(&fake, ACQUIRE, GRANTED, DLOCK_EUNAVAILABLE);
}

TEST(floods_are_cut_off) {
    static char text[65536], item[65536 + 16];
    struct fake endless = {.answers = FAKE_SAYS("$900000000\r\n"), .flood = text};
    struct fake nested = {.answers = FAKE_SAYS("*1\r\n"), .flood = "*65536\r\n"};
    struct fake wide = {.answers = FAKE_SAYS("*1\r\n"), .flood = ":1\r\n*60000\r\n"};
    struct fake many = {.answers = FAKE_SAYS("*100000\r\n"), .flood = item};
    struct fake *const fakes[] = {&endless, &nested, &wide, &many};
    memset(text, 'x', sizeof text - 1);
    snprintf(item, sizeof item, "$%zu\r\n%s\r\n", sizeof text - 1, text);
    for (int i = 0; i < 4; i++) {
        struct dlock_error err = {0};
        struct held held;
        struct link link;
        fake_link(fakes[i], &link);
        claim_init(&held, "hostile", 'a', 1);
        /* by its size, long before the deadline */
        assert_int_equal(held_run(backend->acquire, &link, &held, 0, TIMEOUT_MS, &err), DLOCK_EPROTO);
        fake_unlink(fakes[i], &link);
    }
}

/* 256 claims are written before the first is answered: one round trip. Names that need encoding go one by one. */
TEST(a_batch_is_one_round_trip) {
    enum { N = 256 };
    static struct held held[N];
    static char names[N][16];
    struct dlock_claim *claims[N];
    struct fake fake = {.answers = FAKE_SAYS(GRANTED, BUSY, GRANTED), .gather = N};
    struct link link;
    struct dlock_error err = {0};
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "{batch-%03d", i);
        claim_init(&held[i], names[i], 'a', i);
        claims[i] = &held[i].claim;
    }
    fake_link(&fake, &link);
    assert_int_equal(backend->acquire(link.conn, claims, N, TIMEOUT_MS, &err), 0);
    for (int i = 0; i < N; i++) assert_int_equal(claims[i]->result, i == 1 ? DLOCK_EBUSY : 0);
    assert_int_equal(atomic_load(&fake.requests), N);
    fake_unlink(&fake, &link);
}

/* One error amid a batch, whatever it is about, leaves every other answer with its claim. */
TEST(an_error_does_not_shift_the_answers) {
    struct fake fake = {.answers = FAKE_SAYS(GRANTED, "-NOSCRIPT No matching script.\r\n", BUSY, SHA, GRANTED)};
    struct fake other = {.answers = FAKE_SAYS(BUSY, "-OOM command not allowed\r\n", BUSY, GRANTED)};
    struct held held[3];
    struct dlock_claim *claims[3];
    struct dlock_error err = {0};
    struct link link;
    for (int i = 0; i < 3; i++) {
        claim_init(&held[i], "{shift", 'a', i);
        claims[i] = &held[i].claim;
    }
    fake_link(&fake, &link);
    assert_int_equal(backend->acquire(link.conn, claims, 3, TIMEOUT_MS, &err), 0);
    assert_int_equal(claims[0]->result, 0);
    assert_int_equal(claims[1]->result, 0);
    assert_int_equal(claims[2]->result, DLOCK_EBUSY);
    assert_int_equal(atomic_load(&fake.requests), 3 + 1 + 1);
    fake_unlink(&fake, &link);

    fake_link(&other, &link);
    assert_int_equal(backend->acquire(link.conn, claims, 3, TIMEOUT_MS, &err), DLOCK_EUNAVAILABLE);
    assert_int_equal(backend->acquire(link.conn, claims, 1, TIMEOUT_MS, &err), 0);
    assert_int_equal(claims[0]->result, 0);
    fake_unlink(&other, &link);
}

/* A server that refuses a script that it is given, or says that it has none even after that. */
TEST(a_script_that_is_refused) {
    static const struct {
        const char *answer, *then;
        int code;
    } cases[] = {{SHA, "-NOSCRIPT x\r\n", DLOCK_EPROTO},
                 {":1\r\n", GRANTED, DLOCK_EPROTO},
                 {"*0\r\n", GRANTED, DLOCK_EPROTO},
                 {"-LOADING x\r\n", GRANTED, DLOCK_EUNAVAILABLE},
                 {"-NOPERM this user has no permissions to run the 'script|load' command\r\n", GRANTED, DLOCK_EAUTH}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fake fake = {.answers = FAKE_SAYS("-NOSCRIPT x\r\n", cases[i].answer, cases[i].then)};
        struct dlock_error err = {0};
        struct link link;
        fake_link(&fake, &link);
        assert_int_equal(operate(&link, ACQUIRE, &err), cases[i].code);
        fake_unlink(&fake, &link);
    }
}

/* The server does not read what we send: the time limit also holds for writing. */
TEST(a_deaf_server) {
    enum { N = 256 };
    static struct held held[N];
    static char names[N][256];
    struct dlock_claim *claims[N];
    struct fake fake = {.deaf = true};
    struct dlock_error err = {0};
    struct link link;
    int64_t begin;
    for (int i = 0; i < N; i++) {
        memset(names[i], '{', 255);
        snprintf(names[i], 8, "%04d", i);
        names[i][4] = '{';
        claim_init(&held[i], names[i], 'a', i);
        claims[i] = &held[i].claim;
    }
    fake_link(&fake, &link);
    begin = now_ms();
    assert_int_equal(backend->acquire(link.conn, claims, N, SHORT_MS, &err), DLOCK_EUNAVAILABLE);
    assert_in_range(now_ms() - begin, SHORT_MS - 50, SHORT_MS + SLACK_MS);
    assert_int_equal(backend->acquire(link.conn, claims, N, SHORT_MS, &err), DLOCK_EUNAVAILABLE);
    fake_unlink(&fake, &link);
}

/* SIGPIPE would end this program. */
TEST(writing_to_who_is_gone) {
    struct fake fake = {.answers = FAKE_SAYS(BUSY), .close_after = true};
    struct dlock_error err = {0};
    struct link link;
    fake_link(&fake, &link);
    assert_int_equal(operate(&link, ACQUIRE, &err), 0);
    sleep_ms(300);
    for (int i = 0; i < 5; i++) assert_int_equal(operate(&link, ACQUIRE, &err), DLOCK_EUNAVAILABLE);
    fake_unlink(&fake, &link);
}

/* A request whose answer is missing must not be carried out later: the connection is closed by reset. */
TEST(unanswered_requests_are_reset) {
    struct fake answering = {.answers = FAKE_SAYS(BUSY)}, silent = {.port = 0};
    struct dlock_error err = {0};
    struct link link;
    fake_link(&answering, &link);
    assert_int_equal(operate(&link, ACQUIRE, &err), 0);
    link_end(&link);
    for (int i = 0; i < 500 && !atomic_load(&answering.eof); i++) sleep_ms(10);
    assert_int_equal(atomic_load(&answering.eof), 1);
    fake_stop(&answering);

    fake_link(&silent, &link);
    assert_int_equal(operate(&link, ACQUIRE, &err), DLOCK_EUNAVAILABLE);
    link_end(&link);
    for (int i = 0; i < 500 && !atomic_load(&silent.reset); i++) sleep_ms(10);
    assert_int_equal(atomic_load(&silent.reset), 1);
    assert_int_equal(atomic_load(&silent.eof), 0);
    fake_stop(&silent);
}

/* ---- the greeting ------------------------------------------------------------------------------------------------ */

static void assert_greeting_is(int at, const char *reply, int code, const char *word) {
    struct fake fake = {.port = 0};
    struct dlock_error err = {0};
    struct link link;
    fake.greeting[at] = reply;
    const int rc = fake_try(&fake, &link, TIMEOUT_MS, &err);
    if (rc != code || err.code != code || !strstr(err.message, word))
        fail_msg("greeting \"%.60s\": %d (%s) instead of %d", reply, rc, err.message, code);
    fake_unlink(&fake, &link);
}

/* A reply that is this text. */
static const char *bulk(const char *text) {
    static char out[256];
    snprintf(out, sizeof out, "$%zu\r\n%s\r\n", strlen(text), text);
    return out;
}

TEST(greetings_that_make_no_sense) {
    assert_greeting_is(FAKE_SETNAME, "HTTP/1.1 400 Bad Request\r\n", DLOCK_EPROTO, "invalid answer");
    assert_greeting_is(FAKE_SETNAME, "", DLOCK_EPROTO, "invalid answer"); /* one reply too few: they shift */
    assert_greeting_is(FAKE_SERVER, "+OK\r\n", DLOCK_EPROTO, "INFO");
    assert_greeting_is(FAKE_SERVER, bulk("hello"), DLOCK_EPROTO, "redis_version");
}

TEST(servers_that_cannot_serve_us) {
    assert_greeting_is(FAKE_SERVER, bulk("redis_version:4.0.14"), DLOCK_ENOTSUP, "4.0.14");
    assert_greeting_is(FAKE_SERVER, bulk("redis_version:7.0.1\r\nredis_mode:cluster\r\n"), DLOCK_ENOTSUP, "cluster");
    assert_greeting_is(FAKE_SERVER, bulk("redis_version:7.0.1\r\nredis_mode:sentinel\r\n"), DLOCK_ENOTSUP, "sentinel");
    assert_greeting_is(FAKE_SERVER, bulk("redis_version:7.2.4\r\nserver_mode:cluster\r\n"), DLOCK_ENOTSUP, "cluster");
    assert_greeting_is(FAKE_PUBLISH, "-NOPERM this user has no permissions to run the 'publish' command\r\n",
                       DLOCK_EAUTH, "+publish");
    assert_greeting_is(FAKE_PUBLISH, "-LOADING x\r\n", DLOCK_EUNAVAILABLE, "LOADING");
    assert_greeting_is(FAKE_SERVER, "-NOPERM no permissions to run 'info'\r\n", DLOCK_EAUTH, "info");
    assert_greeting_is(FAKE_REPLICATION, bulk("role:slave"), DLOCK_EUNAVAILABLE, "replica");
    assert_greeting_is(FAKE_REPLICATION, "-LOADING x\r\n", DLOCK_EUNAVAILABLE, "LOADING");
    assert_greeting_is(FAKE_SETNAME, "-ERR max number of clients reached\r\n", DLOCK_EUNAVAILABLE, "clients");
    assert_greeting_is(FAKE_SETNAME, "-ERR unknown command\r\n", 0, ""); /* a courtesy only */
}

/* As twemproxy does after a command that it does not know. */
static bool hang_up(struct fake *fake, int fd, int i, const char *request, size_t size) {
    (void)fake, (void)fd, (void)i, (void)request, (void)size;
    return false;
}

TEST(a_proxy_that_hangs_up) {
    struct fake fake = {.converse = hang_up};
    struct dlock_error err = {0};
    struct link link;
    assert_int_equal(fake_try(&fake, &link, TIMEOUT_MS, &err), DLOCK_EUNAVAILABLE);
    assert_non_null(strstr(err.message, "twemproxy"));
    fake_unlink(&fake, &link);
}

TESTS(NULL, NULL, backend_load, NULL)
