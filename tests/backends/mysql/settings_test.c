/* Settings of the server that new sessions inherit: none of them changes what dlock's sessions do. */
#include "site.h"

#include <maria.h>

static const char *changed; /* the variable that a test has changed */
static char before[512];

static void change(const char *variable, const char *value) {
    char statement[128];
    snprintf(statement, sizeof statement, "SELECT @@GLOBAL.%s", variable);
    sql_text(before, sizeof before, statement);
    changed = variable;
    sql("SET GLOBAL %s = %s", variable, value);
}

/* A value of digits is a number, any other one a text. */
static int change_back(void **state) {
    (void)state;
    bool number = changed && *before && before[strspn(before, "0123456789.")] == '\0';
    if (changed) sql(number ? "SET GLOBAL %s = %s" : "SET GLOBAL %s = '%s'", changed, before);
    changed = NULL;
    return 0;
}

static int count(const struct dlock_info *info, void *arg) {
    (void)info;
    ++*(int *)arg;
    return 0;
}

static int holders(struct link *link, const char *name) {
    struct dlock_error err;
    int n = 0;
    if (backend->inspect(link->conn, name, count, &n, TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
    return n;
}

static void all(dlock_batch *operation, struct link *link, struct dlock_claim *const *claims, size_t n) {
    struct dlock_error err;
    if (operation(link->conn, claims, n, TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
    for (size_t i = 0; i < n; i++) assert_int_equal(claims[i]->result, 0);
}

/* One session sees the other's promises: batches, and the single grant after them. */
static void check_promises(struct link *mine, struct link *others) {
    struct held a, b;
    struct dlock_claim *claims[] = {&a.claim, &b.claim};
    held_new(&a, mine, "settings-a");
    held_new(&b, mine, "settings-b");
    HELD(c, mine, "settings-c");
    HELD(rival, others, "settings-c");
    all(backend->acquire, mine, claims, 2);
    assert_int_equal(holders(others, "settings-a") + holders(others, "settings-b"), 2);
    all(backend->renew, mine, claims, 2);
    all(backend->release, mine, claims, 2);
    assert_int_equal(holders(others, "settings-a") + holders(others, "settings-b"), 0);
    assert_int_equal(acquire(mine, &c), 0);
    assert_int_equal(holders(others, "settings-c"), 1);
    assert_int_equal(acquire(others, &rival), DLOCK_EBUSY);
    assert_int_equal(backend->break_lock(others->conn, "settings-c", TIMEOUT_MS, NULL), 0);
    assert_int_equal(renew(mine, &c), DLOCK_ELOST);
    assert_int_equal(acquire(others, &rival), 0);
    assert_true(rival.claim.fence > c.claim.fence);
    assert_int_equal(release(others, &rival), 0);
}

static void check_with(const char *variable, const char *value) {
    change(variable, value);
    LINK(mine, NULL, 'a');
    LINK(others, NULL, 'b');
    change_back(NULL);
    printf("         %s = %s\n", variable, value);
    check_promises(&mine, &others);
}

TEST(a_commit_ends_its_transaction) {
    check_with("completion_type", "'CHAIN'");
    check_with("completion_type", "'RELEASE'");
}

TEST(an_answer_has_all_its_rows) {
    check_with("sql_select_limit", "1");
    check_with("sql_select_limit", "0");
}

TEST(long_searches_are_allowed) {
    check_with("sql_big_selects", "0");
}

TEST(a_session_has_its_own) {
    static const char *const settings[][3] = {
        {"time_zone", "'-11:30'", "+00:00"}, /* else leases and fences would jump with daylight saving time */
        {"innodb_lock_wait_timeout", "1000", "1"},
        {"lock_wait_timeout", "1000", "1"},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        char text[16];
        change(settings[i][0], settings[i][1]);
        LINK(link, NULL, 'a');
        change_back(NULL);
        struct maria *maria = link.conn;
        maria_begin(maria);
        maria_say(maria, "SELECT @@%s", settings[i][0]);
        assert_int_equal(maria_ask(maria, dlock_deadline_us(TIMEOUT_MS), NULL), 0);
        const struct maria_value *row = maria_row(maria, 0, 1);
        assert_true(row && maria_bytes(row, 1, text, sizeof text));
        assert_string_equal(text, settings[i][2]);
    }
}

TEST(other_settings_change_nothing) {
    static const char *const settings[][2] = {
        {"autocommit", "0"},
        {"tx_read_only", "1"},
        {"tx_isolation", "'SERIALIZABLE'"},
        {"tx_isolation", "'READ-UNCOMMITTED'"},
        {"tx_isolation", "'REPEATABLE-READ'"},
        {"sql_mode", "'ANSI,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'"},
        {"sql_mode", "'ORACLE'"},
        {"sql_mode", "''"},
        {"sql_safe_updates", "1"},
        {"wait_timeout", "1"},
        {"max_sort_length", "64"},
        {"div_precision_increment", "0"},
        {"unique_checks", "0"},
        {"low_priority_updates", "1"},
        {"default_storage_engine", "'MyISAM'"},
        {"collation_connection", "'utf16_general_ci'"},
        {"sql_notes", "0"},
        {"max_error_count", "0"},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) check_with(settings[i][0], settings[i][1]);
}

TESTS(NULL, change_back, site_begin, site_end)
