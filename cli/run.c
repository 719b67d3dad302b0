/* run: runs a command while holding a lock. */
#include "child.h"
#include "cli.h"
#include "environment.h"
#include "hold.h"
#include "inherited.h"
#include "job_control.h"
#include "lock_options.h"
#include "run_log.h"
#include "run_metrics.h"
#include "signals.h"
#include "supervise.h"
#include "terminal.h"
#include "text.h"
#include "wait.h"

#include <dlock/backend.h>

#include <errno.h>
#include <paths.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct request {
    struct lock_options wanted;
    int64_t hold_ms; /* shortest time from the grant to the release of the lock */
    struct loss_policy policy;
    int wanted_signal;   /* --on-wanted; 0: none */
    char **argv;         /* the command */
    char *shell_argv[4]; /* storage for `argv` when the command is a shell line (-c) */
    char label[DLOCK_LABEL_MAX + 1];
    bool pass_uri;
    const char *metrics; /* path of the metrics file; NULL: none */
    const char *log;     /* path of the log, or "journal"; NULL: none */
};

/* State of a run. The members are in the order in which they are set up. */
struct run {
    const struct request *request;
    struct inherited inherited;
    struct signals signals;
    struct terminal terminal;
    int job; /* the descriptor to the job process, see job_control.h; -1: none */
    struct loss loss;
    dlock_client *client;
    dlock_lock *lock;
    struct environment env;
    struct lease lease;
    struct run_metrics metrics;
    struct run_log log;
    int64_t granted_ms; /* by now_ms() */
    bool adopts;        /* the inherited setting of child_adopt() */
    int sig;            /* the signal that this process has to die of; 0: none */
};

/* ---- the command line -------------------------------------------------------------------------------------------- */

/* Labels the lock with the command's name, unless there is a label, as --label or in the URI. Of a shell line that is its
 * first word if it is plain, since others may be secret, else the shell. */
static void default_label(struct request *request) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/";
    const char *uri = uri_or_default(request->wanted.uri), *name = request->argv[0], *slash;
    if (request->wanted.label || strstr(uri, "?label=") || strstr(uri, "&label=")) return;
    size_t length = strlen(name);
    if (request->argv == request->shell_argv) {
        size_t word = strspn(request->argv[2], plain);
        if (word > 0 && (request->argv[2][word] == ' ' || !request->argv[2][word])) {
            name = request->argv[2];
            length = word;
        }
    }
    if ((slash = memrchr(name, '/', length))) {
        length -= (size_t)(slash + 1 - name);
        name = slash + 1;
    }
    if (length >= sizeof request->label) length = sizeof request->label - 1;
    while ((name[length] & 0xc0) == 0x80 && length > 0) length--; /* whole characters */
    snprintf(request->label, sizeof request->label, "%.*s", (int)length, name);
    mask_text(request->label);
    request->wanted.label = request->label;
}

/* Parses what follows the options: NAME, then a command, or -c and a line for the shell. */
static int parse_operands(struct request *request, int argc, char **argv) {
    if (argc == 0) return usage_error(&command_run, "which lock? NAME is missing");
    request->wanted.name = argv[0];
    bool shell = argc > 1 && (strcmp(argv[1], "-c") == 0 || strcmp(argv[1], "--command") == 0);
    if (shell) {
        if (argc != 3) return usage_error(&command_run, "-c takes exactly one argument, a line for the shell");
        const char *program = getenv("SHELL");
        request->shell_argv[0] = (char *)(program && *program ? program : _PATH_BSHELL);
        request->shell_argv[1] = (char *)"-c";
        request->shell_argv[2] = argv[2];
        request->argv = request->shell_argv;
        return GO_ON;
    }
    request->argv = argv + 1;
    if (argc > 1 && strcmp(argv[1], "--") == 0)
        request->argv++;
    else if (argc > 1 && argv[1][0] == '-') /* not repeated: it may be a URI with a password */
        return usage_error(&command_run, "an option follows NAME: put it before NAME, or -- before a COMMAND that "
                                         "begins with -");
    return *request->argv ? GO_ON : usage_error(&command_run, "COMMAND is missing");
}

static int take_action(struct loss_policy *policy) {
    static const char *const words[] = {[LOSS_TERM] = "term", [LOSS_KILL] = "kill", [LOSS_WARN] = "warn"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(optarg, words[i]) != 0) continue;
        policy->action = (enum loss_action)i;
        return GO_ON;
    }
    return usage_error(&command_run, "--on-lost takes term, kill or warn");
}

static int take_wanted_signal(int *sig) {
    *sig = signals_number(optarg);
    if (*sig) return GO_ON;
    return usage_error(&command_run,
                       "--on-wanted takes the name of a signal: USR1, USR2, TERM, INT, HUP, QUIT, ALRM or "
                       "WINCH");
}

