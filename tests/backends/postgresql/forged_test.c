/* Forged messages on a listener's channel, whose name is no secret: none is accepted as a wake-up. */
#include "queue_scene.h"

static const char *channel_of(const struct link *ear) {
    return sql_text("SELECT channel FROM {}.listeners WHERE client = '%s'", ear->client);
}

/* Messages that are not our wake-ups, from a sender that knows the channel. */
TEST(nonsense_on_the_channel) {
    static const char *const nonsense[] = {"",
                                           "hello",
                                           "granted",
                                           "granted x",
                                           "granted bbbbbbbbbbbbbbbbbbbbbbbb.1 1 1 1 6",
                                           "granted bbbbbbbbbbbbbbbbbbbbbbbb.1 0 1 1 61",
                                           "granted bbbbbbbbbbbbbbbbbbbbbbbb.1 -1 1 1 61",
                                           "granted bbbbbbbbbbbbbbbbbbbbbbbb.1 1 1 99999999999999999999 61",
                                           "granted bbbbbbbbbbbbbbbbbbbbbbbb.1 36028797018963968 1 1 61",
                                           "granted bbbbbbbbbbbbbbbbbbbbbbbb.1 1 1 1 00",
                                           "granted bbbbbbbbbbbbbbbbbbbbbbbb.1 1 1 1 zz",
                                           "granted cccccccccccccccccccccccc.1 1 1 1 61",
                                           "granted",
                                           "wanted",
                                           "wanted ",
                                           "wanted 6",
                                           "wanted 6100",
                                           "wantedx61"};
    SCOPED_SCENE s;
    struct dlock_wake wake;
    scene_begin(&s, "stranger");
    char channel[64];
    snprintf(channel, sizeof channel, "%s", channel_of(&s.first_ear));
    for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++)
        sql("SELECT pg_notify('%s', '%s')", channel, nonsense[i]);
    sql("SELECT pg_notify('%s', repeat('granted ', 900))", channel);
    assert_true(wake_none(&s.first_ear));
    assert_int_equal(release(&s.holder, &s.held), 0);
    wake_get(&s.first_ear, &wake);
    assert_granted(&wake, &s.one, 0);
}

/* The message that a stranger's session, listening on the same channel, has received; "" for none. */
static void overhear(PGconn *stranger, char out[1024]) {
    PGnotify *notice;
    out[0] = '\0';
    plain_run(stranger, "SELECT"); /* until then nothing is delivered */
    while ((notice = PQnotifies(stranger))) {
        snprintf(out, 1024, "%s", notice->extra);
        PQfreemem(notice);
    }
}

static void forge(PGconn *stranger, const char *channel, const char *message) {
    char text[4096];
    snprintf(text, sizeof text, "SELECT pg_notify('%s', '%s')", channel, message);
    plain_run(stranger, text);
}

/* Every role may notify. A role that has learned the channel, from one that may see statements, receives every token
 * and every message, but cannot send what the client would believe. */
TEST(nobody_can_forge_a_wake) {
    SCOPED_SCENE s;
    struct dlock_wake wake;
    char channel[64], heard[1024], text[2048];
    scene_begin(&s, "forged");
    snprintf(channel, sizeof channel, "%s", channel_of(&s.first_ear));
    PGconn *stranger = stranger_open();
    snprintf(text, sizeof text, "LISTEN \"%s\"", channel);
    plain_run(stranger, text);
    int64_t now_us = sql_number("SELECT {}.clock_us()");
    snprintf(text, sizeof text, "granted %s %lld %lld 3000 666f72676564", s.one.token, (long long)now_us,
             (long long)now_us);
    forge(stranger, channel, text);
    snprintf(text + strlen(text), sizeof text - strlen(text), " %064d", 0);
    forge(stranger, channel, text);
    forge(stranger, channel, "wanted 666f72676564");
    assert_true(wake_none(&s.first_ear));
    /* With the code of another message, and one more piece behind what the code is for. */
    overhear(stranger, heard);
    assert_int_equal(release(&s.holder, &s.held), 0);
    wake_get(&s.first_ear, &wake);
    assert_granted(&wake, &s.one, 0);
    overhear(stranger, heard);
    assert_int_equal(strncmp(heard, "granted ", 8), 0);
    char *code = strrchr(heard, ' ');
    assert_non_null(code);
    HELD(again, &s.first, "forged");
    assert_int_equal(queue_up(&s.first, &again), DLOCK_EBUSY);
    snprintf(text, sizeof text, "granted %s %lld %lld 3000 666f72676564%s", again.token, (long long)now_us,
             (long long)now_us, code);
    forge(stranger, channel, text);
    snprintf(text, sizeof text, "%s%s", heard, code);
    forge(stranger, channel, text);
    snprintf(text, sizeof text, "%s 61", heard);
    forge(stranger, channel, text);
    assert_true(wake_none(&s.first_ear));
    stranger_end(stranger);
}

/* Of the next listener everything is another. */
TEST(every_listener_has_its_own_secret) {
    char channel[64], secret[64];
    LINK(ear, 'b');
    link_listen(&ear);
    snprintf(channel, sizeof channel, "%s", channel_of(&ear));
    snprintf(secret, sizeof secret, "%s", sql_text("SELECT secret FROM {}.listeners WHERE client = '%s'", ear.client));
    assert_int_equal(strlen(secret), PG_SECRET);
    assert_null(strstr(channel, secret));
    link_end(&ear);
    link_new(&ear, 'b');
    link_listen(&ear);
    assert_string_not_equal(channel_of(&ear), channel);
    assert_string_not_equal(sql_text("SELECT secret FROM {}.listeners WHERE client = '%s'", ear.client), secret);
    /* No statement shows it. */
    assert_int_equal(sql_number("SELECT count(*) FROM pg_stat_activity a WHERE pid <> pg_backend_pid() AND position("
                                "(SELECT secret FROM {}.listeners WHERE client = '%s') IN a::text) > 0",
                                ear.client),
                     0);
}

TESTS(NULL, NULL, site_begin, site_end)
