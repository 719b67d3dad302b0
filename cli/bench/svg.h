/* What charts are made of: lines, words, scales, an axis. A chart is 400 units wide, about as many pixels. */
#ifndef DLOCK_CLI_BENCH_SVG_H
#define DLOCK_CLI_BENCH_SVG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum {
    SVG_WIDTH = 400,
    SVG_AXIS = 22, /* below the rows */
    SVG_LABEL = 60,
    SVG_TICKS = 64
};

struct html_scale {
    double low, high;
    bool is_log;
};

/* From what is above 0 to steps of 1, 2 and 5, at least a factor of 2 apart. */
struct html_scale html_log_scale(double low, double high);
/* Where `value` is, from 0 to 1. */
double svg_place(const struct html_scale *scale, double value);
/* At most `most`, where the scale is logarithmic; returns how many. */
size_t svg_ticks(const struct html_scale *scale, double most, double ticks[SVG_TICKS]);

/* Begins a chart and its description, which the caller ends with </desc>. `id` and `k` name it. */
void svg_begin(FILE *out, const char *id, size_t k, const char *title, int height);
void svg_text(FILE *out, double x, double y, const char *class, const char *words);
void svg_line(FILE *out, const char *class, double x1, double y1, double x2, double y2);
/* A horizontal axis between x0 and x1, at the foot of a chart that is `height` high without it. */
void svg_axis(FILE *out, const struct html_scale *scale, double x0, double x1, double height,
              void (*name)(char label[SVG_LABEL], double value));
/* A mark of one of five shapes. */
void svg_mark(FILE *out, size_t shape, double x, double y);

void svg_time_label(char label[SVG_LABEL], double ns);
void svg_count_label(char label[SVG_LABEL], double count);
/* Without spaces around it. */
const char *svg_trimmed(char *words);
/* The same server has the same colour everywhere; what is meant never hangs on it. */
int svg_colour(size_t server);

#endif
