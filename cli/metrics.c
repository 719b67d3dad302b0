/* metrics: prints the locks of a server for Prometheus, or serves them. */
#include "cli.h"
#include "http.h"
#include "prometheus.h"
#include "subject.h"

#include <dlock/backend.h>

#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The figures to print. The holders are sorted by name, and their names are valid label texts. */
struct metrics {
    FILE *out;
    char *server;
    struct holders holders;
    const struct subject *subject;
    bool queues; /* the server knows who waits */
};

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Orders holders by name; then by the labels that distinguish the samples of dlock_lock_holders. */
static int compare(const void *left, const void *right) {
    const struct dlock_info *a = left, *b = right;
    int order = strcmp(a->name, b->name);
    if (order == 0) order = (int)a->mode - (int)b->mode;
    if (order == 0) order = strcmp(a->host, b->host);
    return order ? order : strcmp(a->label, b->label);
}

/* ---- samples per lock, which may have several holders ------------------------------------------------------------ */

static size_t end_of_lock(const struct holders *holders, size_t begin) {
    size_t end = begin + 1;
    while (end < holders->n && strcmp(holders->items[end].name, holders->items[begin].name) == 0) end++;
    return end;
}

/* Prints the samples of `family` for one lock, whose holders are those from `begin` up to `end`. */
typedef void each_lock(const struct metrics *metrics, const char *family, const struct label *labels,
                       const struct dlock_info *begin, const struct dlock_info *end);

static void for_each_lock(const struct metrics *metrics, const char *family, each_lock *each) {
    const struct holders *holders = &metrics->holders;
    for (size_t begin = 0, end; begin < holders->n; begin = end) {
        end = end_of_lock(holders, begin);
        const struct label labels[] = {{"server", metrics->server}, {"name", holders->items[begin].name}, {NULL, NULL}};
        each(metrics, family, labels, &holders->items[begin], &holders->items[end]);
    }
}

static void gauge(const struct metrics *metrics, const char *family, const char *help, each_lock *each) {
    prometheus_family(metrics->out, family, "gauge", help);
    for_each_lock(metrics, family, each);
}

static void put_held(const struct metrics *metrics, const char *family, const struct label *labels,
                     const struct dlock_info *begin, const struct dlock_info *end) {
    (void)begin;
    (void)end;
    prometheus_number(metrics->out, family, labels, 1);
}

static void put_holders(const struct metrics *metrics, const char *family, const struct label *labels,
                        const struct dlock_info *begin, const struct dlock_info *end) {
    for (const struct dlock_info *from = begin; from < end;) {
        const struct label more[] = {
            labels[0],   labels[1], {"mode", mode_word(from->mode)}, {"host", from->host}, {"label", from->label},
            {NULL, NULL}};
        const struct dlock_info *alike = from;
        while (from < end && compare(alike, from) == 0) from++;
        prometheus_number(metrics->out, family, more, (uint64_t)(from - alike));
    }
}

static void put_held_for(const struct metrics *metrics, const char *family, const struct label *labels,
                         const struct dlock_info *begin, const struct dlock_info *end) {
    int64_t longest = -1;
    for (; begin < end; begin++)
        if (begin->held_ms > longest) longest = begin->held_ms;
    if (longest >= 0 && longest <= INT64_MAX / 1000) prometheus_seconds(metrics->out, family, labels, longest * 1000);
}

static void put_waiters(const struct metrics *metrics, const char *family, const struct label *labels,
                        const struct dlock_info *begin, const struct dlock_info *end) {
    uint32_t most = 0;
    for (; begin < end; begin++)
        if (begin->waiters > most) most = begin->waiters;
    prometheus_number(metrics->out, family, labels, most);
}

static void put_limit(const struct metrics *metrics, const char *family, const struct label *labels,
                      const struct dlock_info *begin, const struct dlock_info *end) {
    (void)end;
    if (begin->mode == DLOCK_PERMIT) prometheus_number(metrics->out, family, labels, begin->limit);
}

