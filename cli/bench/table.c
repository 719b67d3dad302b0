/* Prints the results for people, as tables of at most 100 columns. */
#include "bench/bench.h"
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

/* Writes `value` right-aligned, or a dash if it is negative. */
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

/* Adds a row of the second table: the commands and the processor time that renewals and waiters cost. On a machine that
 * does nothing else, the others' processor time is the server's. */
static void load(struct table *table, const struct bench_case *c, const struct bench_target *target,
                 const struct bench_cell *cell) {
    struct bench_figures figures;
    char commands[CELL], each[CELL], cpu[CELL], others[CELL + 2];
    bench_figures(c, cell, &figures);
    number(commands, 10, 1, figures.commands_per_second, "");
    number(each, 9, 2, figures.commands_per_grant, "");
    number(cpu, 10, 2, figures.cpu < 0 ? -1 : figures.cpu * 100, " %");
    number(others, 10, 2, figures.others_cpu < 0 ? -1 : figures.others_cpu * 100, " %");
    if (cell->error_code || cell->lost) strcat(others, " *");
    table_add(table, (const char *const[]){c->label, target->server, commands, each, cpu, others});
}

/* Prints the remarks that the asterisks refer to. */
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

/* Prints what is measured in the rows of each lock of other software, and of each server on this machine. */
static void abouts(const struct bench *bench, FILE *out) {
    bool begun = false;
    for (size_t i = 0; i < bench->n_targets; i++) {
        if (!bench->targets[i].about[0]) continue;
        fprintf(out, "%s%s: ", begun ? "" : "\n", bench->targets[i].server);
        clean_text(out, bench->targets[i].about);
        fputc('\n', out);
        begun = true;
    }
}

/* One kind of table: its columns, the workloads that it is about, and the function that adds a row. */
struct kind {
    size_t columns;
    const char *heading[TABLE_COLUMNS];
    bool (*has)(const struct bench_workload *workload);
    void (*row)(struct table *table, const struct bench_case *c, const struct bench_target *target,
                const struct bench_cell *cell);
};

static bool has_samples(const struct bench_workload *workload) {
    return workload->crowd != BENCH_LOCKS && workload->crowd != BENCH_IDLE;
}

static bool is_counted(const struct bench_workload *workload) {
    return workload->counted;
}

static const struct kind kinds[] = {
    {8, {"WORKLOAD", "SERVER", "  MEDIAN", "     P99", "PER SECOND", "  FLOOR", " FAIR", "VIOLATED"}, has_samples, row},
    {6, {"WORKLOAD", "SERVER", "COMMANDS/S", "PER GRANT", "CLIENT CPU", "OTHERS' CPU"}, is_counted, load},
};

/* Prints a table, or nothing if there is no case for it. *another: a table was printed before. False: out of memory. */
static bool print(const struct bench *bench, const struct kind *kind, bool *another, FILE *out) {
    struct table table = {.columns = kind->columns};
    for (size_t k = 0; k < bench->n_cases; k++) {
        const struct bench_case *c = &bench->cases[k];
        if (!kind->has(c->workload)) continue;
        if (table.rows == 0) table_add(&table, kind->heading);
        for (size_t i = 0; i < bench->n_targets; i++)
            if (bench_has_row(&bench->targets[i], c))
                kind->row(&table, c, &bench->targets[i], &bench->targets[i].cells[k]);
    }
    if (table.rows == 0) return !table.failed;
    if (*another) fputc('\n', out);
    *another = true;
    table_print(&table, out);
    return !table.failed;
}

bool bench_table(const struct bench *bench, FILE *out) {
    bool printed = true, another = false;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (!print(bench, &kinds[i], &another, out)) printed = false;
    abouts(bench, out);
    remarks(bench, out);
    return printed;
}
