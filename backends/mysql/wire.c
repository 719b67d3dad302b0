/* Requests and answers, in steps that do not block: libmariadb suspends a call when the socket is not ready, and
 * resumes it later. */
#include "maria.h"

#include <stdatomic.h>
#include <stdlib.h>

/* Most steps of a call whose connection has been shut down: each fails at once, and none waits. */
#define LAST_STEPS 1000

static int cont(struct maria *maria, int ready) {
    MYSQL *link = maria->link;
    switch (maria->step) {
    case MARIA_CONNECT: return mysql_real_connect_cont(&maria->connected, link, ready);
    case MARIA_QUERY: return mysql_real_query_cont(&maria->failed, link, ready);
    case MARIA_STORE: return mysql_store_result_cont(&maria->stored, link, ready);
    case MARIA_NEXT: return mysql_next_result_cont(&maria->failed, link, ready);
    case MARIA_IDLE: break;
    }
    return 0;
}

/* Resumes a call. `fd` is 0 meanwhile: libmariadb closes the socket of a broken connection, and a child that is forked
 * then must not close that number, which may belong to another file by then. */
static void resume(struct maria *maria, int ready) {
    maria->fd = 0;
    atomic_signal_fence(memory_order_seq_cst);
    maria->waits = cont(maria, ready);
    atomic_signal_fence(memory_order_seq_cst);
    maria->fd = (int)mysql_get_socket(maria->link) + 1;
}

static int ready_for(int waits, int events) {
    int ready = 0;
    if (events & (POLLIN | POLLHUP | POLLERR | POLLNVAL)) ready |= waits & MYSQL_WAIT_READ;
    if (events & (POLLOUT | POLLHUP | POLLERR | POLLNVAL)) ready |= waits & MYSQL_WAIT_WRITE;
    if (events & POLLPRI) ready |= waits & MYSQL_WAIT_EXCEPT;
    return ready ? ready : waits;
}

int maria_go_on(struct maria *maria, int64_t deadline_us) {
    while (maria->waits) {
        short events =
            (short)((maria->waits & MYSQL_WAIT_READ ? POLLIN : 0) | (maria->waits & MYSQL_WAIT_WRITE ? POLLOUT : 0) |
                    (maria->waits & MYSQL_WAIT_EXCEPT ? POLLPRI : 0));
        int happened = dlock_wait_fd((int)mysql_get_socket(maria->link), events, deadline_us);
        if (!happened) return 0;
        resume(maria, ready_for(maria->waits, happened));
    }
    return 1;
}

/* ---- one packet of statements ------------------------------------------------------------------------------------ */

void maria_forget_answers(struct maria *maria) {
    for (size_t i = 0; i < maria->n_answers; i++) mysql_free_result(maria->answers[i].rows);
    maria->n_answers = 0;
}

static void begin_step(struct maria *maria, enum maria_step step) {
    maria->step = step;
    if (step == MARIA_QUERY)
        maria->waits = mysql_real_query_start(&maria->failed, maria->link, maria->text, (unsigned long)maria->used);
    if (step == MARIA_STORE) maria->waits = mysql_store_result_start(&maria->stored, maria->link);
    if (step == MARIA_NEXT) maria->waits = mysql_next_result_start(&maria->failed, maria->link);
}

/* Stores one result. Returns 0 or a code. */
static int keep(struct maria *maria, struct dlock_error *err) {
    if (!maria->stored && mysql_field_count(maria->link) > 0) return maria_refused(maria, err);
    if (maria->n_answers == MARIA_ANSWERS) {
        mysql_free_result(maria->stored);
        return maria_nonsense(maria, "more results than statements", err);
    }
    maria->answers[maria->n_answers++] = (struct maria_answer){maria->stored, mysql_affected_rows(maria->link)};
    return 0;
}

/* Begins the step after one that is done. Returns 0, 1 (there is none) or a code. */
static int next_step(struct maria *maria, struct dlock_error *err) {
    enum maria_step done = maria->step;
    maria->step = MARIA_IDLE;
    if (done == MARIA_NEXT && maria->failed < 0) return 1; /* that was the last result */
    if (done != MARIA_STORE && maria->failed) return maria_refused(maria, err);
    if (done != MARIA_STORE) {
        maria->stored = NULL;
        begin_step(maria, MARIA_STORE);
        return 0;
    }
    int rc = keep(maria, err);
    if (rc != 0) return rc;
    if (!mysql_more_results(maria->link)) return 1;
    begin_step(maria, MARIA_NEXT);
    return 0;
}

bool maria_is_late(const struct maria *maria) {
    return maria->step != MARIA_IDLE;
}

int maria_catch_up(struct maria *maria, int64_t deadline_us, struct dlock_error *err) {
    int rc = 0;
    while (rc == 0) {
        if (!maria_go_on(maria, deadline_us)) return maria_dead(maria, "no answer in time", err);
        rc = next_step(maria, err);
    }
    return rc < 0 ? rc : 0;
}

int maria_ask(struct maria *maria, int64_t deadline_us, struct dlock_error *err) {
    maria_forget_answers(maria);
    maria->error = 0;
    if (maria->no_memory) return maria_dead(maria, "out of memory for a request", err);
    begin_step(maria, MARIA_QUERY);
    return maria_catch_up(maria, deadline_us, err);
}

/* Ends an unfinished call by letting it fail, since libmariadb frees the call's memory only then. */
static void abort_step(struct maria *maria) {
    int fd = (int)mysql_get_socket(maria->link);
    if (fd >= 0) dlock_hang_up(fd, true);
    for (int i = 0; i < LAST_STEPS && maria->waits; i++) resume(maria, maria->waits);
    if (maria->step == MARIA_STORE) mysql_free_result(maria->stored);
    maria->stored = NULL;
    maria->step = MARIA_IDLE;
}

void maria_hang_up(struct maria *maria) {
    maria_forget_answers(maria);
    if (!maria->link) return;
    if (maria_is_late(maria)) abort_step(maria);
    MYSQL *link = maria->link;
    maria->fd = 0; /* cleared first, since a child forked meanwhile would close this descriptor */
    maria->link = NULL;
    atomic_signal_fence(memory_order_seq_cst);
    mysql_close(link);
}