static void put_remaining(const struct metrics *metrics, const char *family, const struct label *labels,
                          const struct dlock_info *begin, const struct dlock_info *end) {
    int64_t least = -1;
    for (; begin < end; begin++)
        if (begin->remaining_ms >= 0 && (least < 0 || begin->remaining_ms < least)) least = begin->remaining_ms;
    if (least == DLOCK_FOREVER)
        prometheus_infinite(metrics->out, family, labels);
    else if (least >= 0 && least <= INT64_MAX / 1000)
        prometheus_seconds(metrics->out, family, labels, least * 1000);
}

static void put_fence(const struct metrics *metrics, const char *family, const struct label *labels,
                      const struct dlock_info *begin, const struct dlock_info *end) {
    uint64_t greatest = 0;
    for (; begin < end; begin++)
        if (begin->fence > greatest) greatest = begin->fence;
    if (greatest) prometheus_number(metrics->out, family, labels, greatest);
}

/* ---- the report -------------------------------------------------------------------------------------------------- */

/* True if one of the first `n` names has this text in its label: labels do not show every byte of a name. */
static bool is_shown(const struct metrics *metrics, size_t n, const char *text) {
    bool shown = false;
    for (size_t i = 0; i < n && !shown; i++) {
        char *earlier = label_text(metrics->subject->names[i]);
        shown = earlier && strcmp(earlier, text) == 0;
        free(earlier);
    }
    return shown;
}

static void put_free(const struct metrics *metrics, size_t n) {
    char *text = label_text(metrics->subject->names[n]);
    bool done = !text || is_shown(metrics, n, text);
    for (size_t i = 0; i < metrics->holders.n && !done; i++) done = strcmp(metrics->holders.items[i].name, text) == 0;
    const struct label labels[] = {{"server", metrics->server}, {"name", text}, {NULL, NULL}};
    if (!done) prometheus_number(metrics->out, "dlock_lock_held", labels, 0);
    free(text);
}

static void put_locks(const struct metrics *metrics) {
    gauge(metrics, "dlock_lock_held", "Whether somebody holds the lock.", put_held);
    for (size_t i = 0; i < metrics->subject->n; i++) put_free(metrics, i);
    gauge(metrics, "dlock_lock_holders", "Holders of the lock, by mode, host and label (empty: not known).",
          put_holders);
    gauge(metrics, "dlock_lock_held_seconds", "For how long its oldest holder has had the lock.", put_held_for);
    if (metrics->queues)
        gauge(metrics, "dlock_lock_waiters", "Waiters in the lock's queue at the server.", put_waiters);
    gauge(metrics, "dlock_lock_permits", "Permits of the name, if it is in use as permits.", put_limit);
    gauge(metrics, "dlock_lock_remaining_seconds",
          "Time until the first lease of the lock ends if it is not renewed; +Inf: it ends with its holder.",
          put_remaining);
    gauge(metrics, "dlock_lock_fence",
          "The greatest fence of its holders. It changes with every grant; the size of a step means nothing.",
          put_fence);
}

static void put_server(const struct metrics *metrics, int rc, int64_t took_us) {
    const struct label server[] = {{"server", metrics->server}, {NULL, NULL}};
    uint64_t locks = 0;
    for (size_t begin = 0; begin < metrics->holders.n; begin = end_of_lock(&metrics->holders, begin)) locks++;
    prometheus_family(metrics->out, "dlock_up", "gauge", "Whether the lock server has answered.");
    prometheus_number(metrics->out, "dlock_up", server, rc == 0);
    prometheus_family(metrics->out, "dlock_answer_seconds", "gauge", "Time that the lock server took to answer.");
    prometheus_seconds(metrics->out, "dlock_answer_seconds", server, took_us);
    if (rc != 0) return;
    prometheus_family(metrics->out, "dlock_locks_held", "gauge", "How many of the requested locks are held.");
    prometheus_number(metrics->out, "dlock_locks_held", server, locks);
}

static bool clean(const char **text) {
    char *valid = label_text(*text);
    if (!valid) return false;
    free((char *)*text);
    *text = valid;
    return true;
}

