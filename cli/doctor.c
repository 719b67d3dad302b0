/* doctor checks the server's settings; schema prints what a server needs before its first use. */
#include "cli.h"
#include "text.h"

#include <dlock/backend.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* ---- doctor ------------------------------------------------------------------------------------------------------ */

struct kept {
    enum dlock_health health;
    char *what, *advice; /* advice: NULL when fine */
};

/* All findings. They are collected before the first is printed, so that a check that fails half way prints nothing. */
struct diagnosis {
    struct kept *items;
    size_t n, capacity;
    bool weak;
    bool failed; /* out of memory */
};

static int keep(const struct dlock_finding *finding, void *arg) {
    struct diagnosis *all = arg;
    if (all->n == all->capacity) {
        size_t more = all->capacity ? 2 * all->capacity : 16;
        struct kept *items = realloc(all->items, more * sizeof *items);
        if (!items) return all->failed = true;
        all->items = items;
        all->capacity = more;
    }
    struct kept *kept = &all->items[all->n];
    kept->health = finding->health;
    kept->what = strdup(finding->what);
    kept->advice = finding->advice ? strdup(finding->advice) : NULL;
    all->n++;
    if (finding->health != DLOCK_FINE) all->weak = true;
    all->failed = !kept->what || (finding->advice && !kept->advice);
    return all->failed;
}

static void forget(struct diagnosis *all) {
    for (size_t i = 0; i < all->n; i++) {
        free(all->items[i].what);
        free(all->items[i].advice);
    }
    free(all->items);
}

static const char *health_word(enum dlock_health health) {
    return health == DLOCK_FINE ? "fine" : "weak";
}

static void print_json(const struct diagnosis *all, const struct dlock_backend_info *backend) {
    struct json json = {.out = stdout};
    json_begin(&json, NULL, '{');
    json_string(&json, "backend", backend->name);
    json_capabilities(&json, backend->caps);
    json_string(&json, "health", health_word(all->weak ? DLOCK_WEAK : DLOCK_FINE));
    json_begin(&json, "findings", '[');
    for (size_t i = 0; i < all->n; i++) {
        json_begin(&json, NULL, '{');
        json_string(&json, "health", health_word(all->items[i].health));
        json_string(&json, "what", all->items[i].what);
        json_string(&json, "advice", all->items[i].advice);
        json_end(&json, '}');
    }
    json_end(&json, ']');
    json_end(&json, '}');
    json_newline(&json);
}

static bool print_lines(const struct diagnosis *all) {
    struct table table = {.columns = 2};
    for (size_t i = 0; i < all->n; i++) {
        const struct kept *kept = &all->items[i];
        table_add(&table, (const char *const[]){health_word(kept->health), kept->what});
        if (kept->advice) table_add(&table, (const char *const[]){"", kept->advice});
    }
    bool printed = !table.failed;
    table_print(&table, stdout);
    return printed;
}

enum { TRY_LEASE_MS = 10000 }; /* no lease may be longer than the quarantine */

/* Acquires and releases a lock of our own. Returns the error: what no program that waits for a lock would be told. */
static int try_lock(dlock_client *client, const char *name, struct dlock_error *err) {
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    dlock_lock *lock = NULL;
    int64_t quarantine_ms = dlock_client_quarantine_ms(client);
    if (quarantine_ms > 0) options.lease_ms = quarantine_ms < TRY_LEASE_MS ? quarantine_ms : TRY_LEASE_MS;
    int rc = dlock_new(client, name, &options, &lock, err);
    if (rc == 0) rc = dlock_acquire(lock, 0, err);
    if (rc == 0) rc = dlock_release(lock, err);
    dlock_free(lock);
    return rc;
}

/* Reports whether a lock can be had at all, whatever the settings say. A quarantine is reported already. */
static void report_try(dlock_client *client, struct diagnosis *all) {
    char name[64], what[sizeof((struct dlock_error *)0)->message + 64];
    uint64_t number = 0;
    struct dlock_error err = {0, ""};
    (void)!getrandom(&number, sizeof number, 0);
    snprintf(name, sizeof name, "dlock:doctor:%016" PRIx64, number);
    int rc = try_lock(client, name, &err);
    if (rc == DLOCK_ENOTREADY) return;
    snprintf(what, sizeof what,
             rc == 0 ? "granted and released the lock \"%s\"" : "does not grant and release locks: %s",
             rc == 0 ? name : err.message);
    const struct dlock_finding finding = {sizeof finding, rc == 0 ? DLOCK_FINE : DLOCK_WEAK, what,
                                          rc == 0 ? NULL : "no program gets a lock as long as this is so"};
    keep(&finding, all);
}

static int diagnose(dlock_client *client, bool as_json, bool no_try) {
    struct diagnosis all = {0};
    struct dlock_error err = {0, ""};
    int status = dlock_check(client, keep, &all, &err) == 0 ? STATUS_OK : report(&err);
    if (status == STATUS_OK && !all.failed && !no_try) report_try(client, &all);
    if (status == STATUS_OK && !all.failed) {
        if (as_json)
            print_json(&all, dlock_client_backend(client));
        else
            all.failed = !print_lines(&all);
    }
    if (status == STATUS_OK && all.weak) status = STATUS_WEAK;
    if (all.failed) status = no_memory();
    forget(&all);
    return status;
}

