/* A server that lies to a listener. */
#include "harness.h"
#include "support/fake.h"

#define CHANNEL "dlock:aaaaaaaaaaaaaaaaaaaaaaaa"
#define TOKEN "aaaaaaaaaaaaaaaaaaaaaaaa.1@h:1"
#define CONFIRMED "*3\r\n$9\r\nsubscribe\r\n$30\r\n" CHANNEL "\r\n:1\r\n"

/* A message with this payload, into `out`. */
static const char *message(char out[1024], const char *payload) {
    snprintf(out, 1024, CONFIRMED "*3\r\n$7\r\nmessage\r\n$30\r\n" CHANNEL "\r\n$%zu\r\n%s\r\n", strlen(payload),
             payload);
    return out;
}

enum { PATIENCE_MS = 3000 };

/* The code of the first wake-up that is not "none left", and the wake-up itself. */
static int first_wake(struct fake *fake, struct link *link, const char *text, struct dlock_wake *wake) {
    static const char *answers[2]; /* the fake outlives this function */
    struct dlock_error err = {0};
    int rc = 0;
    answers[0] = text;
    fake->answers = answers;
    fake_link(fake, link);
    link_listen(link);
    for (int64_t until = now_ms() + PATIENCE_MS; rc == 0 && now_ms() < until; sleep_ms(1))
        rc = backend->wake(link->conn, wake, &err);
    return rc;
}

TEST(wake_ups_that_make_no_sense) {
    static const char *const payloads[] = {
        "granted ",
        "granted " TOKEN,
        "granted  name",
        "granted bbbbbbbbbbbbbbbbbbbbbbbb.1@h:1 name",
        "granted " TOKEN " ",
        "granted " TOKEN " na{me",
        "granted " TOKEN " na%6De",
        "granted " TOKEN " na%0Ame",
        "granted " TOKEN " na%7",
        "wanted ",
        "wanted na{me",
        "wanted na%7",
        "granted " TOKEN " xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    };
    static const char *const raw[] = {
        CONFIRMED ":1\r\n",
        CONFIRMED "*0\r\n",
        CONFIRMED "*3\r\n$7\r\nmessage\r\n$5\r\nother\r\n$1\r\nx\r\n",
        CONFIRMED "*3\r\n$7\r\nmessage\r\n$30\r\n" CHANNEL "\r\n:1\r\n",
        CONFIRMED "*3\r\n$11\r\nunsubscribe\r\n$30\r\n" CHANNEL "\r\n:0\r\n",
        CONFIRMED "rubbish\r\n",
    };
    struct dlock_wake wake;
    struct link link;
    char text[1024];
    for (size_t i = 0; i < sizeof payloads / sizeof payloads[0]; i++) {
        struct fake fake = {.port = 0};
        if (first_wake(&fake, &link, message(text, payloads[i]), &wake) != DLOCK_EPROTO)
            fail_msg("payload \"%s\" was believed", payloads[i]);
        fake_unlink(&fake, &link);
    }
    for (size_t i = 0; i < sizeof raw / sizeof raw[0]; i++) {
        struct fake fake = {.port = 0};
        assert_int_equal(first_wake(&fake, &link, raw[i], &wake), DLOCK_EPROTO);
        fake_unlink(&fake, &link);
    }
}

/* Anybody who may read can send a message, so it tells that the token has been granted something, and not what. */
TEST(a_wake_up_has_no_grant_in_it) {
    struct fake fake = {.port = 0};
    struct dlock_wake wake;
    struct link link;
    char text[1024];
    assert_int_equal(first_wake(&fake, &link, message(text, "granted " TOKEN " a b%7Bc%25"), &wake), 1);
    assert_int_equal(wake.kind, DLOCK_WAKE_GRANTED);
    assert_string_equal(wake.token, TOKEN);
    assert_string_equal(wake.name, "a b{c%");
    assert_int_equal(wake.fence, 0);
    assert_int_equal(wake.server_us, 0);
    assert_int_equal(wake.kept_ms, 0);
    fake_unlink(&fake, &link);
}

TEST(a_listener_learns_that_the_server_is_gone) {
    struct fake fake = {.close_after = true};
    struct dlock_wake wake;
    struct link link;
    assert_int_equal(first_wake(&fake, &link, CONFIRMED, &wake), DLOCK_EUNAVAILABLE);
    fake_unlink(&fake, &link);
}

/* Endless messages, all unknown to us, do not keep wake() from returning. */
TEST(endless_messages_end) {
    struct fake fake = {.flood = "*3\r\n$7\r\nmessage\r\n$30\r\n" CHANNEL "\r\n$3\r\nnew\r\n"};
    struct dlock_wake wake;
    struct link link;
    int64_t begin = now_ms();
    int rc = first_wake(&fake, &link, CONFIRMED, &wake);
    assert_true(rc == 0 || rc == DLOCK_EPROTO);
    assert_true(now_ms() - begin < 2 * PATIENCE_MS);
    fake_unlink(&fake, &link);
}

TESTS(NULL, NULL, backend_load, NULL)
