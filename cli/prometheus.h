/* Writes Prometheus' text format, https://prometheus.io/docs/instrumenting/exposition_formats/. All samples of a family
 * must follow its heading. */
#ifndef DLOCK_CLI_PROMETHEUS_H
#define DLOCK_CLI_PROMETHEUS_H

#include <stdint.h>
#include <stdio.h>

struct label {
    const char *name, *value; /* name NULL: no more labels */
};

/* Returns `text` as the value of a label: control characters, and bytes that are not UTF-8, become U+FFFD. Names that
 * differ only in these become equal. The caller frees the result; NULL: out of memory. */
char *label_text(const char *text);

/* Returns the value of the label `server`: the URI without its secrets. The caller frees it; NULL: `err` says why. */
struct dlock_error;
char *server_label(const char *uri, struct dlock_error *err);

/* Writes the heading of a family, its HELP and TYPE lines. */
void prometheus_family(FILE *out, const char *family, const char *type, const char *help);

/* Each writes one sample, a line. `labels` NULL: none. */
void prometheus_number(FILE *out, const char *sample, const struct label *labels, uint64_t number);
void prometheus_seconds(FILE *out, const char *sample, const struct label *labels, int64_t us); /* may be negative */
void prometheus_infinite(FILE *out, const char *sample, const struct label *labels);

/* Writes the beginning of a sample's line, up to the value. */
void prometheus_key(FILE *out, const char *sample, const struct label *labels);

/* Writes `us` as seconds without trailing zeros: "0.0001", "12". Also used for the label `le` of histograms. */
enum { SECONDS_MAX = 32 };
void seconds_text(char text[SECONDS_MAX], int64_t us);

#endif
