/* The elements of charts: lines, texts, scales, axes. A chart is 400 units wide, about as many pixels. */
#ifndef DLOCK_CLI_BENCH_SVG_H
#define DLOCK_CLI_BENCH_SVG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum {
    SVG_WIDTH = 400,
    SVG_AXIS = 22,  /* height of the axis below the rows */
    SVG_LABEL = 60, /* bytes of a label */
    SVG_TICKS = 64  /* most ticks of an axis */
};

struct html_scale {
    double low, high;
    bool is_log;
};

/* Returns a logarithmic scale that covers `low` (above 0) to `high`. Its ends are 1, 2 or 5 times powers of ten, at
 * least a factor of 2 apart. */
struct html_scale html_log_scale(double low, double high);
/* Returns the place of `value` on the scale, from 0 to 1. */
double svg_place(const struct html_scale *scale, double value);
/* Places the ticks of an axis, about `most` where the scale is logarithmic. Returns their number. */
size_t svg_ticks(const struct html_scale *scale, double most, double ticks[SVG_TICKS]);

/* Begins a chart and its description; the caller writes the description's text and ends it with </desc>. `id` and `k`
 * together identify the chart. */
void svg_begin(FILE *out, const char *id, size_t k, const char *title, int height);
void svg_text(FILE *out, double x, double y, const char *class, const char *words);
void svg_line(FILE *out, const char *class, double x1, double y1, double x2, double y2);
/* Draws a horizontal axis from x0 to x1, below a chart that is `height` high without it. `name` writes a tick's
 * label. */
void svg_axis(FILE *out, const struct html_scale *scale, double x0, double x1, double height,
              void (*name)(char label[SVG_LABEL], double value));
/* Draws a mark of one of five shapes, by which lines that cross can be distinguished. */
void svg_mark(FILE *out, size_t shape, double x, double y);

void svg_time_label(char label[SVG_LABEL], double ns);
void svg_count_label(char label[SVG_LABEL], double count);
/* Removes the spaces around `words`, in place. Returns the rest. */
const char *svg_trimmed(char *words);
/* Returns the number of a server's colour, the same in all charts. No chart depends on colours alone. */
int svg_colour(size_t server);

#endif
