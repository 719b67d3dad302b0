/* The report of `dlock bench --html`: one page that needs no network and runs no script. Its charts are drawn here, as
 * SVG. */
#ifndef DLOCK_CLI_BENCH_HTML_H
#define DLOCK_CLI_BENCH_HTML_H

#include "bench/bench.h"
#include "bench/svg.h"

/* html_file.c: the page is written beside `path` and renamed, so that whoever reads `path` sees a whole one. Both
 * return STATUS_OK, or say what is wrong and return the status. Checking comes before the run, which may be long. */
int bench_html_check(const char *path);
int bench_html_write(const char *path, const struct bench *bench, char *const *options, size_t n_options);

/* html.c. `options`: the command's, without URIs, which may have passwords. */
void bench_html(FILE *out, const struct bench *bench, char *const *options, size_t n_options);

/* html_section.c: what there is to say of one workload. `cases`: its first one, and how many. */
struct html_group {
    const struct bench *bench;
    size_t first, n;
    double highest_ratio, lowest_ratio; /* of all workloads: charts of ratios have one scale */
};
/* A count, its digits in groups of three. */
enum { HTML_COUNT = 40 };
void html_count(char text[HTML_COUNT], uint64_t n);
void html_section(FILE *out, const struct html_group *group);

/* html_opening.c: what the page begins with. One sentence, and a chart of all servers, of what most people ask for: how
 * long a cycle, a hand-over and the take-over from the dead take. Nothing when none of them was measured. */
void html_opening(FILE *out, const struct bench *bench);

/* html_chart.c. A figure is named `id`, of letters and digits. */
/* What took how long in the group's case `k`: a shape for each server. */
void html_latency_chart(FILE *out, const struct html_group *group, size_t k, const struct html_scale *scale);

/* Grants in a second against the number of threads: a line for each server. */
void html_thread_chart(FILE *out, const struct html_group *group);

/* One figure of each server, from `origin` to its value. */
struct html_measure {
    const char *id, *what, *about;
    double (*of)(const struct bench_figures *figures); /* negative: none */
    double origin;
    int digits;
    const char *unit;
};
double html_measured(const struct html_group *group, size_t k, size_t server, const struct html_measure *measure);
void html_measure_chart(FILE *out, const struct html_group *group, size_t k, const struct html_measure *measure,
                        const struct html_scale *scale);

#endif
