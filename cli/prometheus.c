#include "prometheus.h"

#include "text.h"

#include <dlock/backend.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

char *label_text(const char *text) {
    char *clean = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&clean, &size);
    if (!out) return NULL;
    clean_text(out, text);
    if (fclose(out) == 0) return clean;
    free(clean);
    return NULL;
}

char *server_label(const char *uri, struct dlock_error *err) {
    size_t size = strlen(uri) + 1;
    char *shown = malloc(size), *label = NULL;
    int rc = shown ? dlock_uri_without_secrets(uri, shown, size, err) : DLOCK_ENOMEM;
    if (rc == 0) label = label_text(shown);
    free(shown);
    if (!label && (rc == 0 || !shown)) dlock_fail(err, DLOCK_ENOMEM, "%s", dlock_strerror(DLOCK_ENOMEM));
    return label;
}

void prometheus_family(FILE *out, const char *family, const char *type, const char *help) {
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", family, help, family, type);
}

static void put_labels(FILE *out, const struct label *labels) {
    char before = '{';
    if (!labels || !labels->name) return;
    for (; labels->name; labels++, before = ',') {
        fprintf(out, "%c%s=\"", before, labels->name);
        for (const char *at = labels->value; *at; at++) {
            if (*at == '"' || *at == '\\') fputc('\\', out);
            fputc(*at, out);
        }
        fputc('"', out);
    }
    fputc('}', out);
}

void prometheus_key(FILE *out, const char *sample, const struct label *labels) {
    fputs(sample, out);
    put_labels(out, labels);
    fputc(' ', out);
}

static void put_sample(FILE *out, const char *sample, const struct label *labels, const char *value) {
    prometheus_key(out, sample, labels);
    fprintf(out, "%s\n", value);
}

void prometheus_number(FILE *out, const char *sample, const struct label *labels, uint64_t number) {
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, number);
    put_sample(out, sample, labels, text);
}

void prometheus_seconds(FILE *out, const char *sample, const struct label *labels, int64_t us) {
    char text[SECONDS_MAX];
    seconds_text(text, us);
    put_sample(out, sample, labels, text);
}

void prometheus_infinite(FILE *out, const char *sample, const struct label *labels) {
    put_sample(out, sample, labels, "+Inf");
}

void seconds_text(char text[SECONDS_MAX], int64_t us) {
    uint64_t size = us < 0 ? -(uint64_t)us : (uint64_t)us;
    int n = snprintf(text, SECONDS_MAX, "%s%" PRIu64 ".%06" PRIu64, us < 0 ? "-" : "", size / 1000000, size % 1000000);
    while (text[n - 1] == '0') n--;
    if (text[n - 1] == '.') n--;
    text[n] = '\0';
}
