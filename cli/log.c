/* log: shows the runs that `dlock run --log` has noted, as a table. */
#include "cli.h"
#include "holders.h"
#include "run_log.h"
#include "text.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct look {
    const char *name; /* only runs of this lock; NULL: all */
    char since[40];   /* only runs that began then or later, as in the log; "": all */
    bool json;
    struct table table;
};

/* One line of the log; numbers that it does not have are -1. */
struct entry {
    char start[40], name[512], label[128], host[128], why[512];
    int64_t pid, waited_ms, held_ms, status;
    bool got, lost;
};

/* ---- a line: an object whose values are no arrays and no objects ------------------------------------------------- */

static const char *skip(const char *at) {
    while (*at == ' ' || *at == '\t') at++;
    return at;
}

/* Reads a string; what does not fit into `out` is cut off. Returns the place after it, or NULL. */
static const char *read_string(const char *at, char *out, size_t size) {
    size_t used = 0;
    if (*at++ != '"') return NULL;
    for (; *at && *at != '"'; at++) {
        char c = *at;
        if (c == '\\') {
            c = *++at;
            if (c == 'u') {
                for (int i = 1; i <= 4; i++)
                    if (!isxdigit((unsigned char)at[i])) return NULL;
                at += 4;
                c = '?'; /* only control characters are written so */
            } else if (c == 'n' || c == 't' || c == 'r' || c == 'b' || c == 'f') {
                c = '?';
            } else if (c != '"' && c != '\\' && c != '/') {
                return NULL;
            }
        }
        if (used + 1 < size) out[used++] = c;
    }
    out[used] = '\0';
    return *at == '"' ? at + 1 : NULL;
}

/* Reads a value that is no string: a number, or true (1), false (0), null (-1). */
static const char *read_plain(const char *at, int64_t *number) {
    static const struct {
        const char *word;
        int64_t number;
    } words[] = {{"true", 1}, {"false", 0}, {"null", -1}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strncmp(at, words[i].word, strlen(words[i].word)) != 0) continue;
        *number = words[i].number;
        return at + strlen(words[i].word);
    }
    char *end;
    errno = 0;
    *number = strtoll(at, &end, 10);
    return end == at || errno ? NULL : end;
}

static const char *read_member(const char *at, struct entry *entry) {
    const struct {
        const char *key;
        char *text;
        size_t size;
    } texts[] = {{"start", entry->start, sizeof entry->start},
                 {"name", entry->name, sizeof entry->name},
                 {"label", entry->label, sizeof entry->label},
                 {"host", entry->host, sizeof entry->host},
                 {"why", entry->why, sizeof entry->why}};
    const struct {
        const char *key;
        int64_t *number;
    } numbers[] = {{"pid", &entry->pid},
                   {"waited_ms", &entry->waited_ms},
                   {"held_ms", &entry->held_ms},
                   {"status", &entry->status}};
    char key[32], ignored[2];
    int64_t number;
    if (!(at = read_string(at, key, sizeof key)) || *(at = skip(at)) != ':') return NULL;
    at = skip(at + 1);
    if (*at == '"') {
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
            if (strcmp(key, texts[i].key) == 0) return read_string(at, texts[i].text, texts[i].size);
        return read_string(at, ignored, sizeof ignored);
    }
    if (!(at = read_plain(at, &number))) return NULL;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(key, numbers[i].key) == 0) *numbers[i].number = number;
    if (strcmp(key, "got") == 0) entry->got = number == 1;
    if (strcmp(key, "lost") == 0) entry->lost = number == 1;
    return at;
}