static int take_kill_after(struct loss_policy *policy) {
    int status = take_duration(&command_run, "--kill-after", &policy->kill_after_ms);
    if (status != GO_ON || policy->kill_after_ms > 0) return status;
    return usage_error(&command_run, "--kill-after: must be more than 0; --on-lost=kill kills at once");
}

/* Returns GO_ON, or the status to exit with. */
static int parse(int argc, char **argv, struct request *request) {
    static const struct option longs[] = {
        LOCK_OPTIONS(LOCK_OPTIONS_LONG),
        {"hold", required_argument, NULL, 'H'},
        {"on-lost", required_argument, NULL, 'L'},
        {"kill-after", required_argument, NULL, 'K'},
        {"on-wanted", required_argument, NULL, 'W'},
        {"close", no_argument, NULL, 'o'},
        {"pass-uri", no_argument, NULL, 'u'},
        {"metrics", required_argument, NULL, 'M'},
        {"log", required_argument, NULL, 'G'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    *request = (struct request){.wanted = LOCK_OPTIONS_INIT};
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, "+:" LOCK_OPTIONS_SHORTS "oh", longs, NULL)) != -1;) {
        if (c == 'h') return print_help(&command_run);
        if (c == '?' && (optopt == 'c' || strncmp(argv[optind - 1], "--command", 9) == 0))
            return usage_error(&command_run, "-c must follow NAME: dlock run NAME -c 'SHELL LINE'");
        if (c == '?' || c == ':') return option_error(&command_run, argv, longs, c);
        if (c == 'o') continue; /* flock(1)'s --close: the command never inherits a descriptor of the lock */
        int status = GO_ON;
        if (c == 'u')
            request->pass_uri = true;
        else if (c == 'M')
            request->metrics = optarg;
        else if (c == 'G')
            request->log = optarg;
        else if (c == 'H')
            status = take_duration(&command_run, "--hold", &request->hold_ms);
        else if (c == 'L')
            status = take_action(&request->policy);
        else if (c == 'K')
            status = take_kill_after(&request->policy);
        else if (c == 'W')
            status = take_wanted_signal(&request->wanted_signal);
        else
            status = lock_options_take(&request->wanted, &command_run, c);
        if (status != GO_ON) return status;
    }
    if (request->policy.kill_after_ms && request->policy.action != LOSS_TERM)
        return usage_error(&command_run, "--kill-after goes with --on-lost=term, where SIGTERM comes first");
    return parse_operands(request, argc - optind, argv + optind);
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

static void cannot_run(const char *command, int why) {
    note("cannot run \"%s\": %s%s", command, strerror(why), limit_advice(why));
}

static int cannot_exec(const char *command, int why) {
    cannot_run(command, why);
    if (why == ENOENT && strchr(command, ' ')) note("use -c for a shell line: dlock run NAME -c 'LINE'");
    return why == ENOENT || why == ENOTDIR ? STATUS_NOT_FOUND : STATUS_NOT_EXECUTABLE;
}

/* Puts the command's process group under the guardian before the command starts: even if this process dies, the group
 * ends before the lock does. Without a guardian it does nothing. Returns STATUS_OK or the exit status. */
static int guard(const struct run *run, pid_t group) {
    struct dlock_error err = {0, ""};
    int rc = dlock_client_guard(run->client, (int)group, &err);
    return rc == 0 || rc == DLOCK_ENOTSUP ? STATUS_OK : report(&err);
}

/* Waits for the command's end, and then until the end of --hold. */
static struct ending attend(struct run *run, pid_t child) {
    const struct request *request = run->request;
    const struct supervise_plan command = {
        run->client, run->lock,       request->wanted.name,   &run->loss,
        &run->lease, &run->signals,   &run->terminal,         run->job,
        child,       request->policy, request->wanted_signal, request->wanted.verbose};
    const struct hold_plan hold = {&command, run->granted_ms + request->hold_ms, request->wanted.verbose};
    struct ending ending = supervise_command(&command);
    if (!ending.lost) run->sig = hold_lock(&hold, &ending);
    return ending;
}

static struct ending run_child(struct run *run, const struct child_plan *plan) {
    struct child_gate gate;
    int why = 0;
    pid_t child = child_start(plan, &gate, &why);
    if (child < 0) {
        cannot_run(plan->argv[0], why);
        return (struct ending){.status = STATUS_OS};
    }
    int status = guard(run, child);
    if (status != STATUS_OK) {
        child_cancel(child, &gate);
        return (struct ending){.status = status};
    }
    child_adopt(run->adopts);
    if (!child_go(child, plan->terminal, &gate, &why)) {
        dlock_client_guard(run->client, 0, NULL);
        return (struct ending){.status = cannot_exec(plan->argv[0], why)};
    }
    return attend(run, child);
}

