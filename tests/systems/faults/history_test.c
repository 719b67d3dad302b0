/* Tests of the checker itself: histories that break a rule, and histories that only seem to break one. */
#include "support/history.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

struct scene {
    const char *what, *broken, *text; /* broken: words of the expected report; NULL if no rule is broken */
};

/* The fields of a grant: held WHO ID TIME ASKED UNTIL NAME MODE LIMIT FENCE */
static const struct scene scenes[] = {
    {"two processes at once", "two holders",
     "held 1 1 10 5 100 n x 0 1\nheld 2 1 20 5 100 n x 0 2\nfree 1 1 30\nfree 2 1 40\n"},
    {"two threads of one process", "two holders",
     "held 1 1 10 5 100 n x 0 1\nheld 1 2 20 5 100 n x 0 2\nfree 1 1 30\nfree 1 2 40\n"},
    {"one inside of the other", "two holders",
     "held 1 1 10 5 100 n x 0 1\nheld 2 1 20 5 100 n x 0 2\nfree 2 1 30\nfree 1 1 40\n"},
    {"the younger one has the smaller fence", "two holders",
     "held 1 1 10 5 100 n x 0 2\nheld 2 1 20 5 100 n x 0 1\nfree 1 1 30\nfree 2 1 40\n"},
    {"a reader during a writer", "two holders",
     "held 1 1 10 5 100 n x 0 1\nheld 2 1 20 5 100 n s 0 2\nfree 1 1 30\nfree 2 1 40\n"},
    {"a writer during a reader", "two holders",
     "held 1 1 10 5 100 n s 0 1\nheld 2 1 20 5 100 n x 0 2\nfree 1 1 30\nfree 2 1 40\n"},
    {"a writer during a reader that another one has outlived", "two holders",
     "held 1 1 10 5 90 n s 0 1\nheld 2 1 11 5 90 n s 0 2\nfree 2 1 20\nheld 3 1 30 25 90 n x 0 3\nfree 1 1 40\n"},
    {"a third one, long after the first", "two holders",
     "held 1 1 10 5 100 n x 0 1\nheld 2 1 101 5 110 n x 0 2\nheld 3 1 105 5 115 n x 0 3\n"},
    {"a stopped holder whose lease is not over", "two holders",
     "held 1 1 10 5 100 n x 0 1\nheld 2 1 99 50 200 n x 0 2\n"},
    {"a killed holder whose release had not begun", "two holders",
     "held 1 1 10 5 100 n x 0 1\nkilled 1 0 60\nheld 2 1 59 50 200 n x 0 2\n"},
    {"a lease that a later look found longer", "two holders",
     "held 1 1 10 5 50 n x 0 1\nstill 1 1 80\nheld 2 1 60 55 200 n x 0 2\n"},
    {"a holder that is told after the next one has it", "two holders",
     "held 1 1 10 5 100 n x 0 1\nheld 2 1 60 50 200 n x 0 2\nlost 1 1 61\n"},
    {"a release that claims a longer hold than the lease", "two holders",
     "held 1 1 10 5 50 n x 0 1\nheld 2 1 60 55 70 n x 0 2\nfree 1 1 80\nfreed 1 1\n"},
    {"a holder of a lock that never ends", "two holders",
     "held 1 1 10 5 9223372036854775807 n x 0 1\nheld 2 1 600 55 700 n x 0 2\n"},
    {"asked for after a fault that forgets", "two holders",
     "forgot 0 0 10 20\nheld 1 1 30 25 100 n x 0 1\nheld 2 1 40 25 100 n x 0 2\n"},
    {"three of two permits", "more permits",
     "held 1 1 10 5 100 n p 2 1\nheld 2 1 11 5 100 n p 2 2\nheld 3 1 12 5 100 n p 2 3\n"},
    {"three of two permits of one process, whose fences are out of order", "more permits",
     "held 1 1 10 5 100 n p 2 3\nheld 1 2 11 5 100 n p 2 1\nheld 1 3 12 5 100 n p 2 2\n"},
    {"a permit more while two are handed on", "more permits",
     "held 1 1 10 5 100 n p 2 1\nfree 1 1 20\nheld 2 1 11 5 100 n p 2 2\nheld 3 1 25 5 100 n p 2 3\n"
     "held 4 1 26 5 100 n p 2 4\n"},
    {"one fence twice", "one fence twice",
     "held 1 1 10 5 20 n x 0 7\nfree 1 1 15\nheld 2 1 30 25 50 n x 0 7\nfree 2 1 40\n"},
    {"one fence twice, of readers", "one fence twice",
     "held 1 1 10 5 50 n s 0 7\nheld 2 1 11 5 50 n s 0 7\nfree 1 1 15\nfree 2 1 40\n"},
    {"a smaller fence than before", "fences go back",
     "held 1 1 10 5 20 n x 0 8\nfree 1 1 15\nheld 2 1 30 25 50 n x 0 7\nfree 2 1 40\n"},
    {"a smaller fence than that of one who is long gone", "fences go back",
     "held 1 1 10 5 20 n s 0 8\nfree 1 1 15\nheld 2 1 30 25 50 n s 0 7\nfree 2 1 40\n"},
    {"a smaller fence after a fault that forgets", "fences go back",
     "held 1 1 10 5 20 n x 0 8\nforgot 0 0 15 20\nheld 2 1 30 25 50 n x 0 7\nfree 2 1 40\n"},
    {"a fence of nought", "no fence", "held 1 1 10 5 20 n x 0 0\nfree 1 1 15\n"},
    {"a smaller fence than in the history before", "fences go back",
     "earlier 0 0 10 8 n\nheld 1 1 30 25 50 n s 0 7\nfree 1 1 40\n"},
    {"the last fence of the history before", "one fence twice",
     "earlier 0 0 10 8 n\nheld 1 1 30 25 50 n x 0 8\nfree 1 1 40\n"},
    {"asked for after the first of two faults that forget", "two holders",
     "forgot 0 0 10 20\nforgot 0 0 70 80\nheld 1 1 90 85 100 n x 0 1\nheld 2 1 95 85 100 n x 0 2\n"},
    {"killed later than the one before it", "two holders",
     "killed 1 0 5\nheld 2 1 10 5 100 n x 0 1\nkilled 2 0 60\nheld 3 1 59 50 200 n x 0 2\n"},

    {"nothing", NULL, "# a remark\n\n"},
    {"one after the other", NULL, "held 1 1 10 5 100 n x 0 1\nfree 1 1 20\nheld 2 1 20 5 100 n x 0 2\nfree 2 1 40\n"},
    {"the lines of one after those of the other", NULL,
     "held 2 1 21 5 100 n x 0 2\nfree 2 1 40\nfree 1 1 20\nheld 1 1 10 5 100 n x 0 1\n"},
    {"two names", NULL, "held 1 1 10 5 100 m x 0 1\nheld 2 1 20 5 100 n x 0 1\n"},
    {"readers beside each other", NULL,
     "held 1 1 10 5 100 n s 0 1\nheld 2 1 11 5 100 n s 0 2\nfree 1 1 30\nfree 2 1 40\nheld 3 1 41 5 100 n x 0 3\n"},
    {"readers that are told in another order than they were granted", NULL,
     "held 1 1 11 5 100 n s 0 1\nheld 2 1 10 5 100 n s 0 2\n"},
    {"two of two permits", NULL, "held 1 1 10 5 100 n p 2 1\nheld 2 1 11 5 100 n p 2 2\n"},
    {"a lease that is over", NULL, "held 1 1 10 5 100 n x 0 1\nheld 2 1 101 50 200 n x 0 2\nfree 1 1 150\n"},
    {"told in time", NULL, "held 1 1 10 5 100 n x 0 1\nlost 1 1 49\nheld 2 1 50 50 200 n x 0 2\nfree 1 1 150\n"},
    {"told before the line that it holds", NULL,
     "lost 1 1 49\nheld 1 1 10 5 100 n x 0 1\nheld 2 1 50 50 200 n x 0 2\n"},
    {"killed", NULL, "held 1 1 10 5 100 n x 0 1\nkilled 1 0 20\nheld 2 1 20 5 100 n x 0 2\n"},
    {"over when it came", NULL, "held 1 1 10 5 0 n x 0 1\nheld 2 1 9 5 100 n x 0 2\n"},
    {"forgotten", NULL,
     "held 1 1 10 5 100 n x 0 1\nforgot 0 0 20 30\nheld 2 1 25 5 100 n x 0 2\nheld 3 1 31 30 90 n x 0 3\n"},
    {"handed on within a process that does not know yet that the grant was forgotten", NULL,
     "held 1 1 10 5 100 n x 0 256\nforgot 0 0 20 40\nheld 2 1 25 5 100 n x 0 512\nfree 1 1 27\n"
     "held 1 2 30 28 90 n x 0 257\nfree 1 2 32\nfree 2 1 33\n"},
    {"forgotten by the longer one of two faults", NULL,
     "held 1 1 10 5 100 n x 0 1\nforgot 0 0 20 90\nforgot 0 0 30 40\nheld 2 1 25 5 100 n x 0 2\n"},
    {"a greater fence than in the history before", NULL,
     "earlier 0 0 10 8 n\nearlier 0 0 10 20 m\nheld 1 1 30 25 50 n x 0 9\nfree 1 1 40\n"},
};

