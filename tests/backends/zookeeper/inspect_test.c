/* inspect and list: nodes of others, and names that have to be encoded. */
#include "pair.h"

#include <stdio.h>
#include <stdlib.h>

struct seen {
    int calls;
    char name[256], token[DLOCK_TOKEN_MAX + 1];
};

static int note(const struct dlock_info *info, void *arg) {
    struct seen *seen = arg;
    seen->calls++;
    snprintf(seen->name, sizeof seen->name, "%s", info->name);
    snprintf(seen->token, sizeof seen->token, "%s", info->token);
    return 0;
}

/* Others' nodes may hold anything. */
TEST(inspect_of_foreign_holders) {
    char path[512], expected[64];
    static const char *const data[] = {"10.1.2.3", "", "two words", "<b>\x1b[31m", "line\nbreak"};
    for (size_t i = 0; i < sizeof data / sizeof *data; i++) {
        struct seen seen = {0};
        plain_make(BASE "/foreign holder/-lock-", data[i], ZOO_EPHEMERAL_SEQUENTIAL, path, sizeof path);
        snprintf(expected, sizeof expected, "session:0x%llx", (unsigned long long)zoo_client_id(plain())->client_id);
        assert_int_equal(backend->inspect(one.conn, "foreign holder", note, &seen, TIMEOUT_MS, NULL), 0);
        assert_int_equal(seen.calls, 1);
        assert_string_equal(seen.token, i == 0 ? "10.1.2.3" : i == 4 ? "line" : expected);
        assert_string_equal(seen.name, "foreign holder");
        plain_delete(path);
    }
}

/* ---- list -------------------------------------------------------------------------------------------------------- */

/* All pages. */
static void walk(const char *prefix, struct seen *seen) {
    char cursor[256] = "";
    int more;
    do {
        more = backend->list(two.conn, prefix, cursor, note, seen, TIMEOUT_MS, NULL);
        assert_in_range(more, 0, 1);
    } while (more == 1);
}

/* Encoded, and too long to be decoded: the data has the name. */
TEST(list_shows_names_as_they_were_given) {
    char longest[256];
    struct held held;
    memset(longest, '/', 255);
    memcpy(longest, "odd", 3);
    longest[255] = '\0';
    const char *names[] = {"odd/\xc3\xa9 50%", "odd.", longest};
    for (size_t i = 0; i < 3; i++) {
        struct seen seen = {0};
        claim_init(&held, names[i], 'a', 1);
        assert_int_equal(acquire(&one, &held), 0);
        walk("odd", &seen);
        assert_int_equal(seen.calls, 1);
        assert_string_equal(seen.name, names[i]);
        assert_string_equal(seen.token, held.token);
        assert_int_equal(release(&one, &held), 0);
    }
}

TEST(list_of_nothing) {
    struct seen seen = {0};
    SCOPED_LINK link;
    struct uri uri;
    char cursor[256] = "";
    uri_session(&uri, shared_port(), "10s");
    uri.parts.path = "/dlock-nobody/was/here";
    assert_int_equal(link_try(&link, &uri.parts, 'c', 0, CONNECTS_MS, NULL), 0);
    assert_int_equal(backend->list(link.conn, "", cursor, note, &seen, TIMEOUT_MS, NULL), 0);
    assert_int_equal(seen.calls, 0);
}

TESTS(pair_begin, pair_end, backend_load, NULL)
