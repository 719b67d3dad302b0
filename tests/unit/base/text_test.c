/* The pieces of error texts. */
#include "base/text.h"
#include "support/test.h"

#include <dlock/backend.h>

#include <string.h>

static void join(size_t size, const char *const *items, const char *expected) {
    char out[64];
    memset(out, '#', sizeof out);
    dlock__text_join(out, size, items);
    assert_string_equal(out, expected);
    for (size_t i = size; i < sizeof out; i++) assert_int_equal(out[i], '#');
}

TEST(lists_are_joined_and_cut) {
    static const char *const items[] = {"db", "node*", "abcdefgh", NULL}, *const none[] = {NULL};
    join(64, items, "db, node, abcdefgh");
    join(24, items, "db, node, abcdefgh");
    join(22, items, "db, node, abcdefgh");
    join(21, items, "db, node...");
    join(16, items, "db, node...");
    join(16, none, "nothing");
    join(16, NULL, "nothing");
}

static void guess(const char *word, const char *expected) {
    static const char *const words[] = {
        "lease", "linger", "db", "auth*", "on", "off", "a-word-that-is-longer-than-any-other-one", NULL};
    char out[64];
    assert_int_equal(dlock_guess(out, sizeof out, word, words), *expected != '\0');
    assert_string_equal(out, expected);
}

TEST(words_are_guessed_when_near) {
    guess("lesae", "; did you mean \"lease\"?");  /* exchanged */
    guess("leas", "; did you mean \"lease\"?");   /* left out */
    guess("leaase", "; did you mean \"lease\"?"); /* put in */
    guess("leese", "; did you mean \"lease\"?");  /* changed */
    guess("LEASE", "; did you mean \"lease\"?");
    guess("langar", "; did you mean \"linger\"?"); /* a third of its letters */
    guess("langur", "; did you mean \"linger\"?");
    guess("largur", "");
    guess("auht", "; did you mean \"auth\"?");
    guess("o", "; did you mean \"on\"?");
    guess("of", ""); /* on as well as off */
    guess("onn", "; did you mean \"on\"?");
    guess("", "");
    guess("xyz", "");
    guess("a-word-that-is-longer-than-any-other-one", "");
    char out[64];
    assert_false(dlock_guess(out, sizeof out, "x", NULL));
    assert_string_equal(out, "");
}

TEST(words_have_no_other_characters) {
    assert_true(dlock__text_is_word("abc09z", ""));
    assert_true(dlock__text_is_word("a+b.c-d", "+.-"));
    assert_false(dlock__text_is_word("", "+"));
    assert_false(dlock__text_is_word("aB", ""));
    assert_false(dlock__text_is_word("a_b", "+.-"));
    assert_false(dlock__text_is_word("a\xc3\xbc", ""));
}

TESTS(NULL, NULL, NULL, NULL)
