/* For operators: inspect, list and break. */
#include "harness.h"
#include "support/group.h"

#include <stdio.h>

static struct link ours;

static int start(void **state) {
    group_begin(state);
    link_to(&ours, server.port, 'a');
    return 0;
}

static int stop(void **state) {
    link_end(&ours);
    return group_end(state);
}

struct seen {
    int times;
    char name[256], token[DLOCK_TOKEN_MAX + 1];
    struct dlock_info info;
};

static int see(const struct dlock_info *info, void *arg) {
    struct seen *seen = arg;
    seen->times++;
    seen->info = *info;
    snprintf(seen->name, sizeof seen->name, "%s", info->name);
    snprintf(seen->token, sizeof seen->token, "%s", info->token);
    return 0;
}

static struct seen inspect(const char *name) {
    struct seen seen = {0};
    struct dlock_error err = {0};
    if (backend->inspect(ours.conn, name, see, &seen, TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
    return seen;
}

static int break_it(const char *name) {
    return backend->break_lock(ours.conn, name, TIMEOUT_MS, NULL);
}

TEST(a_cut_name_is_not_part_of_the_token) {
    char name[256];
    struct held mine;
    memset(name, ' ', 255);
    name[255] = '\0';
    claim_init(&mine, name, 'a', 1);
    assert_int_equal(acquire(&ours, &mine), 0);
    assert_string_equal(inspect(name).token, mine.token);
    assert_string_equal(inspect(name).name, name);
    assert_int_equal(break_it(name), 0);
    assert_int_equal(renew(&ours, &mine), DLOCK_ELOST);
}

/* Values that another client has put there. */
TEST(strange_values_are_shown_cleaned) {
    char big[1001];
    memset(big, 'q', 1000);
    big[1000] = '\0';
    ask(&server, "set strange 7 100 5\r\na\tb\x7f!");
    assert_string_equal(inspect("strange").token, "a?b?!");
    ask(&server, "set strange 7 100 0\r\n");
    assert_int_equal(inspect("strange").times, 1);
    assert_string_equal(inspect("strange").token, "");
    ask(&server, "set strange 7 100 1000\r\n%s", big);
    assert_int_equal(strlen(inspect("strange").token), DLOCK_TOKEN_MAX);
    /* Flags that look like ours, of an id that is no older than the item's: no fence of a later grant. */
    for (uint32_t flags = 0x80000001; flags; flags = flags == 0x80000001 ? 0xffffffff : 0) {
        struct seen seen;
        struct held later;
        ask(&server, "set strange %u 100 1\r\nx", flags);
        seen = inspect("strange");
        assert_int_equal(seen.times, 1);
        assert_true(seen.info.fence > 0);
        claim_init(&later, "later", 'a', 1);
        assert_int_equal(acquire(&ours, &later), 0);
        assert_true(later.claim.fence > seen.info.fence);
        assert_int_equal(release(&ours, &later), 0);
    }
}

static struct seen list(const char *prefix) {
    struct seen seen = {0};
    struct dlock_error err = {0};
    char cursor[256] = "";
    if (backend->list(ours.conn, prefix, cursor, see, &seen, TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
    return seen;
}

/* Not what other programs keep there, whose keys may be no names. */
TEST(a_list_has_dlocks_locks_alone) {
    struct held mine, reader;
    char name[256];
    ask(&server, "set alone-text 0 100 5\r\nhello");
    ask(&server, "set alone-flags 2147483649 100 1\r\nx");
    ask(&server, "set alone-%%zz 2147483649 100 30\r\nbbbbbbbbbbbbbbbbbbbbbbbb.1@test");
    ask(&server, "set alone-%%2f 2147483649 100 30\r\nbbbbbbbbbbbbbbbbbbbbbbbb.1@test");
    ask(&server, "set alone~0123456789ABCDEF 0 100 5\r\na b c");
    assert_int_equal(list("alone").times, 0);
    claim_init(&mine, "alone~0123456789ABCDEF?", 'a', 1); /* like a key that is cut */
    assert_int_equal(acquire(&ours, &mine), 0);
    claim_init(&mine, "alone~0123456789ABCDE0", 'a', 2);
    assert_int_equal(acquire(&ours, &mine), 0);
    assert_int_equal(list("alone").times, 2);
    assert_int_equal(list("alone~0123456789ABCDE0").times, 1);
    assert_int_equal(list("alone~0123456789ABCDE1").times, 0);
    memset(name, ' ', 255);
    name[255] = '\0';
    claim_init(&reader, name, 'b', 1);
    reader.claim.mode = DLOCK_SHARED;
    assert_int_equal(acquire(&ours, &reader), 0);
    assert_int_equal(list("  ").times, 1);
    assert_string_equal(list("  ").name, name);
    assert_string_equal(list("  ").token, reader.token);
    assert_int_equal(list("  ").info.mode, DLOCK_SHARED);
    assert_int_equal(list(" x").times, 0);
}

TEST(a_server_without_a_crawler_lists_nothing) {
    static const char *const without[][3] = {{"-X"}, {"-o", "no_lru_crawler"}};
    for (int i = 0; i < 2; i++) {
        struct server other;
        struct link link;
        struct dlock_error err = {0};
        struct seen seen = {0};
        char cursor[256] = "";
        server_start(&other, without[i]);
        link_to(&link, other.port, 'a');
        assert_int_equal(backend->list(link.conn, "", cursor, see, &seen, TIMEOUT_MS, &err), DLOCK_ENOTSUP);
        assert_non_null(strstr(err.message, "needs its lru_crawler"));
        assert_int_equal(backend->inspect(link.conn, "x", see, &seen, TIMEOUT_MS, &err), 0); /* the connection lives */
        link_end(&link);
        server_stop(&other);
    }
}

/* No blind delete: its command would show where the one that compares is not known. Where it is, meta_test.c has it to
 * the letter. */
TEST(a_break_compares) {
    struct held mine;
    struct counts counts;
    claim_init(&mine, "compared", 'a', 1);
    assert_int_equal(acquire(&ours, &mine), 0);
    count(&server, NULL);
    assert_int_equal(break_it("compared"), 0);
    count(&server, &counts);
    assert_int_equal(counts.gets, 1);
    assert_int_equal(counts.cas_hits, servers_are_classic() ? 1 : 0);
    assert_int_equal(counts.deletes, servers_are_classic() ? 0 : 1);
}

/* ---- check ------------------------------------------------------------------------------------------------------- */

struct findings {
    int n, weak;
    char text[2000]; /* what was weak, or all */
    int stop_after;
};

static int note(const struct dlock_finding *finding, void *arg) {
    struct findings *findings = arg;
    size_t used = strlen(findings->text);
    findings->n++;
    if (finding->health == DLOCK_WEAK) findings->weak++;
    assert_true((finding->health == DLOCK_WEAK) == (finding->advice != NULL));
    snprintf(findings->text + used, sizeof findings->text - used, "%s [%s]\n", finding->what,
             finding->advice ? finding->advice : "");
    return findings->n == findings->stop_after;
}

static struct findings check(const char *const *arguments, int64_t quarantine_ms, int stop_after) {
    struct findings findings = {.stop_after = stop_after};
    struct dlock_error err = {0};
    struct server checked;
    struct link link;
    server_start(&checked, arguments);
    link_careful(&link, checked.port, 'a', quarantine_ms);
    if (backend->check(link.conn, note, &findings, TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
    link_end(&link);
    server_stop(&checked);
    return findings;
}

/* The page mover has dropped nothing for want of memory since 1.6.34. */
static bool mover_drops(void) {
    return strstr(ask(&server, "stats"), "slab_reassign_evictions_nomem") != NULL;
}

TEST(settings_are_judged) {
    static const char *const safe[] = {"-M", "-o", "no_slab_reassign", NULL};
    struct findings findings = check(safe, 1, 0);
    assert_non_null(strstr(findings.text, "memcached 1."));
    assert_non_null(strstr(findings.text, "evictions off (-M) []"));
    assert_non_null(strstr(findings.text, "slab page mover off (-o no_slab_reassign) []"));
    assert_non_null(strstr(findings.text, "memory: 0 of 64 MB used []"));
    assert_non_null(strstr(findings.text, " of 1024 []"));
    if (findings.weak) assert_non_null(strstr(findings.text, "grants nothing for another "));
    findings = check(safe, 10000, 0);
    assert_int_equal(findings.weak, 1);
    assert_non_null(strstr(findings.text, "grants nothing for another "));
    findings = check(safe, 0, 0);
    assert_int_equal(findings.weak, 1);
    assert_non_null(strstr(findings.text, "and no quarantine [a restart forgets all grants"));
    findings = check(NULL, 0, 0);
    assert_int_equal(findings.weak, mover_drops() ? 3 : 2);
    assert_non_null(strstr(findings.text, mover_drops()
                                              ? "slab page mover on (slab_automove 1), 0 items dropped so far [it"
                                              : "slab page mover on, which drops no locks in this version []"));
    assert_non_null(strstr(findings.text, "evictions on, 0 items evicted so far [a full server evicts"));
    assert_int_equal(check(NULL, 0, 2).n, 2);
}

TESTS(NULL, NULL, start, stop)
