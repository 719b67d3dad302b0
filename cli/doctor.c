/* doctor checks the server's settings; schema prints what a server needs before its first use. */
#include "cli.h"
#include "text.h"

#include <dlock/backend.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

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

static int diagnose(dlock_client *client, bool as_json) {
    struct diagnosis all = {0};
    struct dlock_error err = {0, ""};
    int status = dlock_check(client, keep, &all, &err) == 0 ? STATUS_OK : report(&err);
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
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    const char *uri = NULL;
    bool as_json = false;
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":b:h", longs, NULL)) != -1;) {
        switch (c) {
        case 'b': uri = optarg; break;
        case 'j': as_json = true; break;
        case 'h': return print_help(&command_doctor);
        default: return option_error(&command_doctor, argv, longs, c);
        }
    }
    if (argc - optind > (uri ? 0 : 1)) return usage_error(&command_doctor, "doctor takes one URI");
    if (optind < argc) uri = argv[optind];
    dlock_client *client;
    struct dlock_error err = {0, ""};
    if (dlock_open(uri_or_default(uri), NULL, &client, &err) != 0) return report(&err);
    int status = diagnose(client, as_json);
    dlock_close(client);
    return status;
}

const struct command command_doctor = {
    "doctor", "check the server's settings",
    "Usage: dlock doctor [--json] [-b URI | URI]\n\n"
    "Connects to the lock server, changes nothing, and says which of its settings are fine for locks, which weaken "
    "them,\nand what to set instead.\n\n"
    "  -b, --backend URI  the lock server; default $DLOCK_URI, then file:\n"
    "      --json         print JSON\n"
    "  -h, --help         show this\n\n"
    "Exit status: 0 all is fine, 1 something weakens the locks, 64 wrong usage, 69 the server cannot be used, or its\n"
    "backend has nothing to check.\n",
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
    "Prints the script that an administrator runs on a server of this kind before its first use, as in\n"
    "`dlock schema postgresql | psql DATABASE`. If no script is needed it prints nothing, and says so on standard\n"
    "error. `dlock backends` shows the backends.\n\n"
    "  -h, --help  show this\n\n"
    "Exit status: 0, 64 wrong usage, including an unknown backend, 69 the backend cannot be loaded.\n",
    schema_main};
