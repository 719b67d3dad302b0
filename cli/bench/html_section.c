/* The section of one workload in a report: charts, then the figures as a table. */
#include "bench/html.h"
#include "text.h"

#include <inttypes.h>
#include <string.h>

/* ---- words ------------------------------------------------------------------------------------------------------- */

static const struct words {
    const char *workload, *title, *sample;
} words[] = {
    {"cycle", "Uncontended lock", "An acquire and its release, in one process."},
    {"re-entry", "Re-entry",
     "The holder acquires and releases its lock once more; the mean of 64, because reading the clock takes as long as "
     "one."},
    {"hand-over", "Hand-over between processes",
     "From the start of a release to the grant of another process that was already waiting. Each process releases the "
     "lock at once and acquires it again."},
    {"hand-over-10ms", "Hand-over with work",
     "The same; each process holds the lock for 10 ms, then pauses for 10 ms."},
    {"distinct", "Threads with separate locks",
     "An acquire and its release. The threads share one client; each has its own lock."},
    {"one-lock", "Threads on one lock",
     "From the start of a release to the grant of another thread of the same client that was already waiting."},
    {"crowd", "Many waiters",
     "As in hand-over; each process holds the lock for 1 ms. If a server wakes every waiter for each grant, its load "
     "grows with the number of waiters."},
    {"renewal", "Renewal",
     "One process holds the locks and its client renews them: the load on the server and the client."},
    {"idle", "Waiting",
     "The same, while a second client waits for these locks, and gets none: the load of waits that last."},
    {"command", "Command under a lock",
     "From the start of <code>dlock run NAME -- true</code> to its end: each lock takes a process, a client "
     "and a connection."},
    {"crash", "Crash of the holder", "From the death of the holder to the grant of a waiting process."},
};

static const struct words *words_of(const struct bench_workload *workload) {
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(words[i].workload, workload->name) == 0) return &words[i];
    return NULL;
}

/* Writes the number of workers, as in ", 4 processes"; nothing for workloads that have only one. */
static void crowd(FILE *out, const struct bench_case *c) {
    int workers = c->processes * c->threads;
    switch (c->workload->crowd) {
    case BENCH_ALONE: return;
    case BENCH_LOCKS: fprintf(out, ", %d locks", c->locks); return;
    case BENCH_IDLE: fprintf(out, ", %d locks and %d waits", c->locks, c->waiters); return;
    case BENCH_PROCESSES:
    case BENCH_WAITERS: fprintf(out, ", %d process%s", workers, workers == 1 ? "" : "es"); return;
    default: fprintf(out, ", %d thread%s", workers, workers == 1 ? "" : "s"); return;
    }
}

/* ---- charts ------------------------------------------------------------------------------------------------------ */

static double ratio_of(const struct bench_figures *figures) {
    return figures->ratio;
}

static double fairness_of(const struct bench_figures *figures) {
    return figures->fairness;
}

static const struct html_measure ratio = {
    "ratio",
    "Relative to the floor",
    "The median as a multiple of that of a minimal client of the same server. With several threads: the grants per "
    "second of that client as a multiple of dlock's.",
    ratio_of,
    1,
    2,
    "×"};
static const struct html_measure fairness = {
    "fairness", "Fairness", "The fewest grants of a worker divided by the most; 1 is fair.", fairness_of, 0, 2, ""};

static double commands_per_grant_of(const struct bench_figures *figures) {
    return figures->commands_per_grant;
}

static double commands_per_second_of(const struct bench_figures *figures) {
    return figures->commands_per_second;
}

static double cpu_of(const struct bench_figures *figures) {
    return figures->cpu < 0 ? -1 : 100 * figures->cpu;
}

static const struct html_measure commands_per_grant = {
    "pergrant", "Commands per grant", "Commands that the server received.", commands_per_grant_of, 0, 1, ""};
static const struct html_measure commands_per_second = {
    "persecond", "Commands per second", "Commands that the server received.", commands_per_second_of, 0, 1, ""};
static const struct html_measure cpu = {
    "cpu", "CPU time of the client", "Of all its processes, in percent of one core.", cpu_of, 0, 2, " %"};

static void begin_figure(FILE *out, const struct bench_case *c, const char *title) {
    fputs("<figure><figcaption><h3>", out);
    html_text(out, title);
    if (c) crowd(out, c);
    fputs("</h3></figcaption>\n", out);
}

static void end_figure(FILE *out, const char *about) {
    if (about) {
        fputs("<p class=\"about\">", out);
        html_text(out, about);
        fputs("</p>", out);
    }
    fputs("</figure>\n", out);
}

