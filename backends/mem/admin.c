/* The operations for operators: inspect, list, break, check. */
#include "mem.h"

#include <stdlib.h>

/* ---- inspect ----------------------------------------------------------------------------------------------------- */

/* A copy of a name's holders or waiters, so that the callbacks can be called without the mutex. */
struct picture {
    struct holder {
        struct dlock_info info;
        char token[DLOCK_TOKEN_MAX + 1];
    } * holders;
    size_t n;
};

static uint32_t count(const struct mem_entry *entry) {
    uint32_t n = 0;
    for (; entry; entry = entry->next) n++;
    return n;
}

static bool draw(struct picture *picture, const struct mem_name *name, bool of_queue) {
    int64_t now = mem_now_us();
    uint32_t waiters = count(name->queue);
    const struct mem_entry *drawn = of_queue ? name->queue : name->holders;
    picture->holders = calloc(count(drawn) + 1, sizeof *picture->holders);
    if (!picture->holders) return false;
    for (const struct mem_entry *entry = drawn; entry; entry = entry->next) {
        struct holder *holder = &picture->holders[picture->n++];
        holder->info = (struct dlock_info){.size = sizeof holder->info,
                                           .mode = entry->mode,
                                           .waiters = waiters,
                                           .limit = entry->mode == DLOCK_PERMIT ? entry->limit : 1,
                                           .fence = entry->fence,
                                           .remaining_ms = of_queue ? 0 : (entry->until_us - now + 999) / 1000,
                                           .held_ms = dlock_held_ms(now, entry->since_us)};
        memcpy(holder->token, entry->token, sizeof holder->token);
    }
    return true;
}

/* Calls `each` for the holders of a name, or for its queue; *more becomes false when `each` wants no more. Returns 0 or
 * ENOMEM. */
static int show(struct mem_space *space, const char *text, bool of_queue, dlock_each each, void *arg, bool *more,
                struct dlock_error *err) {
    struct picture picture = {0};
    bool drawn = true;
    mem_lock();
    struct mem_name *name = mem_find(space, text);
    if (name) {
        mem_settle(space, name);
        drawn = draw(&picture, name, of_queue);
        mem_tidy(space, name);
    }
    mem_unlock();
    if (!drawn) return dlock_fail(err, DLOCK_ENOMEM, "out of memory for the holders of a lock");
    for (size_t i = 0; i < picture.n && *more; i++) {
        picture.holders[i].info.name = text;
        picture.holders[i].info.token = picture.holders[i].token;
        *more = each(&picture.holders[i].info, arg) == 0;
    }
    free(picture.holders);
    return 0;
}

int mem_inspect(void *memory, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err) {
    struct mem_conn *conn = memory;
    bool more = true;
    if (mem_await(conn, timeout_ms) != MEM_ANSWERED) return mem_unanswered(err);
    return show(conn->space, name, false, each, arg, &more, err);
}

int mem_waiters(void *memory, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err) {
    struct mem_conn *conn = memory;
    bool more = true;
    if (mem_await(conn, timeout_ms) != MEM_ANSWERED) return mem_unanswered(err);
    return show(conn->space, name, true, each, arg, &more, err);
}

enum { PAGE = 100 };

int mem_list(void *memory, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
             struct dlock_error *err) {
    struct mem_conn *conn = memory;
    if (mem_await(conn, timeout_ms) != MEM_ANSWERED) return mem_unanswered(err);
    char(*page)[MEM_NAME_MAX + 1] = calloc(PAGE, sizeof *page);
    if (!page) return dlock_fail(err, DLOCK_ENOMEM, "out of memory for a list of locks");
    mem_lock();
    size_t n = mem_page(conn->space, prefix, cursor, page, PAGE);
    mem_unlock();
    bool more = true;
    int rc = 0;
    for (size_t i = 0; i < n && more && rc == 0; i++) rc = show(conn->space, page[i], false, each, arg, &more, err);
    if (n > 0) strcpy(cursor, page[n - 1]);
    free(page);
    return rc != 0 ? rc : more && n == PAGE;
}

/* ---- break ------------------------------------------------------------------------------------------------------- */

int mem_break_lock(void *memory, const char *name, int timeout_ms, struct dlock_error *err) {
    struct mem_conn *conn = memory;
    enum mem_fate fate = mem_await(conn, timeout_ms);
    if (fate == MEM_NEVER_ARRIVED) return mem_unanswered(err);
    mem_lock();
    bool broken = mem_break(conn->space, name);
    mem_unlock();
    if (fate == MEM_ANSWER_LOST) return mem_unanswered(err);
    return broken ? 0 : dlock_fail(err, DLOCK_ELOST, "nobody holds the lock");
}

/* ---- check ------------------------------------------------------------------------------------------------------- */

int mem_check(void *memory, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err) {
    const struct mem_conn *conn = memory;
    struct dlock_report report = {each, arg, false};
    char delay[32];
    (void)timeout_ms, (void)err;
    dlock_find(&report, "mem: is for a program's own tests: name a server, or file:, to exclude other processes",
               "locks of mem: exclude the threads of one process, and nothing else");
    if (conn->delay_ms > 0 || conn->fail > 0)
        dlock_find(&report, "its URI asks for these faults: leave delay= and fail= out",
                   "every request takes %s, and %u of a million are not answered",
                   dlock_duration_text(delay, conn->delay_ms), (unsigned)conn->fail);
    return 0;
}
