/* The table for people: at most 100 columns. */
#include "bench.h"
#include "text.h"

#include <string.h>

enum { CELL = BENCH_DURATION };

void bench_duration(char cell[BENCH_DURATION], int64_t ns) {
    if (ns < 0)
        snprintf(cell, CELL, "%8s", "-");
    else if (ns < 1000)
        snprintf(cell, CELL, "%5d ns", (int)ns);
    else if (ns < 1000000)
        snprintf(cell, CELL, "%5.*f µs", ns < 100000 ? 1 : 0, (double)ns / 1e3);
    else if (ns < 10000000000)
        snprintf(cell, CELL, "%5.*f ms", ns < 100000000 ? 1 : 0, (double)ns / 1e6);
    else
        snprintf(cell, CELL, "%5.0f s ", (double)ns / 1e9);
}

/* Right-aligned, or a dash when there is none. */
static void number(char *cell, int width, int digits, double value, const char *unit) {
    if (value < 0)
        snprintf(cell, CELL, "%*s", width, "-");
    else
        snprintf(cell, CELL, "%*.*f%s", width - (int)strlen(unit), digits, value, unit);
}

static void row(struct table *table, const struct bench_case *c, const struct bench_target *target,
                const struct bench_cell *cell) {
    struct bench_figures figures;
    char median[CELL], p99[CELL], rate[CELL], floor[CELL], fair[CELL], broken[24];
    bench_figures(c, cell, &figures);
    bench_duration(median, figures.median_ns);
    bench_duration(p99, figures.p99_ns);
    number(rate, 10, figures.per_second < 100 ? 1 : 0, figures.per_second, "");
    number(floor, 7, 2, figures.ratio, "x");
    number(fair, 5, 2, figures.fairness, "");
    snprintf(broken, sizeof broken, "%8llu%s", (unsigned long long)figures.violations,
             cell->error_code || cell->lost ? " *" : "");
    table_add(table, (const char *const[]){c->label, target->server, median, p99, rate, floor, fair, broken});
}

/* What the asterisks stand for. */
static void remarks(const struct bench *bench, FILE *out) {
    for (size_t k = 0; k < bench->n_cases; k++) {
        for (size_t i = 0; i < bench->n_targets; i++) {
            const struct bench_cell *cell = &bench->targets[i].cells[k];
            const char *label = bench->cases[k].label, *server = bench->targets[i].server;
            if (cell->error_code) fprintf(out, "* %s, %s: %s\n", label, server, cell->error);
            if (cell->lost)
                fprintf(out, "* %s, %s: %llu grants were lost before their release\n", label, server,
                        (unsigned long long)cell->lost);
        }
    }
}

bool bench_table(const struct bench *bench, FILE *out) {
    struct table table = {.columns = 8};
    table_add(&table, (const char *const[]){"WORKLOAD", "SERVER", "  MEDIAN", "     P99", "PER SECOND", "  FLOOR",
                                            " FAIR", "VIOLATED"});
    for (size_t k = 0; k < bench->n_cases; k++)
        for (size_t i = 0; i < bench->n_targets; i++)
            row(&table, &bench->cases[k], &bench->targets[i], &bench->targets[i].cells[k]);
    bool printed = !table.failed;
    table_print(&table, out);
    remarks(bench, out);
    return printed;
}
