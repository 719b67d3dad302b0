/* dlock: one lock command for any coordination server.
 *
 * SPDX-License-Identifier: MIT
 */
#include "cli.h"

#include <dlock/backend.h>

#include <stdio.h>
#include <string.h>

/* In the order of the overview; `heading` begins a group. */
static const struct {
    const struct command *command;
    const char *heading;
} commands[] = {
    {&command_run, "Use locks"},
    {&command_acquire, NULL},
    {&command_renew, NULL},
    {&command_release, NULL},
    {&command_inspect, "Look at locks"},
    {&command_list, NULL},
    {&command_top, NULL},
    {&command_metrics, NULL},
    {&command_log, NULL},
    {&command_doctor, "Operate"},
    {&command_break, NULL},
    {&command_backends, NULL},
    {&command_schema, NULL},
    {&command_bench, NULL},
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

/* Words of other programs for what is a command here. */
static const char *const synonyms[][2] = {
    {"lock", "run"},     {"exec", "run"},      {"with", "run"},       {"unlock", "release"}, {"free", "release"},
    {"extend", "renew"}, {"refresh", "renew"}, {"status", "inspect"}, {"show", "inspect"},   {"info", "inspect"},
    {"ls", "list"},      {"locks", "list"},    {"watch", "top"},      {"check", "doctor"},   {"ping", "doctor"},
    {"steal", "break"},  {"kill", "break"},    {"init", "schema"},    {"version", "-V"},
};

static const struct command *find_command(const char *name) {
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i].command->name, name) == 0) return commands[i].command;
    return NULL;
}

static void print_overview(FILE *out) {
    fputs("Usage: dlock COMMAND [OPTION…] …\n\n"
          "Locks on any coordination server: files, Redis, PostgreSQL, MySQL, ZooKeeper,\n"
          "etcd, memcached, and any other server with a backend.\n",
          out);
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (commands[i].heading) fprintf(out, "\n%s:\n", commands[i].heading);
        fprintf(out, "  %-10s %s\n", commands[i].command->name, commands[i].command->summary);
    }
    fputs("  help       explain a command: dlock help COMMAND\n\n"
          "  -h, --help     show this\n"
          "  -V, --version  show the version\n\n"
          "The server is that of -b URI, or $DLOCK_URI, or \"file:\".\nMore: man dlock\n",
          out);
}

/* Prints that `word` is no subcommand. Repeats it only if it looks like a word: with mistyped arguments it may be a URI
 * with a password. Returns STATUS_USAGE. */
static int unknown_command(const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyz-";
    if (*word == '-') {
        note("options must follow the command, as in `dlock run -b URI NAME COMMAND`");
        return STATUS_USAGE;
    }
    bool is_word = *word && word[strspn(word, plain)] == '\0';
    const char *known[N_COMMANDS + 2] = {[N_COMMANDS] = "help"};
    char list[256], guess[80];
    for (size_t i = 0; i < N_COMMANDS; i++) known[i] = commands[i].command->name;
    if (!dlock_guess(guess, sizeof guess, word, known)) word_list(list, sizeof list, known);
    for (size_t i = 0; i < sizeof synonyms / sizeof synonyms[0]; i++)
        if (strcmp(synonyms[i][0], word) == 0) snprintf(guess, sizeof guess, "; did you mean \"%s\"?", synonyms[i][1]);
    note("unknown command%s%s%s%s%s", is_word ? " '" : "", is_word ? word : "", is_word ? "'" : "",
         *guess ? guess : "; there are: ", *guess ? "" : list);
    return STATUS_USAGE;
}

static int help(int argc, char **argv) {
    if (argc < 2 || strcmp(argv[1], "help") == 0) {
        print_overview(stdout);
        return STATUS_OK;
    }
    const struct command *command = find_command(argv[1]);
    if (!command) return unknown_command(argv[1]);
    char option[] = "--help", *arguments[] = {argv[1], option, NULL};
    return command->run(2, arguments);
}

static int dispatch(int argc, char **argv) {
    if (argc < 2) {
        print_overview(stderr);
        return STATUS_USAGE;
    }
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) return help(1, argv);
    if (strcmp(word, "help") == 0) return help(argc - 1, argv + 1);
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        printf("dlock %s\n", dlock_version());
        return STATUS_OK;
    }
    const struct command *command = find_command(word);
    return command ? command->run(argc - 1, argv + 1) : unknown_command(word);
}

int main(int argc, char **argv) {
    fill_streams();
    return finish_streams(dispatch(argc, argv));
}