static int doctor_main(int argc, char **argv) {
    static const struct option longs[] = {
        {"backend", required_argument, NULL, 'b'},
        {"json", no_argument, NULL, 'j'},
        {"no-try", no_argument, NULL, 'T'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    const char *uri = NULL;
    bool as_json = false, no_try = false;
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":b:h", longs, NULL)) != -1;) {
        switch (c) {
        case 'b': uri = optarg; break;
        case 'j': as_json = true; break;
        case 'T': no_try = true; break;
        case 'h': return print_help(&command_doctor);
        default: return option_error(&command_doctor, argv, longs, c);
        }
    }
    if (argc - optind > (uri ? 0 : 1)) return usage_error(&command_doctor, "doctor takes one URI");
    if (optind < argc) uri = argv[optind];
    dlock_client *client;
    struct dlock_error err = {0, ""};
    if (dlock_open(uri_or_default(uri), NULL, &client, &err) != 0) return report(&err);
    int status = diagnose(client, as_json, no_try);
    dlock_close(client);
    return status;
}

const struct command command_doctor = {
    "doctor", "check the server's settings",
    "Usage: dlock doctor [--json] [--no-try] [-b URI | URI]\n\n"
    "Connects to the lock server, and says which of its settings are fine for locks, which weaken them, and what to "
    "set\n"
    "instead. At the end it acquires and releases a lock of its own, dlock:doctor:RANDOM.\n\n"
    "  -b, --backend URI  the lock server; default $DLOCK_URI, then file:\n"
    "      --json         print JSON\n"
    "      --no-try       acquire nothing: change nothing on the server\n"
    "  -h, --help         show this\n\n"
    "Exit status: 0 all is fine, 1 something weakens the locks, 64 wrong usage, 69 the server cannot be used, or its\n"
    "backend has nothing to check.\n\n"
    "Examples:\n"
    "  dlock doctor redis://locks.example\n"
    "  dlock doctor --no-try --json | jq -r .health\n",
    doctor_main};

/* ---- schema ------------------------------------------------------------------------------------------------------ */

struct search {
    const char *word; /* a backend's name, or one of its schemes */
    const struct dlock_backend_info *found;
    const char *known[64];
    size_t n;
};

static int search_backend(const struct dlock_backend_info *info, void *arg) {
    struct search *search = arg;
    if (search->n < sizeof search->known / sizeof *search->known - 1) search->known[search->n++] = info->name;
    if (strcmp(info->name, search->word) == 0) search->found = info;
    for (const char *const *scheme = info->schemes; scheme && *scheme; scheme++)
        if (!search->found && strcmp(*scheme, search->word) == 0) search->found = info;
    return 0;
}

static int print_schema(const struct dlock_backend_info *info) {
    if (info->error) {
        note("backend %s cannot be loaded: %s", info->name, info->error);
        return STATUS_UNAVAILABLE;
    }
    if (info->schema)
        fputs(info->schema, stdout);
    else
        note("backend %s needs nothing on its server", info->name);
    return STATUS_OK;
}

static int schema_main(int argc, char **argv) {
    static const struct option longs[] = {{"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":h", longs, NULL)) != -1;) {
        if (c == 'h') return print_help(&command_schema);
        return option_error(&command_schema, argv, longs, c);
    }
    if (optind == argc) return usage_error(&command_schema, "BACKEND is missing");
    if (argc - optind > 1) return usage_error(&command_schema, "schema takes one backend");
    struct search search = {.word = argv[optind]};
    struct dlock_error err = {0, ""};
    if (dlock_backends(search_backend, &search, &err) != 0) return report(&err);
    if (search.found) return print_schema(search.found);
    /* The messages do not repeat the word: it may be a URI with a password. */
    char list[400], guess[80];
    if (dlock_guess(guess, sizeof guess, search.word, search.known))
        return usage_error(&command_schema, "there is no backend of that name%s", guess);
    word_list(list, sizeof list, search.known);
    return usage_error(&command_schema, "there is no backend of that name; there are: %s", list);
}

const struct command command_schema = {
    "schema", "print the objects that a server needs before its first use",
    "Usage: dlock schema BACKEND\n\n"
    "Prints the script that an administrator runs on a server of this kind before its first use. If no script is "
    "needed it prints nothing, and says so on standard\n"
    "error. `dlock backends` shows the backends.\n\n"
    "  -h, --help  show this\n\n"
    "Exit status: 0, 64 wrong usage, including an unknown backend, 69 the backend cannot be loaded.\n\n"
    "Examples:\n"
    "  dlock schema postgresql | psql DATABASE\n"
    "  dlock schema mysql | mysql DATABASE\n",
    schema_main};
