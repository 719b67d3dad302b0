/* Shared by all subcommands: exit statuses, messages, the entries of the dispatch table. */
#ifndef DLOCK_CLI_H
#define DLOCK_CLI_H

#include <dlock/dlock.h>

/* Exit statuses: those of sysexits(3) and of the shell where they fit. docs/man/dlock.1 explains them. */
enum status {
    STATUS_OK = 0,
    STATUS_FREE = 1,     /* inspect, break: the lock is free */
    STATUS_WEAK = 1,     /* doctor: a setting weakens the locks */
    STATUS_BROKEN = 1,   /* bench: a lock had two holders at once */
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
    const char *help;    /* all of `dlock <name> --help`; NULL: the program that the subcommand runs prints it */
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
extern const struct command command_log;
extern const struct command command_backends;
extern const struct command command_doctor;
extern const struct command command_schema;
extern const struct command command_bench;

/* Writes "dlock: …" and a newline to stderr in one write(), so that lines of several processes do not mix. A line that
 * would have to wait because stderr has no reader is dropped. */
DLOCK_PRINTF(1, 2) void note(const char *format, ...);

/* Returns the advice that follows the text of `errnum` in a message, with a "; " before it: which limit of this process
 * to raise; "" if none has been reached. */
const char *limit_advice(int errnum);

/* Prints that no descriptor could be opened, and why. Returns STATUS_OS. */
int no_descriptor(int errnum);

/* Prints that there is no memory. Returns STATUS_OS. */
int no_memory(void);

/* Prints why the arguments of `command` are wrong and where the help is. Returns STATUS_USAGE. */
DLOCK_PRINTF(2, 3) int usage_error(const struct command *command, const char *format, ...);

/* As usage_error, for an option that getopt_long(), called with `longs`, refused by returning `refusal` ('?' or ':');
 * opterr must be 0. Never repeats an option's value: it may be a URI with a password. */
struct option;
int option_error(const struct command *command, char **argv, const struct option *longs, int refusal);

/* Prints the help of `command` on stdout. Returns STATUS_OK. */
int print_help(const struct command *command);

/* Returns the exit status for a library error. */
int error_status(int code);

/* Prints the error's message. Returns error_status(). */
int report(const struct dlock_error *err);

/* Opens a client of `uri`, or, if that is NULL, of $DLOCK_URI or "file:". Refuses backends whose locks other processes
 * do not see. Returns STATUS_OK, or prints the error and returns the exit status. */
int open_client(const char *uri, dlock_client **client);
int open_client_with(const char *uri, const struct dlock_client_options *options, dlock_client **client);

/* Returns 0, or DLOCK_EINVAL with a message if the backend's locks are PRIVATE and exclude no other process. */
int refuse_private(dlock_client *client, struct dlock_error *err);

/* Returns `uri`; if that is NULL, $DLOCK_URI; if that is unset or empty, "file:". */
const char *uri_or_default(const char *uri);

/* Writes the member "capabilities": the words for these DLOCK_CAP_… bits. */
struct json;
void json_capabilities(struct json *json, uint32_t caps);

/* Writes the `words`, an array that NULL ends, as "a, b, c"; leaves out words that do not fit. */
void word_list(char *list, size_t size, const char *const *words);

/* Reads a whole number from `least` to `max`. False if `text` is none. */
bool read_number(const char *text, long least, long max, long *number);

/* streams.c. Opens /dev/null for each standard stream that is closed when this program starts; otherwise a connection's
 * descriptor could become standard error. The replacement of standard output refuses writes, so that a ticket that
 * cannot be printed is an error. The replacements are close-on-exec: a command that we run inherits the streams as our
 * caller left them. */
void fill_streams(void);

/* Flushes standard output. Returns `status`, or STATUS_IO when that fails. */
int finish_streams(int status);

/* Replaces standard input and output by /dev/null, so that a reader of a pipe sees its end before this process ends. */
void leave_streams(void);

#endif
