/* What tokens tell people: host, pid and label, as they are written and as they are read. */
#include "fixture.h"

#include <dlock/backend.h>

#include <unistd.h>

static dlock_client *labelled(const char *label) {
    struct dlock_client_options options = DLOCK_CLIENT_OPTIONS_INIT;
    dlock_client *client = NULL;
    options.label = label;
    assert_int_equal(dlock_open("fakefull:", &options, &client, NULL), 0);
    return client;
}

/* The end of the client's tokens, from their '@' on. */
static void tail_of(dlock_client *client, enum dlock_mode mode, char tail[DLOCK_TOKEN_MAX + 1]) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    char token[DLOCK_TOKEN_MAX + 1];
    options.mode = mode;
    options.limit = mode == DLOCK_PERMIT ? DLOCK_LIMIT_MAX : 0;
    dlock_lock *lock;
    assert_int_equal(dlock_new(client, "n", &options, &lock, NULL), 0);
    assert_int_equal(dlock_acquire(lock, 0, NULL), 0);
    assert_int_equal(dlock_token(lock, token, sizeof token, NULL), 0);
    assert_int_equal(strspn(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:@-"),
                     strlen(token));
    assert_in_range(strlen(token), 1, DLOCK_TOKEN_MAX);
    strcpy(tail, strchr(token, '@'));
    assert_int_equal(dlock_release(lock, NULL), 0);
    dlock_free(lock);
}

/* Writes the label, and reads it back. */
static void expect(const char *label, const char *written, const char *read) {
    dlock_client *client = labelled(label);
    char tail[DLOCK_TOKEN_MAX + 1], *mark;
    struct dlock_face face;
    tail_of(client, DLOCK_EXCLUSIVE, tail);
    dlock_close(client);
    dlock_token_face(tail, &face);
    assert_int_equal(face.pid, getpid());
    assert_true(face.host[0]);
    assert_string_equal(face.label, read);
    mark = strchr(tail + 1, '@');
    if (*written)
        assert_string_equal(mark + 1, written);
    else
        assert_null(mark);
}

TEST(a_label_is_written_and_read) {
    expect(NULL, "", "");
    expect("", "", "");
    expect("nightly.sh", "nightly.sh", "nightly.sh");
    expect("Nightly_report-2", "Nightly_report-2", "Nightly_report-2");
    expect("a b", "a@20b", "a b");
    expect("a@b:c/d+e", "a@40b@3Ac@2Fd@2Be", "a@b:c/d+e");
    expect("100%", "100@25", "100%");
    expect("%", "@25", "%");
    expect("@", "@40", "@");
    expect("\xc3\xa9t\xc3\xa9", "@C3@A9t@C3@A9", "\xc3\xa9t\xc3\xa9");
    expect("\xff\x80x", "@FF@80x", "\xff\x80x");
}

/* The token has no room for all of a label that is encoded: whole characters are left out at its end. */
TEST(a_long_label_is_cut_between_characters) {
    static const char *const units[] = {" ", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x94\x92"};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        const size_t unit = strlen(units[i]);
        for (size_t first = 0; first < 4; first++) {
            char label[DLOCK_LABEL_MAX + 1] = "", tail[DLOCK_TOKEN_MAX + 1];
            struct dlock_face face;
            for (size_t k = 0; k < first; k++) strcat(label, "x");
            while (strlen(label) + unit <= DLOCK_LABEL_MAX) strcat(label, units[i]);
            dlock_client *client = labelled(label);
            tail_of(client, DLOCK_PERMIT, tail);
            dlock_close(client);
            dlock_token_face(tail, &face);
            size_t length = strlen(face.label);
            assert_in_range(length, 1, strlen(label) - 1);
            assert_memory_equal(face.label, label, length);
            assert_int_equal((length - first) % unit, 0);
        }
    }
}

