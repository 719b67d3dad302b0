/* acquire, renew and release: locks for scripts that cannot wrap what they protect into one command. Between these
 * commands no process holds the grant: it lasts for its lease, and belongs to the owner of its ticket. */
#include "lock_options.h"
#include "text.h"
#include "wait.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- acquire ----------------------------------------------------------------------------------------------------- */

struct acquisition {
    struct lock_options wanted;
    bool as_json;
};

/* The values of a grant that have to be read before its export. */
struct known {
    char token[DLOCK_TOKEN_MAX + 1];
    uint64_t fence;
    int64_t remaining_ms;
};

static void print_ticket(const struct acquisition *what, const char *ticket, const struct known *known) {
    if (!what->as_json) {
        puts(ticket);
        return;
    }
    char fence[24];
    struct json json = {.out = stdout};
    snprintf(fence, sizeof fence, "%" PRIu64, known->fence);
    json_begin(&json, NULL, '{');
    json_string(&json, "name", what->wanted.name);
    json_string(&json, "ticket", ticket);
    json_string(&json, "fence", fence);
    json_string(&json, "token", known->token);
    json_number(&json, "remaining_ms", known->remaining_ms);
    json_end(&json, '}');
    json_newline(&json);
}

/* Releases the grant of a ticket that could not be printed: no other process could release it before its lease ends. */
static void take_back(dlock_client *client, const char *ticket) {
    dlock_lock *lock;
    if (dlock_import(client, ticket, NULL, &lock, NULL) != 0) return;
    dlock_release(lock, NULL);
    dlock_free(lock);
}

/* Exports the grant of `lock`, which is held, and prints its ticket. Returns the exit status. */
static int hand_out(const struct acquisition *what, dlock_client *client, dlock_lock *lock) {
    struct dlock_error err = {0, ""};
    char ticket[DLOCK_TICKET_MAX + 1];
    struct known known = {.fence = dlock_fence(lock), .remaining_ms = dlock_remaining_ms(lock)};
    dlock_token(lock, known.token, sizeof known.token, NULL);
    if (dlock_export(lock, ticket, sizeof ticket, &err) != 0) return report(&err);
    print_ticket(what, ticket, &known);
    /* A line-buffered stream has been written already. finish_streams() reports the failure. */
    if (fflush(stdout) != 0 || ferror(stdout)) take_back(client, ticket);
    return STATUS_OK;
}

static int acquire(const struct acquisition *what, dlock_client *client, const struct signals *signals, int *sig) {
    struct dlock_error err = {0, ""};
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    options.flags = DLOCK_FIXED_LEASE;
    dlock_lock *lock;
    int status = lock_options_new(&what->wanted, client, options, &lock);
    if (status != STATUS_OK) return status;
    if (!(dlock_client_backend(client)->caps & DLOCK_CAP_EXPORT)) { /* refuse now, not after a long wait */
        char none[DLOCK_TICKET_MAX + 1];
        dlock_export(lock, none, sizeof none, &err); /* fails, with the message */
        status = report(&err);
    } else {
        status = lock_options_wait(&what->wanted, client, lock, signals, sig, NULL);
        if (status == GO_ON) status = hand_out(what, client, lock);
    }
    dlock_free(lock);
    return status;
}

/* Returns GO_ON, or the status to exit with. */
static int parse_acquire(int argc, char **argv, struct acquisition *what) {
    static const struct option longs[] = {
        LOCK_OPTIONS(LOCK_OPTIONS_LONG),
        {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":" LOCK_OPTIONS_SHORTS "h", longs, NULL)) != -1;) {
        if (c == 'h') return print_help(&command_acquire);
        if (c == '?' || c == ':') return option_error(&command_acquire, argv, longs, c);
        int status = GO_ON;
        if (c == 'j')
            what->as_json = true;
        else
            status = lock_options_take(&what->wanted, &command_acquire, c);
        if (status != GO_ON) return status;
    }
    if (optind == argc) return usage_error(&command_acquire, "which lock? NAME is missing");
    if (argc - optind > 1)
        return usage_error(&command_acquire, "acquire takes one name and no command; dlock run runs a command");
    what->wanted.name = argv[optind];
    return GO_ON;
}

static int acquire_main(int argc, char **argv) {
    struct acquisition what = {.wanted = LOCK_OPTIONS_INIT};
    struct signals signals;
    dlock_client *client;
    int sig = 0;
    int status = parse_acquire(argc, argv, &what);
    if (status != GO_ON) return status;
    signals_begin(&signals);
    struct dlock_client_options options = DLOCK_CLIENT_OPTIONS_INIT;
    options.flags = lock_options_flags(&what.wanted);
    options.label = what.wanted.label;
    status = open_client_with(what.wanted.uri, &options, &client);
    if (status != STATUS_OK) return status;
    status = signals_open(&signals) == 0 ? acquire(&what, client, &signals, &sig) : no_descriptor(errno);
    wait_end();
    dlock_close(client);
    if (sig) signals_die(sig);
    return status;
}

/* ---- renew and release ------------------------------------------------------------------------------------------- */

/* Does the command's work on the grant of a ticket, which `lock` holds. Returns 0 or an error code. */
typedef int ticket_act(dlock_lock *lock, struct dlock_error *err);

/* Returns the ticket: `operand`, or, if that is "-", the first line of standard input, read into `line`. NULL: that has
 * no line, or one too long for a ticket. */
