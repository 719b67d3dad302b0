/* The list of held names, in pages. */
#include "site.h"

struct seen {
    int n, enough;
    char names[12100][16];
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
    enum { N = 12000 };
    LINK(link, 'a');
    HELD(held, &link, "first");
    assert_int_equal(acquire(&link, &held), 0); /* makes the tables */
    sql("TRUNCATE {}.locks");
    sql("INSERT INTO {}.locks (name, token, fence, expires_us) SELECT convert_to('list/' || to_char(n, 'FM00000'), "
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
        snprintf(name, sizeof name, "list/%05d", i + 1);
        assert_string_equal(seen.names[i], name);
    }
    list_all(&link, "");
    assert_int_equal(seen.n, N + 4);
    list_all(&link, "\xff");
    assert_int_equal(seen.n, 2);
    list_all(&link, "\xff\xff");
    assert_int_equal(seen.n, 1);
    list_all(&link, "list/12");
    assert_int_equal(seen.n, 1); /* 12000 */
    seen.enough = 7;
    list_all(&link, "list/");
    assert_int_equal(seen.n, 7);
    sql("TRUNCATE {}.locks");
}

/* How many rows of locks this session has read lately. */
static int64_t rows_read(void) {
    return sql_number("SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relid = "
                      "'{}.locks'::regclass");
}

/* How many the question about these names reads, of which none is held. */
static int64_t read_for(const char *range) {
    sql("BEGIN");
    const int64_t before = rows_read();
    assert_int_equal(sql_number("SELECT count(*) FROM {}.holders(%s, 10)", range), 0);
    const int64_t after = rows_read();
    sql("COMMIT");
    return after - before;
}

/* Names are found by the primary key, and none is read that is not in the range. */
TEST(reads_no_other_names) {
    LINK(link, 'a');
    HELD(held, &link, "first");
    assert_int_equal(acquire(&link, &held), 0); /* makes the tables */
    sql("TRUNCATE {}.locks");
    sql("INSERT INTO {}.locks (name, token, fence, expires_us) SELECT convert_to('list/' || n, 'UTF8'), "
        "NULL, 1, 1 FROM generate_series(10000, 19999) n");
    assert_int_equal(read_for("'list/', NULL"), 10000);
    assert_int_equal(read_for("'list/123', 'list/124'"), 100);
    assert_int_equal(read_for("'list/12345', 'list/12345\\000'"), 1);
    assert_int_equal(read_for("'a', 'a\\000'"), 0);
    sql("TRUNCATE {}.locks");
}

TESTS(NULL, NULL, site_begin, site_end)
