/* inspect, list and break: show who holds locks, and take a lock away. */
#include "cli.h"
#include "holders.h"
#include "text.h"

#include <getopt.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The options and the operand of each of the three commands. */
struct look {
    const char *uri;
    bool json, wide, watch, queue;
    const char *operand; /* the name, or the prefix */
};

enum operand { NAME_NEEDED, NAME_OPTIONAL };

/* The first options are those of `inspect` only, then those of commands that print a table. */
static const struct option longs[] = {
    {"watch", no_argument, NULL, 'w'},
    {"waiters", no_argument, NULL, 'q'},
    {"wide", no_argument, NULL, 'W'},
    {"backend", required_argument, NULL, 'b'},
    {"json", no_argument, NULL, 'j'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};
static const struct option *const of_inspect = longs, *const of_list = longs + 2, *const of_break = longs + 3;

/* Asks the server and prints the answer. Returns the exit status. */
typedef int look_ask(const struct look *look, dlock_client *client);

/* Runs one of the three commands: reads the options, opens the client, calls `ask`. Returns the exit status. */
static int look_at(const struct command *command, int argc, char **argv, const struct option *options,
                   enum operand operand, look_ask *ask) {
    struct look look = {0};
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":b:h", options, NULL)) != -1;) {
        switch (c) {
        case 'b': look.uri = optarg; break;
        case 'j': look.json = true; break;
        case 'W': look.wide = true; break;
        case 'w': look.watch = true; break;
        case 'q': look.queue = true; break;
        case 'h': return print_help(command);
        default: return option_error(command, argv, options, c);
        }
    }
    if (look.watch && look.queue) return usage_error(command, "give either --watch or --waiters");
    if (argc - optind > 1) return usage_error(command, "%s takes one name", command->name);
    if (optind == argc && operand == NAME_NEEDED) return usage_error(command, "which lock? NAME is missing");
    look.operand = optind < argc ? argv[optind] : "";
    dlock_client *client;
    int status = open_client(look.uri, &client);
    if (status != STATUS_OK) return status;
    status = ask(&look, client);
    dlock_close(client);
    return status;
}

/* Prints "NAME  word", or as JSON {"name": NAME, key: value}. */
static void say_state(const struct look *look, const char *word, const char *key, bool value) {
    if (look->json) {
        struct json json = {.out = stdout};
        json_begin(&json, NULL, '{');
        json_string(&json, "name", look->operand);
        json_bool(&json, key, value);
        json_end(&json, '}');
        json_newline(&json);
        return;
    }
    struct table table = {.columns = 2};
    table_add(&table, (const char *const[]){look->operand, word});
    table_print(&table, stdout);
}

/* ---- inspect ----------------------------------------------------------------------------------------------------- */

/* `queue` has the waiters; NULL: they were not asked for. */
static int print_inspection(const struct look *look, const struct holders *holders, const struct holders *queue) {
    if (holders->failed || (queue && queue->failed)) return no_memory();
    if (look->json) {
        struct json json = {.out = stdout};
        json_begin(&json, NULL, '{');
        json_string(&json, "name", look->operand);
        json_bool(&json, "held", holders->n > 0);
        holders_json(holders, &json);
        if (queue) waiters_json(queue, &json);
        json_end(&json, '}');
        json_newline(&json);
    } else {
        if (holders->n == 0)
            say_state(look, "free", "held", false);
        else if (holders_table(holders, look->wide) != STATUS_OK)
            return no_memory();
        if (queue && queue->n > 0) puts("");
        if (queue && queue->n > 0 && waiters_table(queue, look->wide) != STATUS_OK) return no_memory();
    }
    return holders->n ? STATUS_OK : STATUS_FREE;
}

enum { WATCH_MS = 500 };

/* True if the holders are the same. Their leases and their waiters change all the time. */
static bool same(const struct holders *a, const struct holders *b) {
    bool equal = a->n == b->n;
    for (size_t i = 0; equal && i < a->n; i++)
        equal = strcmp(a->items[i].token, b->items[i].token) == 0 && a->items[i].fence == b->items[i].fence &&
                a->items[i].mode == b->items[i].mode;
    return equal;
}

/* Prints one line: the time, and what is so from now on. Returns STATUS_OK unless it cannot. */
static int print_change(const struct look *look, const struct holders *holders, const struct dlock_error *err) {
    char when[32], who[HOLDERS_TEXT_MAX], text[600];
    time_t now = time(NULL);
    struct tm local;
    if (look->json && err->code == 0) {
        if (print_inspection(look, holders, NULL) == STATUS_OS) return STATUS_OS;
    } else {
        if (err->code != 0)
            snprintf(text, sizeof text, "no answer: %s", err->message);
        else if (holders->n > 0)
            snprintf(text, sizeof text, "held by %s", holders_text(holders, who));
        else
            snprintf(text, sizeof text, "free");
        mask_text(text);
        strftime(when, sizeof when, "%F %T", localtime_r(&now, &local));
        fprintf(look->json ? stderr : stdout, "%s  %s\n", when, text);
    }
    return fflush(stdout) == 0 ? STATUS_OK : STATUS_OS;
}

