/* What the parts of the command share: exit statuses, messages, the dispatch table's entries. */
#ifndef DLOCK_CLI_H
#define DLOCK_CLI_H

#include <dlock/dlock.h>

/* Exit statuses, those of sysexits(3) and of the shell where they fit. docs/man/dlock.1 explains them. */
enum status {
    STATUS_OK = 0,
    STATUS_FREE = 1,     /* inspect, break: nobody holds it */
    STATUS_WEAK = 1,     /* doctor: something weakens the locks */
    STATUS_BROKEN = 1,   /* bench: two held one lock */
    STATUS_CONFLICT = 1, /* run, acquire: busy or timed out, unless -E says otherwise */
    STATUS_USAGE = 64,
    STATUS_UNAVAILABLE = 69,
    STATUS_SOFTWARE = 70,
    STATUS_OS = 71,
    STATUS_IO = 74,
    STATUS_LOST = 75,
    STATUS_NOT_EXECUTABLE = 126,
    STATUS_NOT_FOUND = 127
};

/* One subcommand. argv[0] is its name. */
struct command {
    const char *name;
    const char *summary; /* one line of `dlock --help` */
    const char *help;    /* all of `dlock <name> --help`; NULL: the program that it runs has it */
    int (*run)(int argc, char **argv);
};

extern const struct command command_run;
extern const struct command command_acquire;
extern const struct command command_renew;
extern const struct command command_release;
extern const struct command command_inspect;
extern const struct command command_list;
extern const struct command command_break;
extern const struct command command_top;
extern const struct command command_metrics;
extern const struct command command_backends;
extern const struct command command_doctor;
extern const struct command command_schema;
extern const struct command command_bench;

/* Writes "dlock: …" and a newline to stderr, at once, so that lines of several processes do not mix. */
DLOCK_PRINTF(1, 2) void note(const char *format, ...);

/* Says why the arguments of `command` are wrong and where the help is. Returns STATUS_USAGE. */
DLOCK_PRINTF(2, 3) int usage_error(const struct command *command, const char *format, ...);

/* The same, for what getopt_long() refused with `refusal` ('?' or ':'); opterr must be 0. Never repeats a value: it may
 * be a URI with a password. */
int option_error(const struct command *command, char **argv, int refusal);

/* Prints the help of `command` on stdout. Returns STATUS_OK. */
int print_help(const struct command *command);

/* The exit status that a library error means. */
int error_status(int code);

/* Says what went wrong; returns error_status(). */
int report(const struct dlock_error *err);

/* Opens a client of `uri`, or of $DLOCK_URI, or of "file:", whose locks other processes see. Returns STATUS_OK, or says
 * what is wrong and returns the exit status. */
int open_client(const char *uri, dlock_client **client);
int open_client_with(const char *uri, const struct dlock_client_options *options, dlock_client **client);

/* Locks that are PRIVATE to this process keep nobody out: EINVAL, and `err` says so. Else 0. */
int refuse_private(dlock_client *client, struct dlock_error *err);

/* The URI to open: `uri`, or $DLOCK_URI, or "file:". */
const char *uri_or_default(const char *uri);

/* Writes the member "capabilities": the words for these DLOCK_CAP_… bits. */
struct json;
void json_capabilities(struct json *json, uint32_t caps);

/* Writes the `words`, NULL at the end, one after the other: "a, b, c"; words that do not fit are left out. */
void word_list(char *list, size_t size, const char *const *words);

/* Reads a whole number from `least` to `max`. */
bool read_number(const char *text, long least, long max, long *number);

/* streams.c. A connection must not become somebody's standard error: fills the gaps. Nothing can be written to a standard
 * output that was closed, so that nobody takes a lost ticket for a delivered one. Close-on-exec, so that a command we run
 * finds them as our caller left them. */
void fill_streams(void);

/* Writes what is left for standard output. Returns `status`, or STATUS_IO when that cannot be done. */
int finish_streams(int status);

/* Lets go of standard input and output, so that a reader behind a pipe sees the end of what was written. */
void leave_streams(void);

#endif