/* True if --kill-after is at most a third of the lease; else prints why not. With more, SIGTERM would be due as soon as
 * a renewal, due every third of the lease, is late. The longest remaining time that was read is less than a twentieth
 * shorter than the lease: that is added. */
static bool grace_fits(struct run *run) {
    int64_t grace = run->request->policy.kill_after_ms;
    char least[32];
    bool endless = lease_look(&run->lease, run->lock) == DLOCK_FOREVER;
    if (endless || grace <= (run->lease.longest_ms + run->lease.longest_ms / 20) / 3) return true;
    note("--kill-after is longer than a third of the lease of \"%s\": make that at least %s, with -l or as lease= in "
         "the URI",
         run->request->wanted.name, dlock_duration_text(least, 3 * grace));
    return false;
}

/* Runs the command; the lock is held. Returns how the command ended, or the exit status if it could not be run. */
static struct ending run_command(struct run *run) {
    run->granted_ms = now_ms();
    if (!grace_fits(run)) return (struct ending){.status = STATUS_USAGE};
    if (environment_make(&run->env, run->request->wanted.name, run->lock) != 0)
        return (struct ending){.status = no_memory()};
    if (run->job >= 0) setpgid(0, 0); /* signals to the job's process group stop this process no longer */
    signals_hear_job_control(&run->signals);
    const struct child_plan plan = {run->request->argv, run->env.entries, &run->inherited, &run->signals,
                                    &run->terminal};
    return run_child(run, &plan);
}

/* Releases the lock after the command's end. Returns the exit status: that of the command, even if the server cannot be
 * reached, since the lock then ends with its lease; STATUS_LOST if the lock was lost while the command ran. */
static int release(struct run *run, struct ending ending) {
    struct dlock_error err = {0, ""};
    int result = dlock_release(run->lock, &err);
    if (result == 0 || ending.lost) return ending.status;
    note("\"%s\" was not released properly: %s", run->request->wanted.name, err.message);
    bool too_late = result != DLOCK_ELOST || lease_confirmed_since(&run->lease, ending.at_ms);
    return too_late ? ending.status : STATUS_LOST;
}

/* Acquires, runs the command, releases. Returns the exit status. */
static int run_locked(struct run *run) {
    const struct lock_options *wanted = &run->request->wanted;
    struct dlock_options options = DLOCK_OPTIONS_INIT;
    options.on_lost = loss_happened;
    options.on_lost_arg = &run->loss;
    if (run->request->wanted_signal) options.on_wanted = loss_wanted;
    options.on_wanted_arg = &run->loss;
    int status = lock_options_new(wanted, run->client, options, &run->lock);
    if (status != STATUS_OK) return status;
    status = lock_options_wait(wanted, run->client, run->lock, &run->signals, &run->sig,
                               run->log.fd < 0 ? NULL : &run->log.why);
    if (status == GO_ON) {
        run->log.granted_ms = now_ms();
        run->log.fence = dlock_fence(run->lock);
        run_metrics_granted(&run->metrics, run->client, run->lock);
        struct ending ending = run_command(run);
        status = release(run, ending);
        run->log.lost = ending.lost || (status == STATUS_LOST && ending.status != STATUS_LOST);
        /* A script that received the same SIGINT continues if its child only exits, even with 130. */
        if (ending.interrupted && status == ending.status) run->sig = SIGINT;
        run_metrics_ended(&run->metrics, status, ending.at_ms);
    }
    dlock_free(run->lock);
    return status;
}

static int open_server(struct run *run) {
    const struct request *request = run->request;
    struct dlock_client_options options = DLOCK_CLIENT_OPTIONS_INIT;
    options.flags = DLOCK_CLIENT_GUARDIAN | lock_options_flags(&request->wanted);
    if (request->policy.action == LOSS_WARN) options.flags |= DLOCK_CLIENT_SPARE_GROUP;
    options.label = request->wanted.label;
    options.log = loss_log;
    options.log_arg = &run->loss;
    return open_client_with(request->wanted.uri, &options, &run->client);
}

/* Prepares what run_locked() needs besides the client, and calls it. Returns the exit status. */
static int use_server(struct run *run) {
    const struct request *request = run->request;
    int status =
        environment_uri(&run->env, request->pass_uri ? uri_or_default(request->wanted.uri) : NULL, request->wanted.uri);
    if (status != STATUS_OK) return status;
    if (run->signals.fd < 0 && signals_open(&run->signals) != 0) return no_descriptor(errno);
    if (loss_open(&run->loss) != 0) return no_descriptor(errno);
    status = run_locked(run);
    loss_close(&run->loss);
    return status;
}