/* Computes the scale of all latency charts of a workload. False: there are no samples. */
static bool latency_scale(const struct html_group *group, struct html_scale *scale) {
    int64_t low = -1, high = -1;
    for (size_t k = group->first; k < group->first + group->n; k++) {
        for (size_t i = 0; i < group->bench->n_targets; i++) {
            const struct bench_cell *cell = &group->bench->targets[i].cells[k];
            const struct histogram *both[] = {&cell->samples, &cell->floor};
            for (int j = 0; j < 2; j++) {
                int64_t least = histogram_at(both[j], 0);
                if (least >= 0 && (low < 0 || least < low)) low = least;
                if (both[j]->n && both[j]->longest_ns > high) high = both[j]->longest_ns;
            }
        }
    }
    if (low < 0) return false;
    *scale = html_log_scale(low > 0 ? (double)low : 1, high > 0 ? (double)high : 1);
    return true;
}

static bool has_measure(const struct html_group *group, size_t k, const struct html_measure *measure) {
    for (size_t i = 0; i < group->bench->n_targets; i++)
        if (html_measured(group, k, i, measure) >= 0) return true;
    return false;
}

/* Returns a linear scale from 0 to above the greatest value of a workload. */
static struct html_scale measure_scale(const struct html_group *group, const struct html_measure *measure) {
    double most = 0;
    for (size_t k = group->first; k < group->first + group->n; k++)
        for (size_t i = 0; i < group->bench->n_targets; i++) {
            double value = html_measured(group, k, i, measure);
            if (value > most) most = value;
        }
    if (most <= 0) most = 1;
    return (struct html_scale){0, html_log_scale(most, most).high, false};
}

static void measures(FILE *out, const struct html_group *group, const struct html_measure *measure,
                     const struct html_scale *scale) {
    const struct bench *bench = group->bench;
    const char *about = measure->about;
    for (size_t k = group->first; k < group->first + group->n; k++) {
        if (!has_measure(group, k, measure)) continue;
        begin_figure(out, group->n > 1 ? &bench->cases[k] : NULL, measure->what);
        html_measure_chart(out, group, k, measure, scale);
        end_figure(out, about);
        about = NULL; /* the text stands below the first chart only */
    }
}

static void counted(FILE *out, const struct html_group *group) {
    bool has_grants = group->bench->cases[group->first].workload->crowd != BENCH_LOCKS;
    const struct html_measure *commands = has_grants ? &commands_per_grant : &commands_per_second;
    struct html_scale scale = measure_scale(group, commands), cpu_scale = measure_scale(group, &cpu);
    measures(out, group, commands, &scale);
    measures(out, group, &cpu, &cpu_scale);
}

static void charts(FILE *out, const struct html_group *group) {
    const struct bench_case *cases = group->bench->cases;
    struct html_scale times, shares = {0, 1, false};
    fputs("<div class=\"charts\">\n", out);
    if (cases[group->first].workload->crowd == BENCH_THREAD_STEPS && group->n > 1) {
        begin_figure(out, NULL, "Grants per second");
        html_thread_chart(out, group);
        end_figure(out,
                   "Both axes are logarithmic. Beside each line: the total with the most threads, and that total as a "
                   "multiple of the total with the fewest.");
    }
    for (size_t k = group->first; latency_scale(group, &times) && k < group->first + group->n; k++) {
        begin_figure(out, &cases[k], "Duration");
        html_latency_chart(out, group, k, &times);
        end_figure(out, NULL);
    }
    struct html_scale ratios = html_log_scale(group->lowest_ratio, group->highest_ratio);
    measures(out, group, &ratio, &ratios);
    measures(out, group, &fairness, &shares);
    if (cases[group->first].workload->counted) counted(out, group);
    fputs("</div>\n", out);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

enum { CELL = HTML_COUNT };

static void fraction(char text[CELL], double value, const char *unit) {
    if (value >= 0) snprintf(text, CELL, "%.2f%s", value, unit);
}

static void share(char text[CELL], double value) {
    if (value >= 0) snprintf(text, CELL, "%.1f %%", 100 * value);
}

static void duration(char text[CELL], int64_t ns) {
    char padded[BENCH_DURATION];
    if (ns < 0) return;
    bench_duration(padded, ns);
    snprintf(text, CELL, "%s", padded + strspn(padded, " "));
}

static void rate(char text[CELL], double value) {
    if (value >= 100)
        html_count(text, (uint64_t)(value + 0.5));
    else if (value >= 0)
        snprintf(text, CELL, "%.1f", value);
}

void html_count(char text[HTML_COUNT], uint64_t n) {
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, n);
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0) text = stpcpy(text, "\u202f"); /* a narrow space that does not break */
        *text++ = digits[i];
    }
    *text = '\0';
}