static bool read_entry(const char *line, struct entry *entry) {
    const char *at = skip(line);
    *entry = (struct entry){.pid = -1, .waited_ms = -1, .held_ms = -1, .status = -1};
    do {
        if (*at != '{' && *at != ',') return false;
        if (!(at = read_member(skip(at + 1), entry))) return false;
        at = skip(at);
    } while (*at != '}');
    at = skip(at + 1);
    return (!*at || *at == '\n' || *at == '\r') && entry->start[0] && entry->name[0] && entry->status >= 0;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static void add_row(struct look *look, const struct entry *entry) {
    char by[300], waited[32], held[32] = "", result[600];
    snprintf(by, sizeof by, "%s[%" PRId64 "]%s%s", entry->host, entry->pid, entry->label[0] ? " " : "", entry->label);
    if (entry->got)
        snprintf(result, sizeof result, "%sstatus %" PRId64, entry->lost ? "lost, " : "", entry->status);
    else
        snprintf(result, sizeof result, "not run: %s", entry->why[0] ? entry->why : "see its messages");
    time_text(entry->waited_ms, waited);
    if (entry->got) time_text(entry->held_ms, held);
    table_add(&look->table, (const char *const[]){entry->start, entry->name, by, waited, held, result});
}

static int read_log(struct look *look, FILE *file, const char *path) {
    char *line = NULL;
    size_t room = 0;
    struct entry entry;
    for (unsigned long n = 1; getline(&line, &room, file) >= 0; n++) {
        if (!read_entry(line, &entry)) {
            note("%s:%lu: skipped, no line of dlock run --log", path, n);
            continue;
        }
        if (look->name && strcmp(look->name, entry.name) != 0) continue;
        if (strcmp(entry.start, look->since) < 0) continue;
        if (look->json)
            fputs(line, stdout);
        else
            add_row(look, &entry);
    }
    free(line);
    return ferror(file) ? STATUS_IO : STATUS_OK;
}

static int read_file(struct look *look, const char *path) {
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    int status = file ? read_log(look, file, path) : STATUS_IO;
    if (status != STATUS_OK) note("cannot read %s: %s", path, strerror(errno));
    if (file && file != stdin) fclose(file);
    return status;
}

/* Takes a time as in the log, or its beginning, or a duration before now. */
static int take_since(struct look *look, const struct command *command, const char *text) {
    int64_t ms;
    if (strlen(text) > 4 && text[4] == '-') {
        snprintf(look->since, sizeof look->since, "%s", text);
        return STATUS_OK;
    }
    if (dlock_parse_duration(text, &ms, NULL) != 0 || ms < 0 || ms == DLOCK_FOREVER)
        return usage_error(command,
                           "--since takes a duration, such as 12h, or a time in UTC, such as 2026-12-01T03:00");
    utc_text(look->since, time(NULL) - (time_t)(ms / 1000));
    return STATUS_OK;
}

static int log_main(int argc, char **argv) {
    static const struct option longs[] = {
        {"name", required_argument, NULL, 'n'},
        {"since", required_argument, NULL, 's'},
        {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    static const char *const heading[] = {"START", "NAME", "BY", "WAITED", "HELD", "RESULT"};
    struct look look = {.table = {.columns = sizeof heading / sizeof *heading}};
    int status = STATUS_OK;
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":h", longs, NULL)) != -1 && status == STATUS_OK;) {
        switch (c) {
        case 'n': look.name = optarg; break;
        case 's': status = take_since(&look, &command_log, optarg); break;
        case 'j': look.json = true; break;
        case 'h': return print_help(&command_log);
        default: return option_error(&command_log, argv, longs, c);
        }
    }
    if (status != STATUS_OK) return status;
    if (optind == argc) return usage_error(&command_log, "which log? FILE is missing");
    if (!look.json) table_add(&look.table, heading);
    for (int i = optind; i < argc; i++) {
        int rc = read_file(&look, argv[i]);
        if (rc != STATUS_OK) status = rc;
    }
    if (look.table.failed) return no_memory();
    if (!look.json) table_print(&look.table, stdout);
    return status;
}

const struct command command_log = {
    "log", "show the runs that dlock run --log has noted",
    "Usage: dlock log [--name NAME] [--since TIME] [--json] FILE…\n\n"
    "Prints a line for each run that \"dlock run --log FILE\" has noted: when it began, which job on which host, how "
    "long it waited for the lock and held it, and its exit status, or who had the lock instead.\n\n"
    "      --name NAME    only runs of this lock\n"
    "      --since TIME   only runs that began so long ago at most (12h), or since that time (2026-12-01T03:00, UTC)\n"
    "      --json         print the lines as they are\n"
    "  -h, --help         show this\n\n"
    "FILE may be - for standard input.\n\n"
    "Exit status: 0, 64 wrong usage, 74 a FILE cannot be read.\n\n"
    "Examples:\n"
    "  dlock log --since 12h /var/log/nightly.log\n"
    "  journalctl -t dlock -o cat | dlock log --name backup -\n",
    log_main};
