/* The list of held names, in pages. */
#include "site.h"

struct seen {
    int n, enough;
    char names[1300][16];
};

static int see(const struct dlock_info *info, void *arg) {
    struct seen *seen = arg;
    snprintf(seen->names[seen->n++], sizeof seen->names[0], "%.15s", info->name);
    return seen->n == seen->enough;
}

static struct seen seen;

static int list_all(struct link *link, const char *prefix) {
    char cursor[256] = "";
    struct dlock_error err;
    int pages = 0, rc;
    seen.n = 0;
    do {
        rc = backend->list(link->conn, prefix, cursor, see, &seen, TIMEOUT_MS, &err);
        if (rc < 0) fail_msg("%s", err.message);
        pages++;
    } while (rc == 1 && pages < 100);
    return pages;
}

TEST(lists_in_pages) {
    enum { N = 1200 };
    LINK(link, 'a');
    HELD(held, &link, "first");
    assert_int_equal(acquire(&link, &held), 0); /* makes the tables */
    sql("TRUNCATE {}.locks");
    sql("INSERT INTO {}.locks (name, token, fence, expires_us) SELECT convert_to('list/' || to_char(n, 'FM0000'), "
        "'UTF8'), "
        "'t', 1, {}.clock_us() + 60000000 FROM generate_series(1, %d) n",
        N);
    /* Not held, or not with that prefix. */
    sql("INSERT INTO {}.locks (name, token, fence, expires_us) VALUES ('list/free', NULL, 1, {}.clock_us() + "
        "60000000), "
        "('list/over', 't', 1, {}.clock_us() - 1), ('lisu', 't', 1, {}.clock_us() + 60000000), ('list', 't', 1, "
        "{}.clock_us() + 60000000), ('\\xff'::bytea, 't', 1, {}.clock_us() + 60000000), "
        "('\\xffff61'::bytea, 't', 1, {}.clock_us() + 60000000)");
    assert_int_equal(list_all(&link, "list/"), 3);
    assert_int_equal(seen.n, N);
    for (int i = 0; i < N; i++) {
        char name[16];
        snprintf(name, sizeof name, "list/%04d", i + 1);
        assert_string_equal(seen.names[i], name);
    }
    list_all(&link, "");
    assert_int_equal(seen.n, N + 4);
    list_all(&link, "\xff");
    assert_int_equal(seen.n, 2);
    list_all(&link, "\xff\xff");
    assert_int_equal(seen.n, 1);
    list_all(&link, "list/12");
    assert_int_equal(seen.n, 1); /* 1200 */
    seen.enough = 7;
    list_all(&link, "list/");
    assert_int_equal(seen.n, 7);
    sql("TRUNCATE {}.locks");
}

TESTS(NULL, NULL, site_begin, site_end)
