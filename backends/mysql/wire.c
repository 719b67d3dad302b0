/* Requests and answers, in steps that do not block: libmariadb suspends a call when the socket is not ready, and
 * resumes it later. It keeps reading as long as the socket has data: so each step reads only one row, and between the
 * steps an answer that is too long or too late is abandoned. */
#include "maria.h"

#include <stdatomic.h>
#include <stdlib.h>

/* Most steps of a call whose connection has been shut down: each fails at once, and none waits. */
#define LAST_STEPS 1000

/* Under this key libmariadb keeps the connection's struct maria. */
static const char USERDATA[] = "dlock";

/* Added to the length of each value. */
#define VALUE_COST 4

/* ---- limits ------------------------------------------------------------------------------------------------------ */

/* Reports of progress, which libmariadb reads on and on while it waits for an answer. */
static void hear_progress(const MYSQL *link, unsigned stage, unsigned stages, double progress, const char *what,
                          unsigned length) {
    struct maria *maria = NULL;
    (void)stage, (void)stages, (void)progress, (void)what, (void)length;
    mysql_get_optionv((MYSQL *)link, MARIADB_OPT_USERDATA, (void *)USERDATA, (void *)&maria);
    if (maria && dlock_now_us() >= maria->deadline_us) dlock_hang_up((int)mysql_get_socket((MYSQL *)link), true);
}

bool maria_set_version(struct maria *maria) {
    maria->no_version = strdup("");
    maria->link->server_version = maria->no_version;
    return maria->no_version != NULL;
}

/* libmariadb frees the version when it cannot connect, and forgets the old one when it sets a new one. That it has set
 * one is seen by the server's capabilities, which it reads next. */
void maria_forget_version(struct maria *maria) {
    const MYSQL *link = maria->link;
    if (link->server_version == maria->no_version) return; /* mysql_close() will free it */
    if (link->server_version || link->server_capabilities) free(maria->no_version);
    maria->no_version = NULL;
}

