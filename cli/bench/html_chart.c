/* The charts of a report. Each is 400 units wide, about as many pixels, and says in words what it shows. */
#include "bench/html.h"
#include "text.h"

#include <math.h>
#include <string.h>

enum {
    WIDTH = 400,
    EDGE = 4,       /* left and right of a chart's axis */
    COLUMNS = 196,  /* of a latency shape, over the whole axis */
    FEW = 30,       /* samples: fewer are shown as dots, since they have no shape */
    LEGEND = 13,    /* baseline of a line of text */
    SHAPE_TOP = 19, /* inside a server's row */
    SHAPE = 24,
    ROW = 52,
    AXIS = 22, /* below the rows */
    LABEL = 60,
    TICKS = 64
};

static void begin(FILE *out, const char *id, size_t k, const char *title, int height) {
    fprintf(out,
            "<svg role=\"img\" viewBox=\"0 0 %d %d\" aria-labelledby=\"%s%zu\" aria-describedby=\"%s%zud\">"
            "<title id=\"%s%zu\">",
            WIDTH, height, id, k, id, k, id, k);
    html_text(out, title);
    fprintf(out, "</title><desc id=\"%s%zud\">", id, k);
}

static void text(FILE *out, double x, double y, const char *class, const char *words) {
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
    html_text(out, words);
    fputs("</text>\n", out);
}

static void line(FILE *out, const char *class, double x1, double y1, double x2, double y2) {
    fprintf(out, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", class, x1, y1, x2, y2);
}

/* The same server has the same colour everywhere; what is meant never hangs on it. */
static int colour(size_t server) {
    return (int)(server % 8);
}

static const char *trimmed(char *words) {
    size_t length = strlen(words);
    while (length && words[length - 1] == ' ') words[--length] = '\0';
    return words + strspn(words, " ");
}

/* ---- scales ------------------------------------------------------------------------------------------------------ */

static const double steps[] = {1, 2, 5};

struct html_scale html_log_scale(double low, double high) {
    struct html_scale scale = {0, 0, true};
    double decade = pow(10, floor(log10(low)));
    for (int i = 0; i < 3; i++)
        if (steps[i] * decade <= low * 1.0001) scale.low = steps[i] * decade;
    decade = pow(10, floor(log10(high)));
    scale.high = 10 * decade;
    for (int i = 2; i >= 0; i--)
        if (steps[i] * decade >= high * 0.9999) scale.high = steps[i] * decade;
    if (scale.high < 1.9 * scale.low) scale.high = 2 * scale.low;
    return scale;
}

/* Where `value` is, from 0 to 1. */
static double place(const struct html_scale *scale, double value) {
    double at = scale->is_log ? log(value / scale->low) / log(scale->high / scale->low)
                              : (value - scale->low) / (scale->high - scale->low);
    return at < 0 || !(value > 0) ? 0 : at > 1 ? 1 : at;
}

/* Ticks at 1, 2 and 5, or at powers of ten where there is no room for more than `most`. Returns how many. */
static size_t log_ticks(const struct html_scale *scale, double most, double ticks[TICKS]) {
    int step = log10(scale->high / scale->low) * 3 > most ? 3 : 1;
    size_t n = 0;
    for (double decade = pow(10, floor(log10(scale->low) + 1e-9)); decade <= scale->high * 1.0001; decade *= 10)
        for (int i = 0; i < 3 && n < TICKS; i += step)
            if (steps[i] * decade >= scale->low * 0.9999 && steps[i] * decade <= scale->high * 1.0001)
                ticks[n++] = steps[i] * decade;
    return n;
}

static size_t ticks_of(const struct html_scale *scale, double most, double ticks[TICKS]) {
    if (scale->is_log) return log_ticks(scale, most, ticks);
    /* The end is 1, 2 or 5, or ten times that, …: parts of it have few digits. */
    int parts = fmod(log10(scale->high) + 9 + 1e-9, 1) > 0.5 ? 5 : 4;
    for (int i = 0; i <= parts; i++) ticks[i] = scale->low + (scale->high - scale->low) * i / parts;
    return (size_t)parts + 1;
}

static void time_label(char label[LABEL], double ns) {
    static const char *const units[] = {"ns", "µs", "ms", "s"};
    int unit = 0;
    for (; ns > 999.9 && unit < 3; unit++) ns /= 1000;
    snprintf(label, LABEL, "%.0f %s", ns, units[unit]);
}

static void count_label(char label[LABEL], double count) {
    const char *unit = "";
    if (count > 999999)
        count /= 1e6, unit = " M";
    else if (count > 9999)
        count /= 1000, unit = " k";
    snprintf(label, LABEL, count < 100 ? "%.3g%s" : "%.0f%s", count, unit);
}

/* A horizontal axis between x0 and x1, at the foot of a chart that is `height` high without it. */
static void axis(FILE *out, const struct html_scale *scale, double x0, double x1, double height,
                 void (*name)(char label[LABEL], double value)) {
    double ticks[TICKS];
    char label[LABEL];
    size_t n = ticks_of(scale, (x1 - x0) / (name == time_label ? 60 : 24), ticks);
    for (size_t i = 0; i < n; i++) {
        double x = x0 + place(scale, ticks[i]) * (x1 - x0);
        line(out, "grid", x, 0, x, height);
        name(label, ticks[i]);
        text(out, x, height + 15, x < 20 ? "tick" : x > WIDTH - 20 ? "tick end" : "tick middle", label);
    }
}

/* ---- how long things took ---------------------------------------------------------------------------------------- */

/* How much of a histogram falls into each column. The fewer samples, the more of them each is spread over: what is left
 * to chance should not look like a comb. */
static void columns_of(const struct histogram *histogram, const struct html_scale *scale, double columns[COLUMNS]) {
    double width = 1 + 60 / sqrt((double)histogram->n);
    memset(columns, 0, COLUMNS * sizeof *columns);
    for (int i = 0; i + 1 < HISTOGRAM_BUCKETS; i++) {
        if (!histogram->buckets[i]) continue;
        double from = place(scale, (double)histogram_lowest(i)) * COLUMNS;
        double to = place(scale, (double)histogram_lowest(i + 1)) * COLUMNS;
        if (to - from < width) {
            from = (from + to - width) / 2;
            to = from + width;
        }
        for (int at = from > 0 ? (int)from : 0; at < COLUMNS && at < to; at++) {
            double low = from > at ? from : at, high = to < at + 1 ? to : at + 1;
            columns[at] += histogram->buckets[i] * (high - low) / (to - from);
        }
    }
}

/* The outline of a histogram, as high as its highest column. */
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
    return EDGE + place(scale, (double)ns) * (WIDTH - 2.0 * EDGE);
}