/* Replaces what becomes a label by a valid text. Two may become the same, so the holders are sorted again. */
static int clean_labels(struct holders *holders) {
    for (size_t i = 0; i < holders->n; i++) {
        struct dlock_info *item = &holders->items[i];
        if (!clean(&item->name) || !clean(&item->host) || !clean(&item->label)) return DLOCK_ENOMEM;
    }
    if (holders->n > 1) qsort(holders->items, holders->n, sizeof *holders->items, compare);
    return 0;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

/* True if `code` means that the server cannot be reached or cannot answer yet, which is reported as "dlock_up 0".
 * Errors in the arguments are not. */
static bool is_down(int code) {
    return code == DLOCK_EUNAVAILABLE || code == DLOCK_ENOTREADY || code == DLOCK_EAUTH || code == DLOCK_EPROTO;
}

static int ask(struct metrics *metrics, const char *uri, struct dlock_error *err) {
    dlock_client *client = NULL;
    int rc = dlock_open(uri, NULL, &client, err);
    if (rc != 0) return rc;
    rc = refuse_private(client, err);
    if (rc == 0) rc = subject_ask(metrics->subject, client, &metrics->holders, err);
    if (rc == 0 && clean_labels(&metrics->holders) != 0)
        rc = dlock_fail(err, DLOCK_ENOMEM, "%s", dlock_strerror(DLOCK_ENOMEM));
    metrics->queues = dlock_client_backend(client)->caps & DLOCK_CAP_QUEUE;
    dlock_close(client);
    return rc;
}

static int print_metrics(struct metrics *metrics, const char *uri) {
    struct dlock_error err = {0, ""};
    metrics->server = server_label(uri, &err);
    if (!metrics->server) return report(&err);
    int64_t began_us = now_us();
    int rc = ask(metrics, uri, &err);
    if (rc == 0 || is_down(rc)) put_server(metrics, rc, now_us() - began_us);
    if (rc == 0) put_locks(metrics);
    holders_free(&metrics->holders);
    metrics->holders = (struct holders){0};
    free(metrics->server);
    return rc == 0 ? STATUS_OK : report(&err);
}

/* What http_serve needs to make a page. */
struct page {
    struct metrics *metrics;
    const char *uri;
};

static bool write_page(FILE *out, void *arg) {
    const struct page *page = arg;
    page->metrics->out = out;
    int status = print_metrics(page->metrics, page->uri);
    return status == STATUS_OK || status == STATUS_UNAVAILABLE; /* which is a sample, too */
}

static int metrics_main(int argc, char **argv) {
    static const struct option longs[] = {
        {"backend", required_argument, NULL, 'b'},
        {"prefix", required_argument, NULL, 'p'},
        {"listen", required_argument, NULL, 'L'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct subject subject = {NULL, NULL, 0};
    const char *uri = NULL, *address = NULL;
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":b:h", longs, NULL)) != -1;) {
        switch (c) {
        case 'b': uri = optarg; break;
        case 'p': subject.prefix = optarg; break;
        case 'L': address = optarg; break;
        case 'h': return print_help(&command_metrics);
        default: return option_error(&command_metrics, argv, longs, c);
        }
    }
    int status = subject_take(&subject, &command_metrics, argc - optind, argv + optind);
    if (status != STATUS_OK) return status;
    struct metrics metrics = {.out = stdout, .subject = &subject};
    if (!address) return print_metrics(&metrics, uri_or_default(uri));
    return http_serve(&command_metrics, address, write_page, &(struct page){&metrics, uri_or_default(uri)});
}

const struct command command_metrics = {
    "metrics", "print the locks of a server for Prometheus",
    "Usage: dlock metrics [-b URI] [--listen ADDRESS] [--prefix PREFIX | NAME…]\n\n"
    "Prints the locks of the server in the text format of Prometheus: which are held, their holders and waiters, and "
    "the remaining time of their leases. With NAMEs, which some servers require, free locks are printed, too.\n\n"
    "  -b, --backend URI    the lock server; default $DLOCK_URI, then file:\n" SUBJECT_HELP
    "      --listen ADDRESS     answer HTTP requests for /metrics at [HOST:]PORT, by default of 127.0.0.1, until "
    "killed\n"
    "  -h, --help           show this\n\n"
    "A server that cannot be reached is also printed as \"dlock_up 0\".\n\n"
    "Exit status: 0, 64 wrong usage, 69 the server cannot be used.\n\n"
    "Examples:\n"
    "  dlock metrics -b redis://locks.example --prefix nightly\n"
    "  dlock metrics -b redis://locks.example --listen 9750\n"
    "  dlock metrics -b memcached://locks.example deploy report\n",
    metrics_main};
