/* Writes the elements of charts. */
#include "bench/svg.h"
#include "text.h"

#include <math.h>
#include <string.h>

enum { WIDTH = SVG_WIDTH, LABEL = SVG_LABEL, TICKS = SVG_TICKS };

void svg_begin(FILE *out, const char *id, size_t k, const char *title, int height) {
    fprintf(out,
            "<svg role=\"img\" viewBox=\"0 0 %d %d\" aria-labelledby=\"%s%zu\" aria-describedby=\"%s%zud\">"
            "<title id=\"%s%zu\">",
            WIDTH, height, id, k, id, k, id, k);
    html_text(out, title);
    fprintf(out, "</title><desc id=\"%s%zud\">", id, k);
}

void svg_text(FILE *out, double x, double y, const char *class, const char *words) {
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
    html_text(out, words);
    fputs("</text>\n", out);
}

void svg_line(FILE *out, const char *class, double x1, double y1, double x2, double y2) {
    fprintf(out, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", class, x1, y1, x2, y2);
}

int svg_colour(size_t server) {
    return (int)(server % 8);
}

const char *svg_trimmed(char *words) {
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

double svg_place(const struct html_scale *scale, double value) {
    double at = scale->is_log ? log(value / scale->low) / log(scale->high / scale->low)
                              : (value - scale->low) / (scale->high - scale->low);
    return at < 0 || !(value > 0) ? 0 : at > 1 ? 1 : at;
}

/* Places ticks at 1, 2 and 5 times powers of ten; or, if these are more than `most`, at powers of ten only. Returns the
 * number of ticks. */
static size_t log_ticks(const struct html_scale *scale, double most, double ticks[TICKS]) {
    int step = log10(scale->high / scale->low) * 3 > most ? 3 : 1;
    size_t n = 0;
    for (double decade = pow(10, floor(log10(scale->low) + 1e-9)); decade <= scale->high * 1.0001; decade *= 10)
        for (int i = 0; i < 3 && n < TICKS; i += step)
            if (steps[i] * decade >= scale->low * 0.9999 && steps[i] * decade <= scale->high * 1.0001)
                ticks[n++] = steps[i] * decade;
    return n;
}

size_t svg_ticks(const struct html_scale *scale, double most, double ticks[TICKS]) {
    if (scale->is_log) return log_ticks(scale, most, ticks);
    /* The end is 1, 2 or 5 times a power of ten. A quarter of 1 or 2, and a fifth of 5, have few digits. */
    int parts = fmod(log10(scale->high) + 9 + 1e-9, 1) > 0.5 ? 5 : 4;
    for (int i = 0; i <= parts; i++) ticks[i] = scale->low + (scale->high - scale->low) * i / parts;
    return (size_t)parts + 1;
}

void svg_time_label(char label[LABEL], double ns) {
    static const char *const units[] = {"ns", "µs", "ms", "s"};
    int unit = 0;
    for (; ns > 999.9 && unit < 3; unit++) ns /= 1000;
    snprintf(label, LABEL, "%.0f %s", ns, units[unit]);
}

void svg_count_label(char label[LABEL], double count) {
    const char *unit = "";
    if (count > 999999)
        count /= 1e6, unit = " M";
    else if (count > 9999)
        count /= 1000, unit = " k";
    snprintf(label, LABEL, count < 100 ? "%.3g%s" : "%.0f%s", count, unit);
}

void svg_axis(FILE *out, const struct html_scale *scale, double x0, double x1, double height,
              void (*name)(char label[LABEL], double value)) {
    double ticks[TICKS];
    char label[LABEL];
    size_t n = svg_ticks(scale, (x1 - x0) / (name == svg_time_label ? 60 : 24), ticks);
    for (size_t i = 0; i < n; i++) {
        double x = x0 + svg_place(scale, ticks[i]) * (x1 - x0);
        svg_line(out, "grid", x, 0, x, height);
        name(label, ticks[i]);
        svg_text(out, x, height + 15, x < 20 ? "tick" : x > WIDTH - 20 ? "tick end" : "tick middle", label);
    }
}

void svg_mark(FILE *out, size_t server, double x, double y) {
    static const char *const marks[] = {"m-3.5-3.5h7v7h-7z", "m0-5l5 5-5 5-5-5z", "m0-5l4.5 8h-9z", "m0 5l4.5-8h-9z"};
    if (server % 5 == 0)
        fprintf(out, "<circle class=\"dot\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>", x, y);
    else
        fprintf(out, "<path class=\"dot\" d=\"M%.1f %.1f%s\"/>", x, y, marks[server % 5 - 1]);
}
