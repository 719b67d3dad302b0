/* Draws the charts of a report. Each is 400 units wide, about as many pixels, and has a description in words. */
#include "bench/html.h"
#include "bench/svg.h"
#include "text.h"

#include <math.h>
#include <string.h>

enum {
    WIDTH = SVG_WIDTH,
    EDGE = 4,       /* left and right of a chart's axis */
    COLUMNS = 196,  /* columns of a latency shape over the whole axis */
    LEGEND = 13,    /* baseline of a line of text */
    SHAPE_TOP = 19, /* distance of the shape from the top of a server's row */
    SHAPE = 24,     /* height of the shape */
    ROW = 52,       /* height of a server's row */
    AXIS = SVG_AXIS,
    LABEL = SVG_LABEL,
    TICKS = SVG_TICKS
};

static bool has_row(const struct html_group *group, size_t k, size_t server) {
    return bench_has_row(&group->bench->targets[server], &group->bench->cases[k]);
}

static size_t rows_of(const struct html_group *group, size_t k) {
    size_t n = 0;
    for (size_t i = 0; i < group->bench->n_targets; i++) n += has_row(group, k, i);
    return n;
}

/* ---- how long things took ---------------------------------------------------------------------------------------- */

/* Computes how many samples fall into each column. The fewer samples there are, the wider each one is spread, so that
 * random gaps between samples do not show. */
static void columns_of(const struct histogram *histogram, const struct html_scale *scale, double columns[COLUMNS]) {
    double width = 1 + 60 / sqrt((double)histogram->n);
    memset(columns, 0, COLUMNS * sizeof *columns);
    for (int i = 0; i + 1 < HISTOGRAM_BUCKETS; i++) {
        if (!histogram->buckets[i]) continue;
        double from = svg_place(scale, (double)histogram_lowest(i)) * COLUMNS;
        double to = svg_place(scale, (double)histogram_lowest(i + 1)) * COLUMNS;
        if (to - from < width) {
            from = (from + to - width) / 2;
            to = from + width;
        }
        for (int at = from > 0 ? (int)from : 0; at < COLUMNS && at < to; at++) {
            double low = from > at ? from : at, high = to < at + 1 ? to : at + 1;
            columns[at] += (double)histogram->buckets[i] * (high - low) / (to - from);
        }
    }
}

/* Draws the outline of a histogram, scaled to its own highest column. */
static void shape(FILE *out, const struct histogram *histogram, const struct html_scale *scale, double foot,
                  const char *class) {
    double columns[COLUMNS], highest = 0, step = (WIDTH - 2.0 * EDGE) / COLUMNS;
    columns_of(histogram, scale, columns);
    for (int i = 0; i < COLUMNS; i++)
        if (columns[i] > highest) highest = columns[i];
    fprintf(out, "<path class=\"%s\" d=\"M%d %.1f", class, EDGE, foot);
    for (int i = 0; i < COLUMNS; i++) {
        bool is_flat = columns[i] <= 0 && (i == 0 || columns[i - 1] <= 0) && (i + 1 == COLUMNS || columns[i + 1] <= 0);
        if (!is_flat) fprintf(out, "L%.1f %.1f", EDGE + (i + 0.5) * step, foot - columns[i] / highest * SHAPE);
    }
    fprintf(out, "L%d %.1fZ\"/>\n", WIDTH - EDGE, foot);
}

static double time_x(const struct html_scale *scale, int64_t ns) {
    return EDGE + svg_place(scale, (double)ns) * (WIDTH - 2.0 * EDGE);
}

static void dots(FILE *out, const struct histogram *histogram, const struct html_scale *scale, double foot) {
    for (int i = 0; i + 1 < HISTOGRAM_BUCKETS; i++) {
        if (!histogram->buckets[i]) continue;
        int64_t middle = (histogram_lowest(i) + histogram_lowest(i + 1)) / 2;
        fprintf(out, "<circle class=\"sample\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>\n", time_x(scale, middle), foot - 6);
    }
}

