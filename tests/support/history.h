/* Histories of grants, and the rules that they have to obey. Nothing in here depends on where a history comes from.
 *
 * A history is text, one event a line, in any order; times are CLOCK_BOOTTIME in nanoseconds, `who` names a process for
 * good (numbers of processes come back), `id` is one hold of it:
 *
 *     held   who id time asked until name mode limit fence
 *                                      an acquire that was called at `asked` has returned; the grant is valid until
 *                                      `until`; mode is x, s or p, and limit that of permits
 *     still  who id until              a later look: valid until then
 *     lost   who id time               the process has been told that the grant has ended
 *     free   who id time               release is about to be called
 *     freed  who id                    release has answered 0: the grant has lasted until `free`
 *     killed who 0 time                the process is about to be killed
 *     earlier 0 0 time fence name      the greatest fence of the name in the history before this one, of a grant from
 *                                      then; it is no grant of this one
 *     forgot 0 0 time until            a fault in that time takes grants away: those that were asked for before its end
 *                                      exclude nobody from its beginning on, and their fences may be old */
#ifndef DLOCK_TESTS_SUPPORT_HISTORY_H
#define DLOCK_TESTS_SUPPORT_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { HISTORY_NAME = 64 };

/* One grant, as its holder was told of it. */
struct history_hold {
    const char *name;
    uint64_t fence;
    int64_t asked, from, until; /* until: to the best of the holder's knowledge, whatever happens to it */
    int who, id;
    uint32_t limit;
    char mode;     /* x, s, p; HISTORY_EARLIER */
    bool doubtful; /* perhaps a part of a grant that a fault has taken away: its fence may be an old one */
};

#define HISTORY_EARLIER 'e' /* only its fence counts */

struct history {
    struct history_hold *holds;
    size_t n;
    void *names; /* of history_read() */
};

/* Reads a history; the caller ends it with history_free(). Returns 0, or the number of the first line that makes no
 * sense. */
size_t history_read(FILE *file, struct history *history);
void history_free(struct history *history);

/* Calls `wrong` for each hold that breaks a rule, with a line that says which, and returns how many there are. Sorts the
 * holds by name and fence. */
typedef void history_wrong(const char *what, void *arg);
size_t history_check(struct history *history, history_wrong *wrong, void *arg);

/* How many grants of a checked history there are; how many of them somebody else kept waiting, or waited for, too; and
 * how many of these the server has made itself, none of them a hand-over inside a process. */
struct history_counts {
    size_t grants, contended, served;
};
struct history_counts history_count(const struct history *history);

/* Where the holds of the name of holds[i] end in a checked history. */
size_t history_name_end(const struct history *history, size_t i);

#endif