static void dots(FILE *out, const struct histogram *histogram, const struct html_scale *scale, double foot) {
    for (int i = 0; i + 1 < HISTOGRAM_BUCKETS; i++) {
        if (!histogram->buckets[i]) continue;
        int64_t middle = (histogram_lowest(i) + histogram_lowest(i + 1)) / 2;
        fprintf(out, "<circle class=\"sample\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>\n", time_x(scale, middle), foot - 6);
    }
}

/* "median 61 µs, 99 % 120 µs"; few samples say nothing about one in a hundred */
static void latency_label(char label[LABEL], const struct bench_cell *cell, const struct bench_figures *figures) {
    char median[BENCH_DURATION], p99[BENCH_DURATION];
    const char *broken = figures->violations ? "⚠ violated, " : "";
    bench_duration(median, figures->median_ns);
    bench_duration(p99, figures->p99_ns);
    if (cell->samples.n && cell->samples.n < FEW)
        snprintf(label, LABEL, "%smedian %s of %d", broken, trimmed(median), (int)cell->samples.n);
    else if (cell->samples.n)
        snprintf(label, LABEL, "%smedian %s, 99 %% %s", broken, trimmed(median), trimmed(p99));
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
    fprintf(out, "<g class=\"s%d\">", colour(server));
    if (cell->samples.n >= FEW) shape(out, &cell->samples, scale, foot, "shape");
    if (cell->floor.n >= FEW) shape(out, &cell->floor, scale, foot, "floor");
    line(out, "base", 0, foot, WIDTH, foot);
    if (cell->samples.n && cell->samples.n < FEW) dots(out, &cell->samples, scale, foot);
    if (cell->samples.n >= FEW) {
        double median = time_x(scale, figures.median_ns), p99 = time_x(scale, figures.p99_ns);
        line(out, "median", median, foot - SHAPE, median, foot + 2);
        line(out, "p99", p99, foot - 14, p99, foot + 2);
        fprintf(out, "<circle class=\"longest\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"/>\n",
                time_x(scale, figures.longest_ns), foot);
    }
    text(out, 0, top + LEGEND, "name", target->server);
    latency_label(label, cell, &figures);
    text(out, WIDTH, top + LEGEND, "end", label);
    fputs("</g>\n", out);
}