int maria_set_limits(struct maria *maria) {
    const size_t most = MARIA_PACKET_MAX;
    MYSQL *link = maria->link;
    maria_limit_columns(maria);
    return mysql_options(link, MYSQL_OPT_MAX_ALLOWED_PACKET, &most) ||
           mysql_optionsv(link, MARIADB_OPT_USERDATA, (void *)USERDATA, (void *)maria) ||
           mysql_options(link, MYSQL_PROGRESS_CALLBACK, (const void *)(uintptr_t)hear_progress);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static int begin(struct maria *maria) {
    MYSQL *link = maria->link;
    switch (maria->step) {
    case MARIA_QUERY: return mysql_real_query_start(&maria->failed, link, maria->text, (unsigned long)maria->used);
    case MARIA_ROW: return mysql_fetch_row_start(&maria->row, maria->unread);
    case MARIA_NEXT: return mysql_next_result_start(&maria->failed, link);
    case MARIA_CONNECT:
    case MARIA_IDLE: break;
    }
    return 0;
}

static int cont(struct maria *maria, int ready) {
    MYSQL *link = maria->link;
    switch (maria->step) {
    case MARIA_CONNECT: return mysql_real_connect_cont(&maria->connected, link, ready);
    case MARIA_QUERY: return mysql_real_query_cont(&maria->failed, link, ready);
    case MARIA_ROW: return mysql_fetch_row_cont(&maria->row, maria->unread, ready);
    case MARIA_NEXT: return mysql_next_result_cont(&maria->failed, link, ready);
    case MARIA_IDLE: break;
    }
    return 0;
}

/* Begins a call (`ready` is 0), or resumes it. `fd` is 0 during the call: libmariadb closes the socket of a broken
 * connection, and a child forked after that must not close that number, which may belong to another file by then. */
static void run(struct maria *maria, int ready) {
    struct maria_signals signals;
    maria->fd = 0;
    atomic_signal_fence(memory_order_seq_cst);
    maria_signals_off(maria, &signals);
    maria->waits = ready ? cont(maria, ready) : begin(maria);
    maria_signals_on(maria, &signals);
    atomic_signal_fence(memory_order_seq_cst);
    maria->fd = (int)mysql_get_socket(maria->link) + 1;
}

static void begin_step(struct maria *maria, enum maria_step step) {
    maria->step = step;
    run(maria, 0);
}

static int ready_for(int waits, int events) {
    int ready = 0;
    if (events & (POLLIN | POLLHUP | POLLERR | POLLNVAL)) ready |= waits & MYSQL_WAIT_READ;
    if (events & (POLLOUT | POLLHUP | POLLERR | POLLNVAL)) ready |= waits & MYSQL_WAIT_WRITE;
    if (events & POLLPRI) ready |= waits & MYSQL_WAIT_EXCEPT;
    return ready ? ready : waits;
}

/* After the deadline the call is resumed once at most, for what has arrived in time: a sender that keeps the socket
 * ready must not prolong it. */
int maria_go_on(struct maria *maria, int64_t deadline_us) {
    maria->deadline_us = deadline_us;
    while (maria->waits) {
        short events =
            (short)((maria->waits & MYSQL_WAIT_READ ? POLLIN : 0) | (maria->waits & MYSQL_WAIT_WRITE ? POLLOUT : 0) |
                    (maria->waits & MYSQL_WAIT_EXCEPT ? POLLPRI : 0));
        int happened = dlock_wait_fd((int)mysql_get_socket(maria->link), events, deadline_us);
        if (!happened) return 0;
        run(maria, ready_for(maria->waits, happened));
        if (maria->waits && dlock_now_us() >= deadline_us) return 0;
    }
    return 1;
}

/* ---- one packet of statements ------------------------------------------------------------------------------------ */

/* Gives an answer up, whose rest is never read: the connection is good for nothing but to be closed. */
static int give_up(struct maria *maria, const char *why, struct dlock_error *err) {
    maria->step = MARIA_ROW;
    return maria_nonsense(maria, why, err);
}

/* Begins to read the rows of a result, if it has any. Returns 0, 1 (it has none) or a code. */
static int open_result(struct maria *maria, struct dlock_error *err) {
    maria->unread = mysql_use_result(maria->link);
    if (!maria->unread && mysql_field_count(maria->link) > 0) return maria_refused(maria, err);
    const unsigned columns = maria->unread ? mysql_num_fields(maria->unread) : 0;
    if (maria->n_answers == MARIA_ANSWERS) return give_up(maria, "more results than statements", err);
    if (columns > MARIA_COLUMNS) return give_up(maria, "a result of too many columns", err);
    const uint32_t at = (uint32_t)maria->kept.used;
    maria->answers[maria->n_answers++] = (struct maria_answer){
        .columns = columns,
        .at = at,
        .end = at,
        .affected = columns ? 0 : mysql_affected_rows(maria->link),
        .id = columns ? 0 : mysql_insert_id(maria->link),
    };
    if (!columns) return 1;
    begin_step(maria, MARIA_ROW);
    return 0;
}

/* Keeps a row, and begins to read the next one. Returns 0, 1 (that was the end) or a code. */
static int keep(struct maria *maria, struct dlock_error *err) {
    if (!maria->row) {
        mysql_free_result(maria->unread); /* its rows have all been read: else this would read them */
        maria->unread = NULL;
        return mysql_errno(maria->link) ? maria_refused(maria, err) : 1;
    }
    const struct maria_answer *answer = &maria->answers[maria->n_answers - 1];
    const unsigned long *lengths = mysql_fetch_lengths(maria->unread);
    for (unsigned i = 0; i < answer->columns; i++) maria->heard += VALUE_COST + (maria->row[i] ? lengths[i] : 0);
    if (maria->heard > MARIA_ANSWER_MAX) return give_up(maria, "it is too long", err);
    if (!maria_keep_row(maria, (const char *const *)maria->row, lengths)) {
        maria->step = MARIA_ROW;
        return maria_dead(maria, "out of memory for an answer", err);
    }
    begin_step(maria, MARIA_ROW);
    return 0;
}

/* Begins the step after one that is done. Returns 0, 1 (there is none) or a code. */
static int next_step(struct maria *maria, struct dlock_error *err) {
    enum maria_step done = maria->step;
    maria->step = MARIA_IDLE;
    if (done == MARIA_NEXT && maria->failed < 0 && !mysql_errno(maria->link)) return 1; /* that was the last result */
    if (done != MARIA_ROW && maria->failed) return maria_refused(maria, err);
    int rc = done == MARIA_ROW ? keep(maria, err) : open_result(maria, err);
    if (rc != 1) return rc;
    if (!mysql_more_results(maria->link)) return 1;
    begin_step(maria, MARIA_NEXT);
    return 0;
}

bool maria_is_late(const struct maria *maria) {
    return maria->waits != 0;
}

int maria_catch_up(struct maria *maria, int64_t deadline_us, struct dlock_error *err) {
    for (;;) {
        if (!maria_go_on(maria, deadline_us)) return maria_dead(maria, "no answer in time", err);
        int rc = maria->flaw ? give_up(maria, maria->flaw, err) : next_step(maria, err);
        if (rc != 0) return rc < 0 ? rc : 0;
        if (maria->waits && dlock_now_us() >= deadline_us) return maria_dead(maria, "no answer in time", err);
    }
}

int maria_ask(struct maria *maria, int64_t deadline_us, struct dlock_error *err) {
    maria_forget_answers(maria);
    maria->error = 0;
    maria->heard = 0;
    maria->flaw = NULL;
    maria->deadline_us = deadline_us;
    if (maria->step != MARIA_IDLE) return maria_dead(maria, "its last answer was not read to the end", err);
    if (maria->no_memory) return maria_dead(maria, "out of memory for a request", err);
    begin_step(maria, MARIA_QUERY);
    return maria_catch_up(maria, deadline_us, err);
}

/* Ends an unfinished call by letting it fail, since libmariadb frees the call's memory only then. It would also read a
 * result to its end before it frees it, so the connection is ended first. */
static void abort_step(struct maria *maria) {
    int fd = (int)mysql_get_socket(maria->link);
    if (fd >= 0) dlock_hang_up(fd, true);
    for (int i = 0; i < LAST_STEPS && maria->waits; i++) run(maria, maria->waits);
    if (maria->step == MARIA_CONNECT) maria_forget_version(maria);
    mysql_free_result(maria->unread);
    maria->unread = NULL;
    maria->step = MARIA_IDLE;
}

void maria_hang_up(struct maria *maria) {
    maria_forget_answers(maria);
    if (!maria->link) return;
    if (maria->step != MARIA_IDLE) abort_step(maria);
    struct maria_signals signals;
    MYSQL *link = maria->link;
    maria->fd = 0; /* cleared first, since a child forked during cleanup would close this descriptor */
    maria->link = NULL;
    atomic_signal_fence(memory_order_seq_cst);
    maria_signals_off(maria, &signals);
    mysql_close(link);
    maria_signals_on(maria, &signals);
}
