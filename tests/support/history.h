/* Histories of grants, and the rules that they must obey, wherever a history comes from.
 *
 * A history is text, one event a line, in any order. Times are CLOCK_BOOTTIME in nanoseconds. `who` names a process for
 * good (unlike a process id, which is reused); `id` is one hold of that process:
 *
 *     held   who id time asked until name mode limit fence
 *                                      an acquire that was called at `asked` has returned; the grant is valid until
 *                                      `until`; mode is x, s or p, and limit that of permits
 *     still  who id until              looked at later, the grant is valid until then
 *     lost   who id time               the process has been told that the grant has ended
 *     free   who id time               release will be called next
 *     freed  who id                    release has returned 0: the grant has lasted until `free`
 *     killed who 0 time                the process will be killed next
 *     earlier 0 0 time fence name      the greatest fence of the name in the preceding history, of a grant made at that
 *                                      time, which is no grant of this history
 *     forgot 0 0 time until            a fault in this time takes grants away: those that were asked for before its end
 *                                      exclude no client from its beginning on, and their fences may be old ones */
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
    int64_t asked, from, until; /* until: by the best knowledge of the holder, whatever happens to it */
    int who, id;
    uint32_t limit;
    char mode;     /* x, s, p, or HISTORY_EARLIER */
    bool doubtful; /* a fault may have taken the grant away: its fence may be an old one */
};

#define HISTORY_EARLIER 'e' /* only its fence counts */

struct history {
    struct history_hold *holds;
    size_t n;
    void *names; /* private to history_read() */
};

/* Reads a history; end it with history_free(). Returns 0, or the number of the first invalid line. */
size_t history_read(FILE *file, struct history *history);
void history_free(struct history *history);

/* Checks all holds. Calls `wrong`, with a line of text, for each one that breaks a rule, and returns their number.
 * Sorts the holds by name and fence. */
typedef void history_wrong(const char *what, void *arg);
size_t history_check(struct history *history, history_wrong *wrong, void *arg);

/* Counts of a checked history: its grants; those that another process delayed or waited for (contended); and of these
 * the ones that the server made itself, not by a hand-over inside a process (served). */
struct history_counts {
    size_t grants, contended, served;
};
struct history_counts history_count(const struct history *history);

/* Returns the index behind the last hold with the name of holds[i], in a checked history. */
size_t history_name_end(const struct history *history, size_t i);

#endif