static void note_report(const char *what, void *arg) {
    char *report = arg;
    if (!*report) strcpy(report, what);
}

static void read_text(const char *text, struct history *history) {
    FILE *file = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
    assert_non_null(file);
    assert_int_equal(history_read(file, history), 0);
    fclose(file);
}

static void check_scene(const struct scene *scene) {
    struct history history;
    char report[512] = "";
    read_text(scene->text, &history);
    size_t n = history_check(&history, note_report, report);
    history_free(&history);
    if (!scene->broken ? n > 0 : !strstr(report, scene->broken)) fail_msg("%s: %s", scene->what, report);
}

TEST(breaks_of_rules_are_found) {
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
        if (scenes[i].broken) check_scene(&scenes[i]);
}

TEST(what_only_looks_so_is_not) {
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
        if (!scenes[i].broken) check_scene(&scenes[i]);
}

TEST(lines_that_make_no_sense_are_named) {
    static const char *const lines[] = {"hold 1 1 10\n",
                                        "held 1 1 10 5 100 n x 0\n",
                                        "held 1 1 10 5 100 n y 0 1\n",
                                        "free 1 1\n",
                                        "freed\n",
                                        "still 1 1\n",
                                        "forgot 0 0 1\n",
                                        "killed 1\n",
                                        "earlier 0 0 10 n\n"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct history history;
        char text[128];
        int n = snprintf(text, sizeof text, "free 1 1 20\n%s", lines[i]);
        FILE *file = fmemopen(text, (size_t)n, "r");
        assert_non_null(file);
        if (history_read(file, &history) != 2) fail_msg("taken for an event: %s", lines[i]);
        fclose(file);
        history_free(&history);
    }
}

