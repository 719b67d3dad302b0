/* dlock-top: the program behind `dlock top`.
 *
 * SPDX-License-Identifier: MIT
 */
#include "cli.h"
#include "top/lines.h"
#include "top/screen.h"

#include <errno.h>
#include <getopt.h>
#include <string.h>

enum { INTERVAL_MIN_MS = 100 };

struct request {
    struct watch_plan watch;
    struct lines_plan lines;
};

static int take_interval(struct request *request) {
    struct dlock_error err = {0, ""};
    if (dlock_parse_duration(optarg, &request->watch.interval_ms, &err) != 0)
        return usage_error(&command_top, "--interval: %s", err.message);
    if (request->watch.interval_ms >= INTERVAL_MIN_MS) return STATUS_OK;
    return usage_error(&command_top, "--interval must be at least 100ms, to spare the server");
}

static int take_count(struct request *request) {
    if (read_number(optarg, 1, 1000000000, &request->lines.count)) return STATUS_OK;
    return usage_error(&command_top, "--count takes a number of updates, at least 1");
}

static int look_on(const struct request *request) {
    struct watch watch;
    bool draws = !request->lines.json && screen_usable();
    if (draws && screen_signals() != 0) return no_descriptor(errno);
    int status = watch_open(&watch, &request->watch);
    if (status != STATUS_OK) return status;
    return draws ? screen_run(&watch, request->lines.count) : lines_run(&watch, &request->lines);
}

static int top_main(int argc, char **argv) {
    static const struct option longs[] = {
        {"backend", required_argument, NULL, 'b'},  {"prefix", required_argument, NULL, 'p'},
        {"interval", required_argument, NULL, 'i'}, {"count", required_argument, NULL, 'n'},
        {"json", no_argument, NULL, 'j'},           {"wide", no_argument, NULL, 'W'},
        {"help", no_argument, NULL, 'h'},           {NULL, 0, NULL, 0},
    };
    struct request request = {.watch = {.interval_ms = 2000}};
    int status = STATUS_OK;
    opterr = 0;
    for (int c; status == STATUS_OK && (c = getopt_long(argc, argv, ":b:i:n:h", longs, NULL)) != -1;) {
        switch (c) {
        case 'b': request.watch.uri = optarg; break;
        case 'p': request.watch.subject.prefix = optarg; break;
        case 'i': status = take_interval(&request); break;
        case 'n': status = take_count(&request); break;
        case 'j': request.lines.json = true; break;
        case 'W': request.watch.wide = true; break;
        case 'h': return print_help(&command_top);
        default: return option_error(&command_top, argv, longs, c);
        }
    }
    if (status == STATUS_OK) status = subject_take(&request.watch.subject, &command_top, argc - optind, argv + optind);
    return status == STATUS_OK ? look_on(&request) : status;
}

const struct command command_top = {
    "top", "watch the locks of a server",
    "Usage: dlock top [OPTION…] [--prefix PREFIX | NAME…]\n\n"
    "Shows at regular intervals which locks are held: on a terminal as a screen that is updated in place, elsewhere "
    "as lines. Give NAMEs if the server cannot list its locks.\n\n"
    "  -b, --backend URI    the lock server; default $DLOCK_URI, then file:\n"
    "  -i, --interval TIME  time between two updates; default 2s, at least 100ms\n"
    "  -n, --count N        exit after N updates\n"
    "      --wide           also show fences and tokens\n"
    "      --json           print a line of JSON for each update\n" SUBJECT_HELP "  -h, --help           show this\n\n"
    "Keys: q quits, s changes the sort order, / filters, space updates now, arrow keys scroll.\n\n"
    "GRANTS/S counts new fences of the listed locks; a grant that began and ended between two updates is not "
    "counted.\n\n"
    "Exit status: 0, 64 wrong usage, 69 the server cannot be used.\n\n"
    "Examples:\n"
    "  dlock top -i 500ms -b redis://locks.example\n"
    "  dlock top --json -i 1m | jq -c '[.time, .waiters]'\n",
    top_main};

int main(int argc, char **argv) {
    fill_streams();
    return finish_streams(command_top.run(argc, argv));
}