static const char *find_ticket(const char *operand, char *line, int size) {
    if (strcmp(operand, "-") != 0) return operand;
    if (!fgets(line, size, stdin)) return NULL;
    size_t n = strcspn(line, "\r\n");
    if (line[n] == '\0' && !feof(stdin)) return NULL;
    line[n] = '\0';
    return line;
}

/* Runs one of the two commands: reads the options and the ticket, opens the client, imports the grant, calls `act`. */
static int with_ticket(const struct command *command, int argc, char **argv, ticket_act *act) {
    static const struct option longs[] = {
        {"backend", required_argument, NULL, 'b'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    const char *uri = NULL;
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":b:h", longs, NULL)) != -1;) {
        switch (c) {
        case 'b': uri = optarg; break;
        case 'h': return print_help(command);
        default: return option_error(command, argv, longs, c);
        }
    }
    if (argc - optind != 1) return usage_error(command, "%s takes one ticket, or - to read it", command->name);
    char line[DLOCK_TICKET_MAX + 3];
    const char *ticket = find_ticket(argv[optind], line, sizeof line);
    if (!ticket) return usage_error(command, "there is no ticket on standard input");
    struct dlock_error err = {0, ""};
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    options.flags = DLOCK_FIXED_LEASE; /* nothing is renewed after the import, which itself renews the lease */
    dlock_client *client;
    dlock_lock *lock;
    int status = open_client(uri, &client);
    if (status != STATUS_OK) return status;
    if (dlock_import(client, ticket, &options, &lock, &err) == 0) {
        status = act(lock, &err) == 0 ? STATUS_OK : report(&err);
        dlock_free(lock);
    } else {
        status = report(&err);
    }
    dlock_close(client);
    return status;
}

/* Exports the grant again, since the end of this process would release it otherwise. The ticket that was printed before
 * stays valid: it names the same grant. */
static int let_go(dlock_lock *lock, struct dlock_error *err) {
    char same[DLOCK_TICKET_MAX + 1];
    return dlock_export(lock, same, sizeof same, err);
}

static int renew_main(int argc, char **argv) {
    return with_ticket(&command_renew, argc, argv, let_go);
}

static int release_main(int argc, char **argv) {
    return with_ticket(&command_release, argc, argv, dlock_release);
}

/* ---- the table's entries ----------------------------------------------------------------------------------------- */

const struct command command_acquire = {
    "acquire", "take a lock and print a ticket for it",
    "Usage: dlock acquire [OPTION…] NAME\n\n"
    "Acquires the lock NAME, prints a ticket for it, and exits. The lock ends with its lease unless the ticket is\n"
    "renewed; the ticket also releases it. Everybody who has the ticket can release the lock: keep it secret. Servers\n"
    "without \"export\" in `dlock backends` have no tickets, because their locks end with the process. Prefer dlock "
    "run\n"
    "wherever possible.\n\n" LOCK_OPTIONS_HELP
    "  -l, --lease TIME               time after which the lock ends unless the ticket is renewed; default: the URI's\n"
    "                                 lease, then 10s; at most the URI's quarantine on servers that forget locks\n"
    "                                 at a restart\n"
    "      --json                     print JSON: the ticket, the fence and more\n"
    "  -h, --help                     show this\n\n"
    "TIME is a number of seconds, or has a unit: 500ms, 10s, 2m, 1h.\n\n"
    "Exit status: 0; 1 (or -E's) the lock was not free; 64 wrong usage; 69 the server cannot be used, grants\n"
    "nothing yet, or has no tickets; 74 the ticket could not be written, and the lock was released;\n"
    "75 the lock was lost at once.\n\n"
    "Examples:\n"
    "  ticket=$(dlock acquire -w 30s -l 10m deploy)\n"
    "  dlock acquire --json deploy | jq -r .fence\n",
    acquire_main};

#define TICKET_OPTIONS                                                            \
    "TICKET is what dlock acquire has printed; -: read it from standard input,\n" \
    "where other users of this host cannot see it.\n\n"                           \
    "  -b, --backend URI  the lock server; default $DLOCK_URI, then file:\n"      \
    "  -h, --help         show this\n\n"

const struct command command_renew = {
    "renew", "restart the lease of a ticket's lock",
    "Usage: dlock renew [-b URI] TICKET|-\n\n"
    "Restarts the lease of the lock, with the length that it had when it was acquired.\n\n" TICKET_OPTIONS
    "Exit status: 0; 64 wrong usage; 69 the server cannot be used; 75 the lock had "
    "ended.\n\n"
    "Examples:\n"
    "  echo \"$ticket\" | dlock renew -\n"
    "  dlock renew -b redis://locks.example - <ticket\n",
    renew_main};

const struct command command_release = {"release", "release a ticket's lock",
                                        "Usage: dlock release [-b URI] TICKET|-\n\n"
                                        "Releases the lock.\n\n" TICKET_OPTIONS
                                        "Exit status: 0; 64 wrong usage; 69 the server cannot be used; 75 the lock had "
                                        "ended before: the\nwork done may have overlapped with somebody else's.\n\n"
                                        "Examples:\n"
                                        "  echo \"$ticket\" | dlock release -\n"
                                        "  dlock release -b redis://locks.example - <ticket\n",
                                        release_main};
