/* dlock: one lock command for any coordination server.
 *
 * SPDX-License-Identifier: MIT
 */
#include "cli.h"

#include <dlock/backend.h>

#include <stdio.h>
#include <string.h>

static const struct command *const commands[] = {
    &command_run,    &command_acquire, &command_renew, &command_release, &command_inspect,
    &command_list,   &command_break,   &command_top,   &command_metrics, &command_backends,
    &command_doctor, &command_schema,  &command_bench,
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static const struct command *find_command(const char *name) {
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i]->name, name) == 0) return commands[i];
    return NULL;
}

static void print_overview(FILE *out) {
    fputs("Usage: dlock COMMAND [OPTION…] …\n\n"
          "Locks on any coordination server: files, Redis, PostgreSQL, MySQL, ZooKeeper,\n"
          "etcd, memcached, and any other server with a backend.\n\nCommands:\n",
          out);
    for (size_t i = 0; i < N_COMMANDS; i++) fprintf(out, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
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
    for (size_t i = 0; i < N_COMMANDS; i++) known[i] = commands[i]->name;
    if (!dlock_guess(guess, sizeof guess, word, known)) word_list(list, sizeof list, known);
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