/* Writes "median 61 µs, 99 % 120 µs"; with few samples without the 99th percentile, which they do not show. */
static void latency_label(char label[LABEL], const struct bench_cell *cell, const struct bench_figures *figures) {
    char median[BENCH_DURATION], p99[BENCH_DURATION];
    const char *broken = figures->violations ? "⚠ violated, " : "";
    bench_duration(median, figures->median_ns);
    bench_duration(p99, figures->p99_ns);
    if (cell->samples.n && cell->samples.n < HTML_FEW)
        snprintf(label, LABEL, "%smedian %s of %d", broken, svg_trimmed(median), (int)cell->samples.n);
    else if (cell->samples.n)
        snprintf(label, LABEL, "%smedian %s, 99 %% %s", broken, svg_trimmed(median), svg_trimmed(p99));
    else
        snprintf(label, LABEL, "%s%s", broken, cell->error_code ? "failed" : "no samples");
}

static void latency_row(FILE *out, const struct html_group *group, size_t k, size_t server, double top,
                        const struct html_scale *scale) {
    const struct bench_target *target = &group->bench->targets[server];
    const struct bench_cell *cell = &target->cells[k];
    struct bench_figures figures;
    char label[LABEL];
    double foot = top + SHAPE_TOP + SHAPE;
    bench_figures(&group->bench->cases[k], cell, &figures);
    fprintf(out, "<g class=\"s%d\">", svg_colour(server));
    if (cell->samples.n >= HTML_FEW) shape(out, &cell->samples, scale, foot, "shape");
    if (cell->floor.n >= HTML_FEW) shape(out, &cell->floor, scale, foot, "floor");
    svg_line(out, "base", 0, foot, WIDTH, foot);
    if (cell->samples.n && cell->samples.n < HTML_FEW) dots(out, &cell->samples, scale, foot);
    if (cell->samples.n >= HTML_FEW) {
        double median = time_x(scale, figures.median_ns), p99 = time_x(scale, figures.p99_ns);
        svg_line(out, "median", median, foot - SHAPE, median, foot + 2);
        svg_line(out, "p99", p99, foot - 14, p99, foot + 2);
        fprintf(out, "<circle class=\"longest\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"/>\n",
                time_x(scale, figures.longest_ns), foot);
    }
    svg_text(out, 0, top + LEGEND, "name", target->server);
    latency_label(label, cell, &figures);
    svg_text(out, WIDTH, top + LEGEND, "end", label);
    fputs("</g>\n", out);
}

void html_latency_chart(FILE *out, const struct html_group *group, size_t k, const struct html_scale *scale) {
    const struct bench *bench = group->bench;
    char label[LABEL];
    double height = (double)rows_of(group, k) * ROW, top = 0;
    svg_begin(out, "latency", k, "Duration", (int)height + AXIS);
    for (size_t i = 0; i < bench->n_targets; i++) {
        struct bench_figures figures;
        if (!has_row(group, k, i)) continue;
        bench_figures(&bench->cases[k], &bench->targets[i].cells[k], &figures);
        latency_label(label, &bench->targets[i].cells[k], &figures);
        html_text(out, bench->targets[i].server);
        fprintf(out, ": %s. ", label);
    }
    fputs("</desc>\n", out);
    svg_axis(out, scale, EDGE, WIDTH - EDGE, height, svg_time_label);
    for (size_t i = 0; i < bench->n_targets; i++) {
        if (!has_row(group, k, i)) continue;
        latency_row(out, group, k, i, top, scale);
        top += ROW;
    }
    fputs("</svg>\n", out);
}

/* ---- one figure of each server ----------------------------------------------------------------------------------- */

enum { MEASURE_ROW = 24, NAME_WIDTH = 8, VALUE_WIDTH = 52 };

static void measure_label(char label[LABEL], const struct html_measure *measure, double value) {
    if (value < 0)
        snprintf(label, LABEL, "none");
    else
        snprintf(label, LABEL, "%.*f%s", value >= 1000 ? 0 : measure->digits, value, measure->unit);
}

double html_measured(const struct html_group *group, size_t k, size_t server, const struct html_measure *measure) {
    struct bench_figures figures;
    bench_figures(&group->bench->cases[k], &group->bench->targets[server].cells[k], &figures);
    return measure->of(&figures);
}

/* Returns the width of the longest server name. */
static double names_width(const struct bench *bench) {
    size_t longest = 0;
    for (size_t i = 0; i < bench->n_targets; i++)
        if (strlen(bench->targets[i].server) > longest) longest = strlen(bench->targets[i].server);
    return (double)longest * NAME_WIDTH + 8;
}

