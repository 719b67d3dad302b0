/* inspect, list and break: show who holds locks, and take a lock away. */
#include "cli.h"
#include "holders.h"
#include "text.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The options and the operand of each of the three commands. */
struct look {
    const char *uri;
    bool json;
    const char *operand; /* the name, or the prefix */
};

enum operand { NAME_NEEDED, NAME_OPTIONAL };

/* Asks the server and prints the answer. Returns the exit status. */
typedef int look_ask(const struct look *look, dlock_client *client);

/* Runs one of the three commands: reads the options, opens the client, calls `ask`. Returns the exit status. */
static int look_at(const struct command *command, int argc, char **argv, enum operand operand, look_ask *ask) {
    static const struct option longs[] = {
        {"backend", required_argument, NULL, 'b'},
        {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct look look = {0};
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":b:h", longs, NULL)) != -1;) {
        switch (c) {
        case 'b': look.uri = optarg; break;
        case 'j': look.json = true; break;
        case 'h': return print_help(command);
        default: return option_error(command, argv, longs, c);
        }
    }
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

static int print_inspection(const struct look *look, struct holders *holders) {
    if (holders->failed) return no_memory();
    if (look->json) {
        struct json json = {.out = stdout};
        json_begin(&json, NULL, '{');
        json_string(&json, "name", look->operand);
        json_bool(&json, "held", holders->n > 0);
        holders_json(holders, &json);
        json_end(&json, '}');
        json_newline(&json);
    } else if (holders->n == 0) {
        say_state(look, "free", "held", false);
    } else if (holders_table(holders) != STATUS_OK) {
        return no_memory();
    }
    return holders->n ? STATUS_OK : STATUS_FREE;
}

static int ask_inspect(const struct look *look, dlock_client *client) {
    struct holders holders = {0};
    struct dlock_error err = {0, ""};
    int result = dlock_inspect(client, look->operand, holders_keep, &holders, &err);
    holders_sort(&holders);
    int status = result == 0 ? print_inspection(look, &holders) : report(&err);
    holders_free(&holders);
    return status;
}

static int inspect_main(int argc, char **argv) {
    return look_at(&command_inspect, argc, argv, NAME_NEEDED, ask_inspect);
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
    } else if (holders->n && holders_table(holders) != STATUS_OK) {
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
    return look_at(&command_list, argc, argv, NAME_OPTIONAL, ask_list);
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
    return look_at(&command_break, argc, argv, NAME_NEEDED, ask_break);
}

/* ---- the table's entries ----------------------------------------------------------------------------------------- */

#define COMMON_OPTIONS                                                       \
    "  -b, --backend URI  the lock server; default $DLOCK_URI, then file:\n" \
    "      --json         print JSON\n"                                      \
    "  -h, --help         show this\n"

const struct command command_inspect = {"inspect", "show who holds a lock",
                                        "Usage: dlock inspect [-b URI] [--json] NAME\n\n"
                                        "Shows who holds the lock NAME.\n\n" COMMON_OPTIONS
                                        "\nExit status: 0 it is held, 1 it is free, 64 wrong usage, 69 "
                                        "the server cannot be used.\n\n"
                                        "Examples:\n"
                                        "  dlock inspect -b redis://locks.example deploy\n"
                                        "  dlock inspect --json deploy | jq -r '.holders[].host'\n",
                                        inspect_main};

const struct command command_list = {"list", "show the locks that are held",
                                     "Usage: dlock list [-b URI] [--json] [PREFIX]\n\n"
                                     "Shows every held lock whose name begins with PREFIX.\n\n" COMMON_OPTIONS
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
