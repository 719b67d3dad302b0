/* Names: all that are allowed work, stay distinct, and are shown unchanged. */
#include "suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const odd_names[] = {
    ".",
    "..",
    "...",
    "/",
    "//",
    " ",
    "  x ",
    "a b",
    "a/b",
    "/etc/passwd",
    "../../x",
    "a/../b",
    "-n",
    "--",
    "~",
    "~/x",
    "'",
    "\"",
    "a'b\"c",
    "`x`",
    "$(x)",
    "$HOME",
    "a;b",
    "a&b",
    "a|b",
    "a\\b",
    "a%b",
    "%2F",
    "%00",
    "%",
    "%%",
    "{a}b",
    "a{b}c",
    "}{",
    "{}",
    "[a]",
    "*",
    "?",
    "a*",
    "a,b",
    "a=b",
    "a?b#c",
    "a@b",
    "a:b",
    "lock",
    "x.lock",
    "_c_x-lock-0000",
    "gr\xc3\xbcn",
    "\xe6\x97\xa5\xe6\x9c\xac",
    "\xf0\x9f\x94\x92",
    "\xff\xfe",
    "a\xc3",
    "\x80",
    "\xc2\x85",
};
enum { N_ODD = sizeof odd_names / sizeof odd_names[0] };

static int compare_name(const struct dlock_info *info, void *arg) {
    if (strcmp(info->name, arg) != 0) FAIL("the lock \"%s\" shows up as \"%s\"", (const char *)arg, info->name);
    return 0;
}

/* Checks that two clients agree on who holds `name`. */
static void use_name(dlock_client *one, dlock_client *two, const char *name) {
    SCOPED_LOCK *first = new_lock(one, name, NULL), *second = new_lock(two, name, NULL);
    if (dlock_acquire(first, PATIENCE_MS, &last_error) != 0) FAIL("\"%s\": %s", name, last_error.message);
    int code = dlock_acquire(second, 0, &last_error);
    if (code != DLOCK_EBUSY) FAIL("\"%s\" is granted twice (%s)", name, dlock_strerror(code));
    if (suite.caps & DLOCK_CAP_INSPECT) {
        char copy[DLOCK_NAME_MAX + 1];
        strcpy(copy, name);
        EXPECT_CODE(0, dlock_inspect(two, name, compare_name, copy, ERR));
    }
    uint64_t fence = dlock_fence(first);
    EXPECT_CODE(0, dlock_release(first, ERR));
    if (dlock_acquire(second, PATIENCE_MS, &last_error) != 0) FAIL("\"%s\": %s", name, last_error.message);
    EXPECT(dlock_fence(second) > fence);
    EXPECT_CODE(0, dlock_release(second, ERR));
}

void case_names_of_every_kind(void) {
    SCOPED_CLIENT *one = open_client(), *two = open_client();
    for (size_t i = 0; i < N_ODD; i++) use_name(one, two, odd_names[i]);
}

/* All variants are held at once, under a name of this run. */
void case_names_stay_distinct(void) {
    static const char *const variants[] = {
        "a/b",     "a%2Fb",  "a%2fb",    "a%252Fb",   "a//b", "a/./b", "a/../b", "a\\b",     "A/B",
        "a/B",     "a b",    "a  b",     "a b ",      "a+b",  "a%20b", "a_b",    "a-b",      "a.b",
        "a:b",     "{a}b",   "a{b}",     "%7Ba%7Db",  "a*b",  "a?b",   "a",      "ab",       "a:queue",
        "a:fence", "a:lock", "\xc3\xa9", "e\xcc\x81", "\xe9", "%E9",   "%C3%A9", "\xc3\x89",
    };
    enum { N = sizeof variants / sizeof variants[0] };
    SCOPED_CLIENT *client = open_client(), *other = open_client();
    dlock_lock *locks[N];
    char name[DLOCK_NAME_MAX + 1];
    for (size_t i = 0; i < N; i++) {
        tagged_name(name, variants[i]);
        locks[i] = new_lock(client, name, NULL);
        int code = dlock_acquire(locks[i], 0, &last_error);
        if (code != 0) FAIL("\"%s\" is not distinct: %s", name, last_error.message);
    }
    for (size_t i = 0; i < N; i++) {
        tagged_name(name, variants[i]);
        dlock_lock *wanted = new_lock(other, name, NULL);
        EXPECT_CODE(DLOCK_EBUSY, dlock_acquire(wanted, 0, ERR));
        EXPECT_CODE(0, dlock_release(locks[i], ERR));
        EXPECT_CODE(0, dlock_acquire(wanted, 0, ERR));
        dlock_free(wanted);
        dlock_free(locks[i]);
    }
}

/* Fills `name` up to 200 bytes; the last one is `last`. */
static void long_name(char *name, const char *filler, char last) {
    tagged_name(name, "");
    size_t used = strlen(name);
    for (size_t i = 0; used < DLOCK_NAME_MAX; i++) name[used++] = filler[i % strlen(filler)];
    name[DLOCK_NAME_MAX - 1] = last;
    name[DLOCK_NAME_MAX] = '\0';
}

void case_names_of_200_bytes(void) {
    static const char *const fillers[] = {"x", "/", "%", "\xff", "{", " '\"\\", "../"};
    SCOPED_CLIENT *client = open_client(), *other = open_client();
    for (size_t i = 0; i < sizeof fillers / sizeof fillers[0]; i++) {
        char a[DLOCK_NAME_MAX + 1], b[DLOCK_NAME_MAX + 1];
        long_name(a, fillers[i], 'a');
        long_name(b, fillers[i], 'b');
        use_name(client, other, a);
        SCOPED_LOCK *first = new_lock(client, a, NULL), *second = new_lock(other, b, NULL);
        EXPECT_CODE(0, dlock_acquire(first, 0, ERR));
        EXPECT_CODE(0, dlock_acquire(second, 0, ERR));
        EXPECT_TAKEN(a);
        EXPECT_TAKEN(b);
        EXPECT_CODE(0, dlock_release(first, ERR));
        EXPECT_CODE(0, dlock_release(second, ERR));
    }
}

static dlock_client *open_with_prefix(const char *tail) {
    char prefix[56]; /* prefixes are short; the beginning of the name tells runs apart */
    snprintf(prefix, sizeof prefix, "%.40s-%s", suite.name, tail);
    char *uri = uri_with(suite.uri, "prefix", prefix);
    dlock_client *client = NULL;
    EXPECT_CODE(0, dlock_open(uri, NULL, &client, ERR));
    free(uri);
    return client;
}

void case_prefix_is_part_of_the_name(void) {
    char shown[] = "bc"; /* names are shown as they were asked for */
    SCOPED_CLIENT *one = open_with_prefix("a"), *two = open_with_prefix("ab");
    SCOPED_LOCK *bc = new_lock(one, "bc", NULL), *c = new_lock(two, "c", NULL), *other = new_lock(two, "bc", NULL);
    EXPECT(strcmp(dlock_name(bc), "bc") == 0);
    EXPECT_CODE(0, dlock_acquire(bc, 0, ERR));
    EXPECT_CODE(DLOCK_EBUSY, dlock_acquire(c, 0, ERR));
    EXPECT_CODE(0, dlock_acquire(other, 0, ERR));
    if (suite.caps & DLOCK_CAP_INSPECT) EXPECT_CODE(0, dlock_inspect(one, "bc", compare_name, shown, ERR));
    if (suite.caps & DLOCK_CAP_LIST) EXPECT_CODE(0, dlock_list(one, "bc", compare_name, shown, ERR));
}