TEST(a_label_of_the_uri_counts_unless_the_program_has_one) {
    struct dlock_client_options options = DLOCK_CLIENT_OPTIONS_INIT;
    static const char *const given[] = {NULL, "program", ""}, *const expected[] = {"from uri", "program", ""};
    for (int i = 0; i < 3; i++) {
        dlock_client *client;
        char tail[DLOCK_TOKEN_MAX + 1];
        struct dlock_face face;
        options.label = given[i];
        assert_int_equal(dlock_open("fakefull:?label=from%20uri", &options, &client, NULL), 0);
        tail_of(client, DLOCK_SHARED, tail);
        dlock_close(client);
        dlock_token_face(tail, &face);
        assert_string_equal(face.label, expected[i]);
    }
}

TEST(labels_that_no_terminal_should_see_are_refused) {
    static const char *const bad[] = {"\x1b[2J", "a\nb", "\x7f", "1234567890123456789012345678901234567890123456789"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct dlock_client_options options = DLOCK_CLIENT_OPTIONS_INIT;
        struct dlock_error err;
        dlock_client *client = NULL;
        options.label = bad[i];
        assert_int_equal(dlock_open("fakefull:", &options, &client, &err), DLOCK_EINVAL);
        assert_non_null(strstr(err.message, "label"));
        assert_null(strchr(err.message, '\x1b'));
        assert_null(client);
    }
    assert_int_equal(dlock_open("fakefull:?label=%1b%5b2J", NULL, &(dlock_client *){NULL}, NULL), DLOCK_EINVAL);
}

static void face(const char *token, const char *host, int64_t pid, const char *label) {
    struct dlock_face seen;
    memset(&seen, '#', sizeof seen);
    dlock_token_face(token, &seen);
    assert_string_equal(seen.host, host);
    assert_int_equal(seen.pid, pid);
    assert_string_equal(seen.label, label);
}

TEST(tokens_of_anybody_can_be_read) {
    char longest[4096];
    face("5f0c.17@web3:4711", "web3", 4711, "");
    face("5f0c.17@web3:4711@nightly.sh", "web3", 4711, "nightly.sh");
    face("5f0c.17-p00000003@web3:4711@a@20b", "web3", 4711, "a b");
    face("5f0c.17@web3:4711@nightly:3", "web3", 4711, "nightly"); /* a later try of a quorum */
    face("5f0c.17@web3:4711:3", "web3", 4711, "");
    face("5f0c.17@web3:4711@", "web3", 4711, "");
    face("5f0c.17@web3:4711@a@", "web3", 4711, "a"); /* cut */
    face("5f0c.17@web3:4711@a@2", "web3", 4711, "a");
    face("5f0c.17@web3:4711@a@2:7", "web3", 4711, "a");
    face("5f0c.17@web3:4711@a@zz", "web3", 4711, "a");
    face("5f0c.17@web3:4711@a@00b", "web3", 4711, "a?b");
    face("5f0c.17@web3:4711@@1B[2J@7f\x07", "web3", 4711, "?[2J??");
    face("", "", 0, "");
    face("@", "", 0, "");
    face("@:", "", 0, "");
    face("@web3", "", 0, "");
    face("@web3:", "", 0, "");
    face("@:4711", "", 0, "");
    face("@web3:4711x", "", 0, "");
    face("@web3:12345678901", "", 0, "");
    face("@we b3:4711", "", 0, "");
    face("@\x1b[2J:4711", "", 0, "");
    face("550e8400-e29b-41d4-a716-446655440000", "", 0, "");
    face("flock:4711", "", 0, "");
    memset(longest, 'h', sizeof longest);
    longest[0] = '@';
    strcpy(longest + 64, ":1");
    face(longest, "hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh", 1, "");
    strcpy(longest + 65, ":1");
    longest[64] = 'h';
    face(longest, "", 0, "");
    memset(longest, 'l', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    memcpy(longest, "@h:1@", 5);
    face(longest, "h", 1, "llllllllllllllllllllllllllllllllllllllllllllllll");
}

TESTS(fixture_setup, fixture_teardown, NULL, NULL)