/* Prints each change, until it is ended by a signal or the server refuses. */
static int watch(const struct look *look, dlock_client *client) {
    struct holders last = {0}, now = {0};
    int code = 1; /* of the last line: none yet */
    for (int status; true; poll(NULL, 0, WATCH_MS)) {
        struct dlock_error err = {0, ""};
        int result = dlock_inspect(client, look->operand, holders_keep, &now, &err);
        if (now.failed) return no_memory();
        if (result != 0 && result != DLOCK_EUNAVAILABLE) return report(&err);
        holders_sort(&now);
        if (result != code || (result == 0 && !same(&last, &now))) {
            if ((status = print_change(look, &now, &err)) != STATUS_OK) return status;
            code = result;
        }
        holders_free(result == 0 ? &last : &now);
        if (result == 0) last = now;
        now = (struct holders){0};
    }
}

static int ask_inspect(const struct look *look, dlock_client *client) {
    struct holders holders = {0}, queue = {0};
    struct dlock_error err = {0, ""};
    if (look->watch) return watch(look, client);
    int result = dlock_inspect(client, look->operand, holders_keep, &holders, &err);
    if (result == 0 && look->queue) result = dlock_waiters(client, look->operand, holders_keep, &queue, &err);
    holders_sort(&holders);
    int status = result == 0 ? print_inspection(look, &holders, look->queue ? &queue : NULL) : report(&err);
    holders_free(&holders);
    holders_free(&queue);
    return status;
}

static int inspect_main(int argc, char **argv) {
    return look_at(&command_inspect, argc, argv, of_inspect, NAME_NEEDED, ask_inspect);
}

/* ---- list -------------------------------------------------------------------------------------------------------- */

static int print_list(const struct look *look, struct holders *holders) {
    if (holders->failed) return no_memory();
    if (look->json) {
        struct json json = {.out = stdout};
        json_begin(&json, NULL, '{');
        json_string(&json, "prefix", look->operand);
        holders_json(holders, &json);
        json_end(&json, '}');
        json_newline(&json);
    } else if (holders->n && holders_table(holders, look->wide) != STATUS_OK) {
        return no_memory();
    } else if (holders->n == 0 && isatty(STDOUT_FILENO)) { /* a script gets no lines instead */
        printf(*look->operand ? "no lock is held whose name begins with \"%s\"\n" : "no lock is held\n", look->operand);
    }
    return STATUS_OK;
}

static int ask_list(const struct look *look, dlock_client *client) {
    struct holders holders = {0};
    struct dlock_error err = {0, ""};
    int result = dlock_list(client, look->operand, holders_keep, &holders, &err);
    holders_sort(&holders);
    int status = result == 0 ? print_list(look, &holders) : report(&err);
    holders_free(&holders);
    return status;
}

static int list_main(int argc, char **argv) {
    return look_at(&command_list, argc, argv, of_list, NAME_OPTIONAL, ask_list);
}

/* ---- break ------------------------------------------------------------------------------------------------------- */

static int ask_break(const struct look *look, dlock_client *client) {
    struct dlock_error err = {0, ""};
    int result = dlock_break(client, look->operand, &err);
    if (result != 0 && result != DLOCK_EOWNER) return report(&err);
    say_state(look, result == 0 ? "broken" : "free", "broken", result == 0);
    return result == 0 ? STATUS_OK : STATUS_FREE;
}

static int break_main(int argc, char **argv) {
    return look_at(&command_break, argc, argv, of_break, NAME_NEEDED, ask_break);
}

/* ---- the table's entries ----------------------------------------------------------------------------------------- */

#define COMMON_OPTIONS                                                       \
    "  -b, --backend URI  the lock server; default $DLOCK_URI, then file:\n" \
    "      --json         print JSON\n"                                      \
    "  -h, --help         show this\n"
#define WIDE_OPTION "      --wide         also show fences and tokens\n"

const struct command command_inspect = {
    "inspect", "show who holds a lock",
    "Usage: dlock inspect [-b URI] [--wide] [--json] [--waiters | --watch] NAME\n\n"
    "Shows who holds the lock NAME, and since when.\n\n" WIDE_OPTION
    "      --waiters      also show who waits in the server's queue, in its order\n"
    "      --watch        print a line now and at each change, without end\n" COMMON_OPTIONS
    "\nExit status: 0 it is held, 1 it is free, 64 wrong usage, 69 the server cannot be used.\n\n"
    "Examples:\n"
    "  dlock inspect -b redis://locks.example deploy\n"
    "  dlock inspect --json deploy | jq -r '.holders[].host'\n",
    inspect_main};

const struct command command_list = {
    "list", "show the locks that are held",
    "Usage: dlock list [-b URI] [--wide] [--json] [PREFIX]\n\n"
    "Shows every held lock whose name begins with PREFIX.\n\n" WIDE_OPTION COMMON_OPTIONS
    "\nExit status: 0, 64 wrong usage, 69 the server cannot be used.\n\n"
    "Examples:\n"
    "  dlock list -b redis://locks.example nightly\n"
    "  dlock list --json | jq -r '.holders[].name'\n",
    list_main};

const struct command command_break = {
    "break", "take a lock away from its holder",
    "Usage: dlock break [-b URI] [--json] NAME\n\n"
    "Takes the lock NAME away from its holder, which may still be working for a while: see the man "
    "page.\n\n" COMMON_OPTIONS
    "\nExit status: 0 taken away, 1 nobody held it, 64 wrong usage, 69 the server cannot be used.\n\n"
    "Examples:\n"
    "  dlock break deploy\n"
    "  dlock break -b redis://locks.example --json deploy\n",
    break_main};