static void measure_row(FILE *out, const char *server, double value, double top, double origin, double x,
                        const char *label) {
    double middle = top + MEASURE_ROW / 2.0;
    svg_text(out, 0, middle + 4, "name", server);
    if (value < 0) {
        svg_text(out, origin + 6, middle + 4, "tick", label);
        return;
    }
    svg_line(out, "stem", origin, middle, x, middle);
    fprintf(out, "<circle class=\"dot\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>\n", x, middle);
    svg_text(out, x < origin ? x - 8 : x + 8, middle + 4, x < origin ? "end" : "value", label);
}

void html_measure_chart(FILE *out, const struct html_group *group, size_t k, const struct html_measure *measure,
                        const struct html_scale *scale) {
    const struct bench *bench = group->bench;
    char label[LABEL];
    double height = (double)rows_of(group, k) * MEASURE_ROW + 4, x1 = WIDTH - VALUE_WIDTH, top = 2;
    double x0 = names_width(bench) + (measure->origin > scale->low ? VALUE_WIDTH : 4);
    double origin = x0 + svg_place(scale, measure->origin) * (x1 - x0);
    svg_begin(out, measure->id, k, measure->what, (int)height + AXIS);
    for (size_t i = 0; i < bench->n_targets; i++) {
        if (!has_row(group, k, i)) continue;
        measure_label(label, measure, html_measured(group, k, i, measure));
        html_text(out, bench->targets[i].server);
        fprintf(out, ": %s. ", label);
    }
    fputs("</desc>\n", out);
    svg_axis(out, scale, x0, x1, height, svg_count_label);
    svg_line(out, "origin", origin, 0, origin, height);
    for (size_t i = 0; i < bench->n_targets; i++) {
        double value = html_measured(group, k, i, measure);
        if (!has_row(group, k, i)) continue;
        measure_label(label, measure, value);
        fprintf(out, "<g class=\"s%d\">", svg_colour(i));
        measure_row(out, bench->targets[i].server, value, top, origin, x0 + svg_place(scale, value) * (x1 - x0), label);
        top += MEASURE_ROW;
        fputs("</g>\n", out);
    }
    fputs("</svg>\n", out);
}

/* ---- grants in a second against threads -------------------------------------------------------------------------- */

enum { PLOT_LEFT = 46, PLOT_TOP = 10, PLOT_FOOT = 224, BETWEEN_LABELS = 15, RATE_WIDTH = 98 };

struct plot {
    const struct html_group *group;
    struct html_scale threads, rate;
    double right; /* x of the lines' right ends; their labels follow */
};

static double rate_of(const struct plot *plot, size_t server, size_t k) {
    struct bench_figures figures;
    bench_figures(&plot->group->bench->cases[k], &plot->group->bench->targets[server].cells[k], &figures);
    return figures.per_second;
}

static double plot_x(const struct plot *plot, size_t k) {
    double threads = plot->group->bench->cases[k].threads;
    return PLOT_LEFT + 6 + svg_place(&plot->threads, threads) * (plot->right - PLOT_LEFT - 12);
}

static double plot_y(const struct plot *plot, double rate) {
    return PLOT_FOOT - svg_place(&plot->rate, rate) * (PLOT_FOOT - PLOT_TOP);
}

static void plot_axes(FILE *out, const struct plot *plot) {
    double ticks[TICKS];
    char label[LABEL];
    size_t n = svg_ticks(&plot->rate, 10, ticks);
    for (size_t i = 0; i < n; i++) {
        double y = plot_y(plot, ticks[i]);
        svg_line(out, "grid", PLOT_LEFT, y, plot->right, y);
        svg_count_label(label, ticks[i]);
        svg_text(out, PLOT_LEFT - 6, y + 4, "tick end", label);
    }
    for (size_t k = plot->group->first; k < plot->group->first + plot->group->n; k++) {
        double x = plot_x(plot, k);
        svg_line(out, "grid", x, PLOT_TOP, x, PLOT_FOOT);
        snprintf(label, LABEL, "%d", plot->group->bench->cases[k].threads);
        svg_text(out, x, PLOT_FOOT + 16, "tick middle", label);
    }
    svg_text(out, plot->right + 14, PLOT_FOOT + 16, "tick", "threads");
}

