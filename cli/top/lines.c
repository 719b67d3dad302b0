#include "top/lines.h"

#include "cli.h"
#include "text.h"
#include "top/rows.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- for people -------------------------------------------------------------------------------------------------- */

static void print_time(int64_t wall_ms) {
    char text[32];
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm local;
    strftime(text, sizeof text, "%F %T", localtime_r(&seconds, &local));
    printf("%s  ", text);
}

static int print_table(const struct look *look, bool wide) {
    char sum[160];
    print_time(look->wall_ms);
    if (look->rc != 0) {
        fputs("no answer: ", stdout);
        clean_text(stdout, look->err.message);
        putchar('\n');
        return STATUS_OK;
    }
    sum_text(look, sum, sizeof sum);
    printf("%s\n", sum);
    if (look->holders.n == 0) return STATUS_OK;
    bool whole = rows_print(look, &(struct rows_plan){.filter = "", .wide = wide}, stdout) >= 0;
    putchar('\n');
    return whole ? STATUS_OK : STATUS_OS;
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void json_names(struct json *json, const struct look *look) {
    json_begin(json, "names", '[');
    const struct dlock_info *items = look->holders.items;
    for (size_t i = 0, end; i < look->holders.n; i = end) {
        end = i + 1;
        while (end < look->holders.n && strcmp(items[end].name, items[i].name) == 0) end++;
        json_begin(json, NULL, '{');
        json_string(json, "name", items[i].name);
        json_number(json, "holders", (int64_t)(end - i));
        json_number(json, "waiters", items[i].waiters);
        if (look->since_ms > 0 && look->grants)
            json_number(json, "grants", (int64_t)look->grants[i]);
        else
            json_null(json, "grants");
        json_end(json, '}');
    }
    json_end(json, ']');
}

static void json_look(struct json *json, const struct look *look) {
    json_string(json, "error", NULL);
    json_number(json, "locks", (int64_t)look->locks);
    json_number(json, "waiters", (int64_t)look->waiters);
    if (look->since_ms > 0 && look->grants)
        json_number(json, "grants", (int64_t)look->all_grants);
    else
        json_null(json, "grants");
    json_number(json, "since_ms", look->since_ms);
    json_names(json, look);
    holders_json(&look->holders, json);
}

/* Prints one line. `look` NULL: there was no answer, for the reason `error`. */
static void print_json(const struct look *look, int64_t wall_ms, int64_t took_ms, const char *error) {
    struct json json = {.out = stdout};
    json_begin(&json, NULL, '{');
    json_decimal(&json, "time", (double)wall_ms / 1000);
    json_number(&json, "took_ms", took_ms);
    if (look)
        json_look(&json, look);
    else
        json_string(&json, "error", error);
    json_end(&json, '}');
    json_newline(&json);
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

static int print_look(const struct watch *watch, const struct lines_plan *plan) {
    const struct look *look = watch->last;
    if (!plan->json) return print_table(look, watch->plan->wide);
    print_json(look->rc == 0 ? look : NULL, look->wall_ms, look->ended_ms - look->began_ms, look->err.message);
    return STATUS_OK;
}

static void print_silence(int64_t silent_ms, const struct lines_plan *plan) {
    int64_t wall_ms = (int64_t)time(NULL) * 1000;
    char error[64];
    snprintf(error, sizeof error, "no answer for %" PRId64 " s", silent_ms / 1000);
    if (plan->json) {
        print_json(NULL, wall_ms, silent_ms, error);
    } else {
        print_time(wall_ms);
        puts(error);
    }
}

int lines_run(struct watch *watch, const struct lines_plan *plan) {
    int status = STATUS_OK, written = 0;
    int64_t said_ms = 0; /* length of the server's silence in the last message about it; 0: none since an answer */
    for (long looks = 0; status == STATUS_OK && written == 0 && (plan->count == 0 || looks < plan->count);) {
        struct pollfd done = {watch->done_fd, POLLIN, 0};
        poll(&done, 1, watch_step(watch));
        int64_t silent_ms = watch_silence_ms(watch);
        if (watch_took(watch)) {
            if (watch_hopeless(watch)) return watch_close(watch, report(&watch->last->err));
            looks++;
            said_ms = 0;
            status = print_look(watch, plan);
        } else if (silent_ms >= said_ms + watch->plan->interval_ms && silent_ms > 0) {
            said_ms = silent_ms;
            print_silence(silent_ms, plan);
        } else {
            continue;
        }
        written = fflush(stdout);
    }
    if (status == STATUS_OK && watch->last && watch->last->rc != 0) status = error_status(watch->last->rc);
    return watch_close(watch, status);
}