TEST(contended_grants_are_counted) {
    static const struct {
        size_t grants, contended, served;
        const char *text;
    } counts[] = {
        {2, 0, 0, "held 1 1 10 5 90 n x 0 256\nfree 1 1 20\nheld 2 1 30 21 90 n x 0 512\nfree 2 1 40\n"},
        {2, 1, 1, "held 1 1 10 5 90 n x 0 256\nfree 1 1 20\nheld 2 1 30 15 90 n x 0 512\nfree 2 1 40\n"},
        {2, 1, 0, "held 1 1 10 5 90 n x 0 256\nfree 1 1 20\nheld 1 2 30 15 90 n x 0 257\nfree 1 2 40\n"},
        {2, 2, 2, "held 1 1 10 5 90 n x 0 256\nfree 1 1 20\nheld 2 1 30 6 90 n x 0 512\nfree 2 1 40\n"},
        {2, 0, 0, "held 1 1 10 5 90 n s 0 256\nheld 2 1 11 6 90 n s 0 512\n"},
        {3, 1, 1,
         "held 1 1 10 5 90 n s 0 256\nheld 2 1 11 6 90 n s 0 512\nfree 1 1 20\nfree 2 1 20\n"
         "held 3 1 21 15 90 n x 0 768\n"},
        {2, 1, 1, "held 1 1 10 5 90 n x 0 256\nfree 1 1 20\nheld 2 1 30 15 90 n s 0 512\n"},
        {3, 1, 1,
         "held 1 1 10 5 90 n p 2 256\nheld 2 1 15 11 90 n p 2 512\nfree 1 1 20\n"
         "held 3 1 21 16 90 n p 2 768\n"},
        {2, 0, 0, "held 1 1 10 5 90 n x 0 256\nheld 2 1 30 15 90 m x 0 512\n"},
        {1, 0, 0, "earlier 0 0 10 8 n\nheld 2 1 30 9 90 n x 0 512\n"},
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct history history;
        read_text(counts[i].text, &history);
        assert_int_equal(history_check(&history, note_report, (char[512]){""}), 0);
        struct history_counts found = history_count(&history);
        if (found.grants != counts[i].grants || found.contended != counts[i].contended ||
            found.served != counts[i].served)
            fail_msg("%s: %zu grants, %zu contended, %zu served", counts[i].text, found.grants, found.contended,
                     found.served);
        history_free(&history);
    }
}

/* The checker needs only seconds for a history as long as that of an hour on a fast server. */
TEST(long_histories_are_checked) {
    enum { GRANTS = 300000, KILLS = 3000 };
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    assert_non_null(file);
    for (int i = 1; i <= GRANTS; i++) {
        int who = 1 + i % KILLS;
        fprintf(file, "held %d %d %d %d %d n x 0 %d\nfree %d %d %d\n", who, i, 10 * i, 10 * i - 15, 10 * i + 1000, i,
                who, i, 10 * i + 5);
    }
    for (int i = 1; i <= KILLS; i++) fprintf(file, "killed %d 0 %d\n", i, 10 * GRANTS + i);
    for (int i = 1; i <= KILLS; i++) fprintf(file, "forgot 0 0 %d %d\n", 10 * i, 10 * i + 5);
    fclose(file);
    struct history history;
    char report[512] = "";
    read_text(text, &history);
    assert_int_equal(history_check(&history, note_report, report), 0);
    assert_int_equal(history_count(&history).contended, GRANTS);
    history_free(&history);
    free(text);
}

TESTS(NULL, NULL, NULL, NULL)
