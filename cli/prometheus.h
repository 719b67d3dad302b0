/* Prometheus' text format, https://prometheus.io/docs/instrumenting/exposition_formats/. All samples of a family follow
 * its heading. */
#ifndef DLOCK_CLI_PROMETHEUS_H
#define DLOCK_CLI_PROMETHEUS_H

#include <stdint.h>
#include <stdio.h>

struct label {
    const char *name, *value; /* name NULL: no more labels */
};

/* Whatever stands in `text` as a label's value can have it: what is not UTF-8, and control characters, become U+FFFD.
 * Two names that differ in nothing else become one. Malloced; NULL: out of memory. */
char *label_text(const char *text);

/* The value of the label `server`: the URI as others may see it. Malloced; NULL: `err` says why not. */
struct dlock_error;
char *server_label(const char *uri, struct dlock_error *err);

void prometheus_family(FILE *out, const char *family, const char *type, const char *help);

/* One line each. `labels` NULL: none. */
void prometheus_number(FILE *out, const char *sample, const struct label *labels, uint64_t number);
void prometheus_seconds(FILE *out, const char *sample, const struct label *labels, int64_t us); /* may be negative */
void prometheus_infinite(FILE *out, const char *sample, const struct label *labels);

/* What stands before the value in the line of a sample. */
void prometheus_key(FILE *out, const char *sample, const struct label *labels);

/* The text of seconds, without zeros at its end: "0.0001", "12". As a histogram's `le`, too. */
enum { SECONDS_MAX = 32 };
void seconds_text(char text[SECONDS_MAX], int64_t us);

#endif