void html_latency_chart(FILE *out, const struct html_group *group, size_t k, const struct html_scale *scale) {
    const struct bench *bench = group->bench;
    char label[LABEL];
    double height = (double)bench->n_targets * ROW;
    begin(out, "latency", k, "How long it took", (int)height + AXIS);
    for (size_t i = 0; i < bench->n_targets; i++) {
        struct bench_figures figures;
        bench_figures(&bench->cases[k], &bench->targets[i].cells[k], &figures);
        latency_label(label, &bench->targets[i].cells[k], &figures);
        html_text(out, bench->targets[i].server);
        fprintf(out, ": %s. ", label);
    }
    fputs("</desc>\n", out);
    axis(out, scale, EDGE, WIDTH - EDGE, height, time_label);
    for (size_t i = 0; i < bench->n_targets; i++) latency_row(out, group, k, i, (double)i * ROW, scale);
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

/* How much the names of all servers need. */
static double names_width(const struct bench *bench) {
    size_t longest = 0;
    for (size_t i = 0; i < bench->n_targets; i++)
        if (strlen(bench->targets[i].server) > longest) longest = strlen(bench->targets[i].server);
    return (double)longest * NAME_WIDTH + 8;
}

static void measure_row(FILE *out, const char *server, double value, double top, double origin, double x,
                        const char *label) {
    double middle = top + MEASURE_ROW / 2.0;
    text(out, 0, middle + 4, "name", server);
    if (value < 0) {
        text(out, origin + 6, middle + 4, "tick", label);
        return;
    }
    line(out, "stem", origin, middle, x, middle);
    fprintf(out, "<circle class=\"dot\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>\n", x, middle);
    text(out, x < origin ? x - 8 : x + 8, middle + 4, x < origin ? "end" : "value", label);
}

void html_measure_chart(FILE *out, const struct html_group *group, size_t k, const struct html_measure *measure,
                        const struct html_scale *scale) {
    const struct bench *bench = group->bench;
    char label[LABEL];
    double height = (double)bench->n_targets * MEASURE_ROW + 4, x1 = WIDTH - VALUE_WIDTH;
    double x0 = names_width(bench) + (measure->origin > scale->low ? VALUE_WIDTH : 4);
    double origin = x0 + place(scale, measure->origin) * (x1 - x0);
    begin(out, measure->id, k, measure->what, (int)height + AXIS);
    for (size_t i = 0; i < bench->n_targets; i++) {
        measure_label(label, measure, html_measured(group, k, i, measure));
        html_text(out, bench->targets[i].server);
        fprintf(out, ": %s. ", label);
    }
    fputs("</desc>\n", out);
    axis(out, scale, x0, x1, height, count_label);
    line(out, "origin", origin, 0, origin, height);
    for (size_t i = 0; i < bench->n_targets; i++) {
        double value = html_measured(group, k, i, measure);
        measure_label(label, measure, value);
        fprintf(out, "<g class=\"s%d\">", colour(i));
        measure_row(out, bench->targets[i].server, value, (double)i * MEASURE_ROW + 2, origin,
                    x0 + place(scale, value) * (x1 - x0), label);
        fputs("</g>\n", out);
    }
    fputs("</svg>\n", out);
}

/* ---- grants in a second against threads -------------------------------------------------------------------------- */

enum { PLOT_LEFT = 46, PLOT_TOP = 10, PLOT_FOOT = 224, BETWEEN_LABELS = 15, RATE_WIDTH = 98 };

struct plot {
    const struct html_group *group;
    struct html_scale threads, rate;
    double right; /* end of the lines; their labels follow */
};

static double rate_of(const struct plot *plot, size_t server, size_t k) {
    struct bench_figures figures;
    bench_figures(&plot->group->bench->cases[k], &plot->group->bench->targets[server].cells[k], &figures);
    return figures.per_second;
}

static double plot_x(const struct plot *plot, size_t k) {
    double threads = plot->group->bench->cases[k].threads;
    return PLOT_LEFT + 6 + place(&plot->threads, threads) * (plot->right - PLOT_LEFT - 12);
}

static double plot_y(const struct plot *plot, double rate) {
    return PLOT_FOOT - place(&plot->rate, rate) * (PLOT_FOOT - PLOT_TOP);
}

static void plot_axes(FILE *out, const struct plot *plot) {
    double ticks[TICKS];
    char label[LABEL];
    size_t n = ticks_of(&plot->rate, 10, ticks);
    for (size_t i = 0; i < n; i++) {
        double y = plot_y(plot, ticks[i]);
        line(out, "grid", PLOT_LEFT, y, plot->right, y);
        count_label(label, ticks[i]);
        text(out, PLOT_LEFT - 6, y + 4, "tick end", label);
    }
    for (size_t k = plot->group->first; k < plot->group->first + plot->group->n; k++) {
        double x = plot_x(plot, k);
        line(out, "grid", x, PLOT_TOP, x, PLOT_FOOT);
        snprintf(label, LABEL, "%d", plot->group->bench->cases[k].threads);
        text(out, x, PLOT_FOOT + 16, "tick middle", label);
    }
    text(out, plot->right + 14, PLOT_FOOT + 16, "tick", "threads");
}

/* Lines that cross are told apart by their marks, too. */
static void mark(FILE *out, size_t server, double x, double y) {
    static const char *const marks[] = {"m-3.5-3.5h7v7h-7z", "m0-5l5 5-5 5-5-5z", "m0-5l4.5 8h-9z", "m0 5l4.5-8h-9z"};
    if (server % 5 == 0)
        fprintf(out, "<circle class=\"dot\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>", x, y);
    else
        fprintf(out, "<path class=\"dot\" d=\"M%.1f %.1f%s\"/>", x, y, marks[server % 5 - 1]);
}

/* Where the line of a server ends: *y. False when it has none. */
static bool plot_line(FILE *out, const struct plot *plot, size_t server, double *y) {
    const struct html_group *group = plot->group;
    const char *begun = NULL;
    for (size_t k = group->first; k < group->first + group->n; k++) {
        double rate = rate_of(plot, server, k);
        if (rate <= 0) continue;
        *y = plot_y(plot, rate);
        if (!begun) fprintf(out, "<g class=\"s%d\"><path class=\"course\" d=\"", colour(server));
        fprintf(out, "%s%.1f %.1f", begun ? begun : "M", plot_x(plot, k), *y);
        begun = "L";
    }
    if (!begun) return false;
    fputs("\"/>", out);
    for (size_t k = group->first; k < group->first + group->n; k++) {
        double rate = rate_of(plot, server, k);
        if (rate > 0) mark(out, server, plot_x(plot, k), plot_y(plot, rate));
    }
    fputs("</g>\n", out);
    return true;
}

/* How many grants in a second the most threads had, and how many times those of the fewest that is. */
static void rate_label(char label[LABEL], const struct plot *plot, size_t server) {
    double first = rate_of(plot, server, plot->group->first);
    double last = rate_of(plot, server, plot->group->first + plot->group->n - 1);
    char rate[LABEL];
    count_label(rate, last > 0 ? last : 0);
    if (first > 0 && last > 0)
        snprintf(label, LABEL, "%.20s/s, %.1f×", rate, last / first);
    else
        snprintf(label, LABEL, "failed");
}

struct end {
    size_t server;
    double y;
};

/* Labels stand at the ends of their lines, and not on each other: from the top each makes room for the next, then those
 * that went below the foot are pushed back. `ends` are sorted by y. */
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
        fprintf(out, "<g class=\"s%d\"><text x=\"%.1f\" y=\"%.1f\"><tspan class=\"name\">", colour(ends[i].server),
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
    begin(out, "threads", group->first, "Grants in a second against threads", PLOT_FOOT + AXIS);
    for (size_t i = 0; i < bench->n_targets; i++) {
        char label[LABEL];
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
