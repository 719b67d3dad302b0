/* The report of `dlock bench --html`: one page, with SVG charts, that needs no network and runs no script. */
#ifndef DLOCK_CLI_BENCH_HTML_H
#define DLOCK_CLI_BENCH_HTML_H

#include "bench/bench.h"
#include "bench/svg.h"

/* html_file.c: writes the page to a temporary file beside `path` and renames it, so that readers always find a complete
 * one. bench_html_check() tells before the run, which may be long, whether that will be possible. Both return
 * STATUS_OK, or print what is wrong and return the exit status. */
int bench_html_check(const char *path);
int bench_html_write(const char *path, const struct bench *bench, char *const *options, size_t n_options);

/* html.c: writes the page. `options` are those of the command line, without the URIs, which may have passwords. */
void bench_html(FILE *out, const struct bench *bench, char *const *options, size_t n_options);

/* Fewer samples than this have no shape, and are shown as dots; their medians are marked. */
enum { HTML_FEW = 30 };

/* html_section.c: writes the section of one workload. */
struct html_group {
    const struct bench *bench;
    size_t first, n;                    /* index of the workload's first case, and number of its cases */
    double highest_ratio, lowest_ratio; /* of all workloads: all charts of ratios have the same scale */
};
/* Writes a count with its digits in groups of three. */
enum { HTML_COUNT = 40 };
void html_count(char text[HTML_COUNT], uint64_t n);
void html_section(FILE *out, const struct html_group *group);

/* html_opening.c: writes the top of the page, a sentence and a chart of all servers with the most wanted figures: how
 * long a cycle, a hand-over and the take-over from a dead holder take. Writes nothing if none of these was measured. */
void html_opening(FILE *out, const struct bench *bench);

/* html_chart.c */
/* Draws the distribution of durations in case `k`, a shape for each server. */
void html_latency_chart(FILE *out, const struct html_group *group, size_t k, const struct html_scale *scale);

/* Draws the grants per second against the number of threads, a line for each server. */
void html_thread_chart(FILE *out, const struct html_group *group);

/* A chart with one value per server, drawn as a line from `origin` to the value. */
struct html_measure {
    const char *id, *what, *about;                     /* id: letters and digits */
    double (*of)(const struct bench_figures *figures); /* returns the value; negative: none */
    double origin;
    int digits; /* after the decimal point */
    const char *unit;
};
double html_measured(const struct html_group *group, size_t k, size_t server, const struct html_measure *measure);
void html_measure_chart(FILE *out, const struct html_group *group, size_t k, const struct html_measure *measure,
                        const struct html_scale *scale);

#endif
