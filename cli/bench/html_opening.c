/* The top of the page: the three most wanted figures of all servers, on one logarithmic scale. */
#include "bench/html.h"
#include "text.h"

#include <string.h>

enum { ROW = 24, LEGEND = 22, NAME_WIDTH = 8, EDGE = 10, N = 3 };

/* The three workloads, of which the first case is shown. Their marks are 0 to 2 in this order. */
static const struct {
    const char *workload;
    const char *before; /* the text before the duration in the sentence */
} asked[N] = {{"cycle", "an uncontended acquire and release takes "},
              {"hand-over", "its hand-over to another process takes "},
              {"crash", "a waiter gets the lock of a dead holder after "}};

/* Returns the index of the first case of a workload in `asked`; n_cases: it was not measured. */
static size_t case_of(const struct bench *bench, int thing) {
    size_t k = 0;
    while (k < bench->n_cases && strcmp(bench->cases[k].workload->name, asked[thing].workload) != 0) k++;
    return k;
}

/* Returns the median on a server in ns; negative: it was not measured there. */
static int64_t median_of(const struct bench *bench, int thing, size_t server) {
    struct bench_figures figures;
    size_t k = case_of(bench, thing);
    if (k == bench->n_cases) return -1;
    bench_figures(&bench->cases[k], &bench->targets[server].cells[k], &figures);
    return figures.median_ns;
}

/* Returns how many samples that median rests on, if they are few; otherwise 0. */
static int few_samples(const struct bench *bench, int thing, size_t server) {
    uint64_t n = bench->targets[server].cells[case_of(bench, thing)].samples.n;
    return n < HTML_FEW ? (int)n : 0;
}

struct range {
    int64_t least, most;
    size_t fastest, slowest; /* indices of servers */
};

/* Finds the least and the greatest median of a workload on dlock's own rows or, `with_peers`, on all. False: there is
 * none. */
static bool range_of(const struct bench *bench, int thing, bool with_peers, struct range *range) {
    *range = (struct range){.least = -1, .most = -1};
    for (size_t i = 0; i < bench->n_targets; i++) {
        int64_t ns = median_of(bench, thing, i);
        if (ns < 0 || (bench->targets[i].peer && !with_peers)) continue;
        if (range->least < 0 || ns < range->least) range->least = ns, range->fastest = i;
        if (ns > range->most) range->most = ns, range->slowest = i;
    }
    return range->least >= 0;
}

static void time_on(FILE *out, const struct bench *bench, int thing, int64_t ns, size_t server) {
    char padded[BENCH_DURATION];
    bench_duration(padded, ns);
    fprintf(out, "%s (", svg_trimmed(padded));
    html_text(out, bench->targets[server].server);
    int few = few_samples(bench, thing, server);
    if (few) fprintf(out, ", %d sample%s", few, few == 1 ? "" : "s");
    fputc(')', out);
}

static void sentence(FILE *out, const struct bench *bench) {
    bool begun = false;
    fputs("<p class=\"opening\">", out);
    for (int thing = 0; thing < N; thing++) {
        struct range range;
        if (!range_of(bench, thing, false, &range)) continue;
        if (begun)
            fprintf(out, "; %s", asked[thing].before);
        else
            fprintf(out, "%c%s", asked[thing].before[0] & ~0x20, asked[thing].before + 1);
        begun = true;
        time_on(out, bench, thing, range.least, range.fastest);
        if (range.slowest == range.fastest) continue;
        fputs(" to ", out);
        time_on(out, bench, thing, range.most, range.slowest);
    }
    fputs(".</p>\n", out);
}

/* True if a target has any of the three workloads: some locks of other software have none. */
static bool is_shown(const struct bench *bench, size_t server) {
    for (int thing = 0; thing < N; thing++) {
        size_t k = case_of(bench, thing);
        if (k < bench->n_cases && bench_has_row(&bench->targets[server], &bench->cases[k])) return true;
    }
    return false;
}

static void description(FILE *out, const struct bench *bench) {
    for (size_t i = 0; i < bench->n_targets; i++) {
        if (!is_shown(bench, i)) continue;
        html_text(out, bench->targets[i].server);
        const char *between = ": ";
        for (int thing = 0; thing < N; thing++) {
            char padded[BENCH_DURATION];
            int64_t ns = median_of(bench, thing, i);
            if (ns < 0) continue;
            bench_duration(padded, ns);
            fprintf(out, "%s%s %s", between, asked[thing].workload, svg_trimmed(padded));
            between = ", ";
        }
        fputs(". ", out);
    }
    fputs("</desc>\n", out);
}

static void legend(FILE *out, const struct bench *bench) {
    double x = EDGE;
    fputs("<g class=\"legend\">", out);
    for (int thing = 0; thing < N; thing++) {
        if (case_of(bench, thing) == bench->n_cases) continue;
        svg_mark(out, (size_t)thing, x, 9);
        svg_text(out, x + 9, 13, "tick", asked[thing].workload);
        x += 30 + (double)strlen(asked[thing].workload) * NAME_WIDTH;
    }
    fputs("</g>\n", out);
}

static void chart(FILE *out, const struct bench *bench, const struct html_scale *scale) {
    size_t longest = 0, rows = 0;
    for (size_t i = 0; i < bench->n_targets; i++) {
        if (!is_shown(bench, i)) continue;
        rows++;
        if (strlen(bench->targets[i].server) > longest) longest = strlen(bench->targets[i].server);
    }
    double x0 = (double)longest * NAME_WIDTH + EDGE, x1 = SVG_WIDTH - EDGE, y = LEGEND - 0.5 * ROW;
    double height = LEGEND + (double)rows * ROW;
    svg_begin(out, "opening", 0, "All servers side by side", (int)height + SVG_AXIS);
    description(out, bench);
    svg_axis(out, scale, x0, x1, height, svg_time_label);
    legend(out, bench);
    for (size_t i = 0; i < bench->n_targets; i++) {
        if (!is_shown(bench, i)) continue;
        y += ROW;
        fprintf(out, "<g class=\"s%d\">", svg_colour(i));
        svg_text(out, 0, y + 4, "name", bench->targets[i].server);
        svg_line(out, "base", x0, y, x1, y);
        for (int thing = 0; thing < N; thing++) {
            int64_t ns = median_of(bench, thing, i);
            if (ns < 0) continue;
            bool few = few_samples(bench, thing, i) > 0;
            if (few) fputs("<g class=\"few\">", out);
            svg_mark(out, (size_t)thing, x0 + svg_place(scale, (double)ns) * (x1 - x0), y);
            if (few) fputs("</g>", out);
        }
        fputs("</g>\n", out);
    }
    fputs("</svg>\n", out);
}

void html_opening(FILE *out, const struct bench *bench) {
    int64_t least = -1, most = -1;
    for (int thing = 0; thing < N; thing++) {
        struct range range;
        if (!range_of(bench, thing, true, &range)) continue;
        if (least < 0 || range.least < least) least = range.least;
        if (range.most > most) most = range.most;
    }
    if (least < 0) return;
    struct html_scale scale = html_log_scale(least > 0 ? (double)least : 1, most > 0 ? (double)most : 1);
    sentence(out, bench);
    fputs("<figure class=\"opening\">\n", out);
    chart(out, bench, &scale);
    fprintf(out,
            "<p class=\"about\">Medians, on a logarithmic axis; pale: of fewer than %d samples. The servers promise "
            "different things: compare also their <a href=\"#servers\">settings</a>.</p></figure>\n",
            HTML_FEW);
}