/* The columns: X(heading, statement that writes the value to `text`). A column without any value is left out. */
#define COLUMNS(X)                                                             \
    X("Violations", html_count(text, f->violations))                           \
    X("Median", duration(text, f->median_ns))                                  \
    X("90 %", duration(text, f->p90_ns))                                       \
    X("99 %", duration(text, f->p99_ns))                                       \
    X("Longest", duration(text, f->longest_ns))                                \
    X("Per second", rate(text, f->per_second))                                 \
    X("Floor’s median", duration(text, f->floor_median_ns))                    \
    X("Floor’s 99 %", duration(text, f->floor_p99_ns))                         \
    X("Floor per second", rate(text, f->floor_per_second))                     \
    X("× floor", fraction(text, f->ratio, "×"))                                \
    X("Fairness", fraction(text, f->fairness, ""))                             \
    X("Lock in use", share(text, f->in_use))                                   \
    X("Handed over", share(text, f->handed_over))                              \
    X("Commands per grant", rate(text, f->commands_per_grant))                 \
    X("Commands per second", rate(text, f->commands_per_second))               \
    X("Client CPU", if (c->workload->counted) fraction(text, cpu_of(f), " %")) \
    X("Samples", if (cell->samples.n) html_count(text, cell->samples.n))       \
    X("Grants", if (cell->grants) html_count(text, cell->grants))              \
    X("Lost", if (cell->lost) html_count(text, cell->lost))

enum {
#define X(heading, put) +1
    N_COLUMNS = 0 COLUMNS(X)
#undef X
};

static const char *const headings[N_COLUMNS] = {
#define X(heading, put) heading,
    COLUMNS(X)
#undef X
};

static void texts_of(const struct bench *bench, size_t server, size_t k, char texts[N_COLUMNS][CELL]) {
    const struct bench_case *c = &bench->cases[k];
    const struct bench_cell *cell = &bench->targets[server].cells[k];
    struct bench_figures figures, *f = &figures;
    char *text = texts[0];
    bench_figures(c, cell, f);
    memset(texts, 0, N_COLUMNS * sizeof texts[0]);
#define X(heading, put) \
    put;                \
    text += CELL;
    COLUMNS(X)
#undef X
}

static void table_row(FILE *out, const struct html_group *group, size_t server, size_t k, const bool *wanted) {
    const struct bench *bench = group->bench;
    char texts[N_COLUMNS][CELL];
    fputs("<tr><th scope=\"row\">", out);
    html_text(out, bench->targets[server].server);
    if (group->n > 1) crowd(out, &bench->cases[k]);
    fputs("</th>", out);
    texts_of(bench, server, k, texts);
    for (size_t i = 0; i < N_COLUMNS; i++) {
        if (!wanted[i]) continue;
        bool is_bad = i == 0 && strcmp(texts[i], "0") != 0; /* violations */
        fprintf(out, is_bad ? "<td class=\"bad\">⚠ %s</td>" : "<td>%s</td>", texts[i][0] ? texts[i] : "–");
    }
    fputs("</tr>\n", out);
}

static void table(FILE *out, const struct html_group *group) {
    const struct bench *bench = group->bench;
    char texts[N_COLUMNS][CELL];
    bool wanted[N_COLUMNS] = {false};
    for (size_t k = group->first; k < group->first + group->n; k++) {
        for (size_t server = 0; server < bench->n_targets; server++) {
            texts_of(bench, server, k, texts);
            for (size_t i = 0; i < N_COLUMNS; i++) wanted[i] |= texts[i][0] != 0;
        }
    }
    const char *name = bench->cases[group->first].workload->name;
    fprintf(out,
            "<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"Figures of %s\"><table>\n<thead><tr>"
            "<th scope=\"col\">Server</th>",
            name);
    for (size_t i = 0; i < N_COLUMNS; i++)
        if (wanted[i]) fprintf(out, "<th scope=\"col\">%s</th>", headings[i]);
    fputs("</tr></thead>\n<tbody>\n", out);
    for (size_t k = group->first; k < group->first + group->n; k++)
        for (size_t server = 0; server < bench->n_targets; server++)
            if (bench_has_row(&bench->targets[server], &bench->cases[k])) table_row(out, group, server, k, wanted);
    fputs("</tbody></table></div>\n", out);
}

void html_section(FILE *out, const struct html_group *group) {
    const struct bench_workload *workload = group->bench->cases[group->first].workload;
    const struct words *say = words_of(workload);
    fprintf(out, "<section id=\"%s\">\n<h2>%s <code>%s</code></h2>\n<p>%s</p>\n", workload->name, say ? say->title : "",
            workload->name, say ? say->sample : "");
    charts(out, group);
    table(out, group);
    fputs("</section>\n", out);
}
