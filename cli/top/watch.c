#include "top/watch.h"

#include "cli.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

static int64_t clock_ms(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void announce(int fd) {
    const uint64_t one = 1;
    (void)!write(fd, &one, sizeof one);
}

static bool announced(int fd) {
    uint64_t count;
    return read(fd, &count, sizeof count) == (ssize_t)sizeof count;
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

static void take_look(const struct watch *watch, struct look *look) {
    look->began_ms = clock_ms(CLOCK_MONOTONIC);
    look->rc = subject_ask(&watch->plan->subject, watch->client, &look->holders, &look->err);
    look->ended_ms = clock_ms(CLOCK_MONOTONIC);
    look->wall_ms = clock_ms(CLOCK_REALTIME);
}

static void *look_on(void *arg) {
    struct watch *watch = arg;
    while (announced(watch->ask_fd) && !watch->stop) {
        watch->made = calloc(1, sizeof *watch->made);
        if (watch->made) take_look(watch, watch->made);
        announce(watch->done_fd);
    }
    return NULL;
}

/* ---- comparing two looks ----------------------------------------------------------------------------------------- */

static int compare(const struct dlock_info *a, const struct dlock_info *b) {
    int order = strcmp(a->name, b->name);
    return order ? order : (a->fence > b->fence) - (a->fence < b->fence);
}

/* Walks through the holders of both looks, which are sorted, and counts the fences that only `now` has. */
static void count_grants(struct look *now, const struct look *before) {
    const struct holders *new = &now->holders, *old = &before->holders;
    size_t at = 0, first = 0;
    now->since_ms = now->ended_ms - before->ended_ms;
    for (size_t i = 0; i < new->n; i++) {
        while (at < old->n && compare(&old->items[at], &new->items[i]) < 0) at++;
        bool known = at < old->n && compare(&old->items[at], &new->items[i]) == 0;
        if (strcmp(new->items[first].name, new->items[i].name) != 0) first = i;
        if (known || new->items[i].fence == 0) continue;
        now->grants[first]++; /* counted at the first holder of the name, copied to the others below */
        now->all_grants++;
    }
    for (size_t i = 1; i < new->n; i++)
        if (strcmp(new->items[i - 1].name, new->items[i].name) == 0) now->grants[i] = now->grants[i - 1];
}

static void sum_up(struct look *look, const struct look *before) {
    const struct holders *holders = &look->holders;
    look->grants = calloc(holders->n + 1, sizeof *look->grants);
    for (size_t i = 0; i < holders->n; i++) {
        if (i > 0 && strcmp(holders->items[i - 1].name, holders->items[i].name) == 0) continue;
        look->locks++;
        look->waiters += holders->items[i].waiters;
    }
    if (before && look->grants) count_grants(look, before);
}

void rate_text(const struct look *look, uint64_t grants, char text[RATE_MAX]) {
    if (look->since_ms > 0 && look->grants)
        snprintf(text, RATE_MAX, "%.1f", (double)grants * 1000 / (double)look->since_ms);
    else
        strcpy(text, "-");
}

/* ---- the functions for lines.c and screen.c ---------------------------------------------------------------------- */

static void look_free(struct look *look) {
    if (!look) return;
    holders_free(&look->holders);
    free(look->grants);
    free(look);
}

int watch_open(struct watch *watch, const struct watch_plan *plan) {
    struct dlock_client_options options = DLOCK_CLIENT_OPTIONS_INIT;
    *watch = (struct watch){.plan = plan};
    options.flags = DLOCK_CLIENT_LAZY;
    int status = open_client_with(plan->uri, &options, &watch->client);
    if (status != STATUS_OK) return status;
    watch->ask_fd = eventfd(0, EFD_CLOEXEC);
    watch->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (watch->ask_fd < 0 || watch->done_fd < 0) {
        status = no_descriptor(errno);
    } else {
        int why = pthread_create(&watch->thread, NULL, look_on, watch);
        if (why == 0) return STATUS_OK;
        note("cannot start a thread: %s%s", strerror(why), limit_advice(why));
        status = STATUS_OS;
    }
    dlock_close(watch->client);
    return status;
}

int watch_step(struct watch *watch) {
    int64_t now = clock_ms(CLOCK_MONOTONIC);
    if (watch->asking) return 1000;
    if (now < watch->next_ms) return watch->next_ms - now < INT_MAX ? (int)(watch->next_ms - now) : INT_MAX;
    watch->asking = true;
    watch->asked_ms = now;
    watch->next_ms = now + watch->plan->interval_ms;
    announce(watch->ask_fd);
    return 1000;
}

bool watch_took(struct watch *watch) {
    if (!watch->asking || !announced(watch->done_fd)) return false;
    struct look *look = watch->made;
    watch->asking = false;
    watch->made = NULL;
    if (!look) return false; /* out of memory; the next look is tried at its time */
    if (watch->last != watch->answered) look_free(watch->last);
    watch->last = look;
    if (look->rc != 0) return true;
    sum_up(look, watch->answered);
    look_free(watch->answered);
    watch->answered = look;
    return true;
}

bool watch_hopeless(const struct watch *watch) {
    int rc = watch->last ? watch->last->rc : 0;
    return rc == DLOCK_EINVAL || rc == DLOCK_ENOTSUP || rc == DLOCK_ENOBACKEND || rc == DLOCK_EABI;
}

void watch_hurry(struct watch *watch) {
    watch->next_ms = 0;
}

int64_t watch_silence_ms(const struct watch *watch) {
    int64_t silent = watch->asking ? clock_ms(CLOCK_MONOTONIC) - watch->asked_ms : 0;
    return silent > watch->plan->interval_ms && silent >= 1000 ? silent : 0;
}

int watch_close(struct watch *watch, int status) {
    if (watch->asking) _exit(finish_streams(status));
    watch->stop = true;
    announce(watch->ask_fd);
    pthread_join(watch->thread, NULL);
    if (watch->last != watch->answered) look_free(watch->last);
    look_free(watch->answered);
    dlock_close(watch->client);
    close(watch->ask_fd);
    close(watch->done_fd);
    return status;
}