/* Calls use_server() and writes the metrics before and after it, also of a server that could not be opened: `opened` is
 * open_server()'s status. Not to be called for a URI that is wrong, since its label might show a secret that stands in
 * the wrong place. Returns the exit status. */
static int use_counted(struct run *run, int opened) {
    const struct request *request = run->request;
    int status =
        run_metrics_open(&run->metrics, request->metrics, uri_or_default(request->wanted.uri), request->wanted.name);
    if (status != STATUS_OK) return opened != STATUS_OK ? opened : status;
    status = opened == STATUS_OK ? use_server(run) : opened;
    run_metrics_refused(&run->metrics, run->client);
    return status;
}

static int run_main(int argc, char **argv) {
    struct request request;
    int status = parse(argc, argv, &request);
    if (status != GO_ON) return status;
    default_label(&request);
    struct run run = {
        .request = &request, .job = -1, .loss = LOSS_INIT, .metrics = RUN_METRICS_INIT, .log = RUN_LOG_INIT};
    if (!inherited_note(&run.inherited)) return no_memory();
    signals_begin(&run.signals);
    terminal_open(&run.terminal);
    if (run.terminal.fd >= 0) run.job = job_split(&run.signals);
    /* Signals keep their default actions up to here and while open_server() connects: nothing is held yet. To process 1
     * the kernel delivers none that has its default action, so it hears them when it waits for the lock. */
    if (getpid() == 1) signals_open(&run.signals);
    run.adopts = child_adopt(true);
    status = run_log_open(&run.log, request.log);
    if (status == STATUS_OK) {
        status = open_server(&run);
        if (status != STATUS_OK) dlock_fail(&run.log.why, DLOCK_EUNAVAILABLE, "the lock server could not be used");
        if (status != STATUS_USAGE) status = use_counted(&run, status);
        run_log_close(&run.log, request.wanted.name, request.wanted.label, run.sig ? 128 + run.sig : status);
    }
    run_metrics_close(&run.metrics);
    environment_free(&run.env);
    inherited_free(&run.inherited);
    wait_end();
    dlock_close(run.client);
    if (run.sig) signals_die(run.sig);
    return status;
}

const struct command command_run = {
    "run", "run a command while holding a lock",
    "Usage: dlock run [OPTION…] [--] NAME [--] COMMAND [ARGUMENT…]\n"
    "       dlock run [OPTION…] [--] NAME -c 'SHELL LINE'\n\n"
    "Acquires the lock NAME, runs COMMAND, releases the lock, and exits as COMMAND did.\n\n" LOCK_OPTIONS_HELP
    "  -l, --lease TIME               how long the lock stays taken if this host fails; default: the URI's lease, then "
    "10s;\n"
    "                                 at most the URI's quarantine on servers that forget locks at a restart\n"
    "      --hold TIME                keep the lock for TIME from its grant, even if\n"
    "                                 COMMAND ends earlier\n"
    "      --on-lost WORD             what is sent to COMMAND when the lock is lost:\n"
    "                                 term, the default: SIGTERM, then SIGKILL;\n"
    "                                 kill: SIGKILL; warn: nothing, it continues\n"
    "      --kill-after TIME          how long after SIGTERM; at most a third of the\n"
    "                                 lease; default: a sixth of it, at most 10s\n"
    "      --on-wanted SIGNAL         send COMMAND this signal when another client asks\n"
    "                                 for the lock, so that it can finish early\n"
    "  -c, --command 'SHELL LINE'     (after NAME) run this with $SHELL\n"
    "      --log FILE                 add a line about this run to FILE, for dlock log; \"journal\": to systemd's\n"
    "      --metrics FILE             count grants, waits and losses of all runs in FILE, for node_exporter\n"
    "      --pass-uri                 pass the URI to COMMAND in DLOCK_URI with its password\n"
    "  -o, --close                    accepted for flock(1); always in effect\n"
    "  -h, --help                     show this\n\n"
    "TIME is a number of seconds, or has a unit: 500ms, 10s, 2m, 1h. COMMAND finds DLOCK_NAME, DLOCK_FENCE and\n"
    "DLOCK_TOKEN in its environment, and DLOCK_URI, as dlock found it there or else got it by -b, without a "
    "password.\n\n"
    "Exit status: COMMAND's; 128 + n when it died by signal n; 1 (or -E's) the lock was not free; 64 wrong usage;\n"
    "69 the server cannot be used, or grants nothing yet; 74 FILE cannot be written; 75 the lock was lost; 126 COMMAND "
    "cannot be executed;\n"
    "127 it was not found.\n\n"
    "Examples:\n"
    "  dlock run -b redis://locks.example -w 30s report make-report\n"
    "  dlock run -n -E 0 --hold 30s backup -c 'tar -cf /backup/home.tar /home'\n"
    "  dlock run -p 3 downloads -- wget URL\n",
    run_main};