/* Draws the line of a server; *y is the height of its right end. False if the server has no values. */
static bool plot_line(FILE *out, const struct plot *plot, size_t server, double *y) {
    const struct html_group *group = plot->group;
    const char *begun = NULL;
    for (size_t k = group->first; k < group->first + group->n; k++) {
        double rate = rate_of(plot, server, k);
        if (rate <= 0) continue;
        *y = plot_y(plot, rate);
        if (!begun) fprintf(out, "<g class=\"s%d\"><path class=\"course\" d=\"", svg_colour(server));
        fprintf(out, "%s%.1f %.1f", begun ? begun : "M", plot_x(plot, k), *y);
        begun = "L";
    }
    if (!begun) return false;
    fputs("\"/>", out);
    for (size_t k = group->first; k < group->first + group->n; k++) {
        double rate = rate_of(plot, server, k);
        if (rate > 0) svg_mark(out, server, plot_x(plot, k), plot_y(plot, rate));
    }
    fputs("</g>\n", out);
    return true;
}

/* Writes the rate with the most threads, and its ratio to the rate with the fewest. */
static void rate_label(char label[LABEL], const struct plot *plot, size_t server) {
    double first = rate_of(plot, server, plot->group->first);
    double last = rate_of(plot, server, plot->group->first + plot->group->n - 1);
    char rate[LABEL];
    svg_count_label(rate, last > 0 ? last : 0);
    if (first > 0 && last > 0)
        snprintf(label, LABEL, "%.20s/s, %.1f×", rate, last / first);
    else
        snprintf(label, LABEL, "failed");
}

struct end {
    size_t server;
    double y;
};

/* Spreads the labels at the lines' ends so that they do not overlap: first moves each below the one before it, then
 * moves those that came to lie below the foot up again. `ends` are sorted by y. */
static void spread(struct end *ends, size_t n) {
    for (size_t i = 1; i < n; i++)
        if (ends[i].y < ends[i - 1].y + BETWEEN_LABELS) ends[i].y = ends[i - 1].y + BETWEEN_LABELS;
    double most = PLOT_FOOT;
    for (size_t i = n; i-- > 0; most = ends[i].y - BETWEEN_LABELS)
        if (ends[i].y > most) ends[i].y = most;
}

static void plot_servers(FILE *out, const struct plot *plot) {
    struct end ends[BENCH_WORKERS];
    size_t n = 0;
    for (size_t i = 0; i < plot->group->bench->n_targets; i++) {
        double y;
        if (!plot_line(out, plot, i, &y) || n == BENCH_WORKERS) continue;
        size_t at = n++;
        for (; at > 0 && ends[at - 1].y > y; at--) ends[at] = ends[at - 1];
        ends[at] = (struct end){i, y};
    }
    spread(ends, n);
    for (size_t i = 0; i < n; i++) {
        char label[LABEL];
        rate_label(label, plot, ends[i].server);
        fprintf(out, "<g class=\"s%d\"><text x=\"%.1f\" y=\"%.1f\"><tspan class=\"name\">", svg_colour(ends[i].server),
                plot->right + 6, ends[i].y + 4);
        html_text(out, plot->group->bench->targets[ends[i].server].server);
        fprintf(out, "</tspan> %s</text></g>\n", label);
    }
}

void html_thread_chart(FILE *out, const struct html_group *group) {
    const struct bench *bench = group->bench;
    size_t last = group->first + group->n - 1;
    struct plot plot = {.group = group, .right = WIDTH - RATE_WIDTH - names_width(bench)};
    double low = -1, high = -1;
    for (size_t i = 0; i < bench->n_targets; i++) {
        for (size_t k = group->first; k <= last; k++) {
            double rate = rate_of(&plot, i, k);
            if (rate > 0 && (low < 0 || rate < low)) low = rate;
            if (rate > high) high = rate;
        }
    }
    if (low < 0) low = high = 1;
    plot.threads = (struct html_scale){bench->cases[group->first].threads, bench->cases[last].threads, true};
    plot.rate = html_log_scale(low, high);
    svg_begin(out, "threads", group->first, "Grants per second by number of threads", PLOT_FOOT + AXIS);
    for (size_t i = 0; i < bench->n_targets; i++) {
        char label[LABEL];
        if (!has_row(group, last, i)) continue;
        rate_label(label, &plot, i);
        html_text(out, bench->targets[i].server);
        fprintf(out, ": %s with %d threads, of those with %d. ", label, bench->cases[last].threads,
                bench->cases[group->first].threads);
    }
    fputs("</desc>\n", out);
    plot_axes(out, &plot);
    plot_servers(out, &plot);
    fputs("</svg>\n", out);
}
