/* Prints the results for programs, as JSON and as CSV, both from one list of columns. */
#include "bench/bench.h"
#include "text.h"

#include <dlock/dlock.h>

#include <inttypes.h>
#include <sys/utsname.h>
#include <unistd.h>

/* The values of a row: X(name, kind, value). A negative figure is printed as null or as an empty field. */
#define COLUMNS(X)                                             \
    X("workload", TEXT, c->workload->name)                     \
    X("server", TEXT, target->server)                          \
    X("backend", TEXT, target->backend)                        \
    X("peer", TEXT, target->peer ? target->about : NULL)       \
    X("processes", COUNT, c->processes)                        \
    X("threads", COUNT, c->threads)                            \
    X("locks", COUNT, c->locks)                                \
    X("samples", COUNT, (int64_t)cell->samples.n)              \
    X("median_ns", COUNT, f->median_ns)                        \
    X("p90_ns", COUNT, f->p90_ns)                              \
    X("p99_ns", COUNT, f->p99_ns)                              \
    X("longest_ns", COUNT, f->longest_ns)                      \
    X("per_second", FRACTION, f->per_second)                   \
    X("floor_median_ns", COUNT, f->floor_median_ns)            \
    X("floor_p99_ns", COUNT, f->floor_p99_ns)                  \
    X("floor_per_second", FRACTION, f->floor_per_second)       \
    X("ratio", FRACTION, f->ratio)                             \
    X("fairness", FRACTION, f->fairness)                       \
    X("in_use", FRACTION, f->in_use)                           \
    X("handed_over", FRACTION, f->handed_over)                 \
    X("commands_per_grant", FRACTION, f->commands_per_grant)   \
    X("commands_per_second", FRACTION, f->commands_per_second) \
    X("cpu", FRACTION, f->cpu)                                 \
    X("others_cpu", FRACTION, f->others_cpu)                   \
    X("grants", COUNT, (int64_t)cell->grants)                  \
    X("overlaps", COUNT, (int64_t)cell->overlaps)              \
    X("time_overlaps", COUNT, (int64_t)cell->time_overlaps)    \
    X("stale_fences", COUNT, (int64_t)cell->stale_fences)      \
    X("lost", COUNT, (int64_t)cell->lost)                      \
    X("on", TEXT, on(target))                                  \
    X("error", TEXT, cell->error_code ? cell->error : NULL)

/* Returns the line about a server on this machine, or NULL. */
static const char *on(const struct bench_target *target) {
    return target->peer || !target->about[0] ? NULL : target->about;
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void json_count(struct json *json, const char *key, int64_t number) {
    if (number < 0)
        json_null(json, key);
    else
        json_number(json, key, number);
}

static void json_fraction(struct json *json, const char *key, double number) {
    if (number < 0)
        json_null(json, key);
    else
        json_decimal(json, key, number);
}

static void json_row(struct json *json, const struct bench_case *c, const struct bench_target *target,
                     const struct bench_cell *cell) {
    struct bench_figures figures, *f = &figures;
    bench_figures(c, cell, f);
    json_begin(json, NULL, '{');
#define TEXT json_string
#define COUNT json_count
#define FRACTION json_fraction
#define X(name, kind, value) kind(json, name, value);
    COLUMNS(X)
#undef X
#undef TEXT
#undef COUNT
#undef FRACTION
    json_end(json, '}');
}

static void json_machine(struct json *json) {
    struct utsname name;
    json_begin(json, "machine", '{');
    if (uname(&name) == 0) {
        json_string(json, "system", name.sysname);
        json_string(json, "release", name.release);
        json_string(json, "architecture", name.machine);
    }
    json_number(json, "processors", sysconf(_SC_NPROCESSORS_ONLN));
    json_end(json, '}');
}

void bench_json(const struct bench *bench, FILE *out) {
    struct json json = {.out = out};
    json_begin(&json, NULL, '{');
    json_string(&json, "version", dlock_version());
    json_machine(&json);
    json_number(&json, "rounds", bench->rounds);
    json_number(&json, "time_ms", bench->time_ms);
    json_bool(&json, "interrupted", bench->interrupted != 0);
    json_number(&json, "violations", (int64_t)bench_violations(bench));
    json_begin(&json, "results", '[');
    for (size_t k = 0; k < bench->n_cases; k++)
        for (size_t i = 0; i < bench->n_targets; i++)
            if (bench_has_row(&bench->targets[i], &bench->cases[k]))
                json_row(&json, &bench->cases[k], &bench->targets[i], &bench->targets[i].cells[k]);
    json_end(&json, ']');
    json_end(&json, '}');
    json_newline(&json);
}

/* ---- CSV as in RFC 4180, but with plain newlines ----------------------------------------------------------------- */

static void csv_text(FILE *out, const char *text) {
    if (!text) return;
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"') fputc('"', out);
        fputc((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text, out);
    }
    fputc('"', out);
}

static void csv_count(FILE *out, int64_t number) {
    if (number >= 0) fprintf(out, "%" PRId64, number);
}

static void csv_fraction(FILE *out, double number) {
    if (number >= 0) fprintf(out, "%.3f", number);
}

static void csv_row(FILE *out, const struct bench_case *c, const struct bench_target *target,
                    const struct bench_cell *cell) {
    struct bench_figures figures, *f = &figures;
    const char *comma = "";
    bench_figures(c, cell, f);
#define TEXT csv_text
#define COUNT csv_count
#define FRACTION csv_fraction
#define X(name, kind, value) fputs(comma, out), comma = ",", kind(out, value);
    COLUMNS(X)
#undef X
#undef TEXT
#undef COUNT
#undef FRACTION
    fputc('\n', out);
}

void bench_csv(const struct bench *bench, FILE *out) {
    const char *comma = "";
#define X(name, kind, value) fprintf(out, "%s%s", comma, name), comma = ",";
    COLUMNS(X)
#undef X
    fputc('\n', out);
    for (size_t k = 0; k < bench->n_cases; k++)
        for (size_t i = 0; i < bench->n_targets; i++)
            if (bench_has_row(&bench->targets[i], &bench->cases[k]))
                csv_row(out, &bench->cases[k], &bench->targets[i], &bench->targets[i].cells[k]);
}
