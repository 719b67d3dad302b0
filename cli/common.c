/* Messages, exit statuses and the client that every command begins with. */
#include "cli.h"
#include "text.h"

#include <dlock/backend.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { READER_LIMIT_MS = 50 }; /* how long a reader of standard error may stop */

/* False if standard error cannot be written, such as a full pipe or a terminal after Ctrl-S. A write() would block
 * then, and keep `dlock run` from killing its command in time. A pipe takes a line whole, as lines are shorter than
 * PIPE_BUF. */
static bool is_read(void) {
    struct pollfd fd = {STDERR_FILENO, POLLOUT, 0};
    return poll(&fd, 1, READER_LIMIT_MS) != 0;
}

DLOCK_PRINTF(1, 0) static void note_args(const char *format, va_list args) {
    char line[1024] = "dlock: ";
    size_t used = strlen(line);
    int more = vsnprintf(line + used, sizeof line - used - 1, format, args);
    if (more < 0) return;
    used = mask_text(line); /* names and tokens from servers could hold control sequences of terminals */
    line[used++] = '\n';
    if (!is_read()) return;
    for (size_t done = 0; done < used;) {
        ssize_t n = write(STDERR_FILENO, line + done, used - done);
        if (n < 0) return; /* there is no other place to report that to */
        done += (size_t)n;
    }
}

void note(const char *format, ...) {
    va_list args;
    va_start(args, format);
    note_args(format, args);
    va_end(args);
}

const char *limit_advice(int errnum) {
    if (errnum == EMFILE) return "; raise the limit (ulimit -n)";
    /* pthread_create() says EAGAIN also if there is no memory for the thread's stack. */
    return errnum == EAGAIN ? "; raise the limit (ulimit -u, ulimit -v)" : "";
}

int no_descriptor(int errnum) {
    note("cannot open a descriptor: %s%s", strerror(errnum), limit_advice(errnum));
    return STATUS_OS;
}

int no_memory(void) {
    note("%s", dlock_strerror(DLOCK_ENOMEM));
    return STATUS_OS;
}

int usage_error(const struct command *command, const char *format, ...) {
    va_list args;
    va_start(args, format);
    note_args(format, args);
    va_end(args);
    note("try 'dlock %s --help'", command->name);
    return STATUS_USAGE;
}

/* Writes into `guess` a suggestion for the mistyped long option `word`, "" if none of `longs` is near. Returns `guess`. */
static const char *nearest_option(const struct option *longs, const char *word, char *guess, size_t size) {
    static const char *const others[] = {"--uri", "--url", "--server", "--host"}; /* of programs for one server */
    char names[48][24];
    const char *words[49];
    size_t n = 0;
    for (; n < 48 && longs[n].name; n++) {
        snprintf(names[n], sizeof names[n], "--%s", longs[n].name);
        words[n] = names[n];
    }
    words[n] = NULL;
    char name[DLOCK_GUESS_MAX] = "";
    size_t length = strcspn(word, "=");
    if (length < sizeof name) snprintf(name, sizeof name, "%.*s", (int)length, word);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(name, others[i]) == 0) snprintf(name, sizeof name, "--backend");
    dlock_guess(guess, size, name, words);
    return guess;
}

/* True if getopt_long() has refused the value in `word`, such as --verbose=x. Otherwise `optopt` is a letter that it has
 * refused: if more letters follow, `word` is the one before. */
static bool has_refused_value(const struct option *longs, const char *word) {
    size_t length = strcspn(word, "=");
    if (strncmp(word, "--", 2) != 0 || word[length] != '=') return false;
    for (; longs->name; longs++)
        if (longs->has_arg == no_argument && longs->val == optopt && strncmp(longs->name, word + 2, length - 2) == 0)
            return true;
    return false;
}

int option_error(const struct command *command, char **argv, const struct option *longs, int refusal) {
    const char *word = argv[optind - 1];
    int length = (int)strcspn(word, "=");
    if (refusal == ':') { /* only the last word lacks a value */
        if (strncmp(word, "--", 2) == 0) return usage_error(command, "option %s needs a value", word);
        return usage_error(command, "option -%c needs a value", optopt);
    }
    if (optopt == 0) {
        char guess[80];
        return usage_error(command, "unknown or ambiguous option %.*s%s", length, word,
                           nearest_option(longs, word, guess, sizeof guess));
    }
    if (has_refused_value(longs, word)) return usage_error(command, "option %.*s takes no value", length, word);
    return usage_error(command, "unknown option -%c%s", optopt, optopt == 'u' ? "; the server is given with -b" : "");
}

int error_status(int code) {
    switch (code) {
    case DLOCK_OK: return STATUS_OK;
    case DLOCK_EBUSY:
    case DLOCK_ETIMEDOUT: return STATUS_CONFLICT;
    case DLOCK_ELOST: return STATUS_LOST;
    case DLOCK_EINVAL: return STATUS_USAGE;
    case DLOCK_ENOTREADY:
    case DLOCK_EUNAVAILABLE:
    case DLOCK_EAUTH:
    case DLOCK_ENOTSUP:
    case DLOCK_EPROTO:
    case DLOCK_ENOBACKEND:
    case DLOCK_EABI: return STATUS_UNAVAILABLE;
    case DLOCK_ENOMEM: return STATUS_OS;
    default: return STATUS_SOFTWARE;
    }
}

int report(const struct dlock_error *err) {
    note("%s", err->message[0] ? err->message : dlock_strerror(err->code));
    return error_status(err->code);
}

int open_client(const char *uri, dlock_client **client) {
    return open_client_with(uri, NULL, client);
}

int open_client_with(const char *uri, const struct dlock_client_options *options, dlock_client **client) {
    struct dlock_error err = {0, ""};
    if (dlock_open(uri_or_default(uri), options, client, &err) != 0) return report(&err);
    if (refuse_private(*client, &err) == 0) return STATUS_OK;
    dlock_close(*client);
    *client = NULL;
    return report(&err);
}

int refuse_private(dlock_client *client, struct dlock_error *err) {
    const struct dlock_backend_info *info = dlock_client_backend(client);
    if (!(info->caps & DLOCK_CAP_PRIVATE)) return 0;
    return dlock_fail(
        err, DLOCK_EINVAL,
        "locks of %s: are visible only to the process that takes them, and would end with this command: name "
        "a server, or file:, with -b or in $DLOCK_URI",
        info->name);
}

const char *uri_or_default(const char *uri) {
    if (uri) return uri; /* even an empty one, which dlock_open() refuses: locks of "file:" exclude only this host */
    uri = getenv("DLOCK_URI");
    return uri && *uri ? uri : "file:";
}

void word_list(char *list, size_t size, const char *const *words) {
    size_t used = 0;
    *list = '\0';
    for (; *words && used + strlen(*words) + 3 <= size; words++)
        used += (size_t)snprintf(list + used, size - used, "%s%s", used ? ", " : "", *words);
}

bool read_number(const char *text, long least, long max, long *number) {
    char *end;
    errno = 0;
    *number = strtol(text, &end, 10);
    return end != text && !*end && !errno && *number >= least && *number <= max;
}
