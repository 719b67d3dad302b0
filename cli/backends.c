/* backends: lists the servers that this installation can talk to, and the module that serves each. */
#include "cli.h"
#include "text.h"

#include <getopt.h>
#include <string.h>

static const struct {
    uint32_t bit;
    const char *word;
} capabilities[] = {
#define DLOCK_X(name, bit, word, meaning) {DLOCK_CAP_##name, word},
    DLOCK_CAPS(DLOCK_X)
#undef DLOCK_X
};
enum { N_CAPABILITIES = sizeof capabilities / sizeof capabilities[0] };

void json_capabilities(struct json *json, uint32_t caps) {
    json_begin(json, "capabilities", '[');
    for (size_t i = 0; i < N_CAPABILITIES; i++)
        if (caps & capabilities[i].bit) json_string(json, NULL, capabilities[i].word);
    json_end(json, ']');
}

static void backend_json(struct json *json, const struct dlock_backend_info *info) {
    json_begin(json, NULL, '{');
    json_string(json, "name", info->name);
    json_begin(json, "schemes", '[');
    for (const char *const *scheme = info->schemes; scheme && *scheme; scheme++) json_string(json, NULL, *scheme);
    json_end(json, ']');
    json_capabilities(json, info->caps);
    json_string(json, "path", info->path);
    json_string(json, "error", info->error);
    json_end(json, '}');
}

/* Appends `word` to `list`, a buffer of `size` bytes with words between spaces; cuts off what does not fit. */
static void append(char *list, size_t size, const char *word) {
    size_t used = strlen(list);
    snprintf(list + used, size - used, "%s%s", used ? " " : "", word);
}

enum { NAME_COLUMNS = 15, CAPABILITY_COLUMNS = 4, MATRIX_COLUMNS = NAME_COLUMNS + CAPABILITY_COLUMNS * N_CAPABILITIES };

/* Writes `word` into the column of the n-th capability of a line, which is filled with spaces. */
static void put(char line[MATRIX_COLUMNS + 1], size_t n, const char *word) {
    const size_t at = NAME_COLUMNS + CAPABILITY_COLUMNS * n, length = strlen(word);
    if (at + length <= MATRIX_COLUMNS) memcpy(line + at, word, length);
}

/* Those that tell about the server, and not how the library uses the backend, are in the matrix. */
static bool is_shown(size_t capability) {
    return !(capabilities[capability].bit & (DLOCK_CAP_THREADSAFE | DLOCK_CAP_LOCAL | DLOCK_CAP_PRIVATE));
}

static void print_line(char line[MATRIX_COLUMNS + 1]) {
    size_t length = MATRIX_COLUMNS;
    while (length > 0 && line[length - 1] == ' ') length--;
    printf("%.*s\n", (int)length, line);
}

/* The words are longer than their columns, so the heading has three lines. */
static void matrix_heading(void) {
    enum { LINES = 3 };
    char lines[LINES][MATRIX_COLUMNS + 1];
    memset(lines, ' ', sizeof lines);
    memcpy(lines[LINES - 1], "NAME", 4);
    for (size_t i = 0, n = 0; i < N_CAPABILITIES; i++) {
        if (!is_shown(i)) continue;
        put(lines[n % LINES], n, capabilities[i].word);
        n++;
    }
    for (size_t i = 0; i < LINES; i++) print_line(lines[i]);
}

static int matrix_row(const struct dlock_backend_info *info, void *arg) {
    char line[MATRIX_COLUMNS + 1];
    const size_t length = strlen(info->name);
    (void)arg;
    if (!info->schemes) return 0; /* nothing is known of a module that cannot be loaded */
    memset(line, ' ', sizeof line);
    if (length >= NAME_COLUMNS)
        printf("%s\n", info->name);
    else
        memcpy(line, info->name, length);
    for (size_t i = 0, n = 0; i < N_CAPABILITIES; i++)
        if (is_shown(i)) put(line, n++, info->caps & capabilities[i].bit ? "x" : "-");
    print_line(line);
    return 0;
}

static int print_origin(const struct dlock_backend_info *info, void *arg) {
    char schemes[256] = "", word[16], origin[1024];
    (void)arg;
    for (const char *const *scheme = info->schemes; scheme && *scheme; scheme++)
        append(schemes, sizeof schemes, *scheme);
    for (size_t i = 0; i < N_CAPABILITIES; i++) {
        if (is_shown(i) || !(info->caps & capabilities[i].bit)) continue;
        snprintf(word, sizeof word, "(%s)", capabilities[i].word);
        append(schemes, sizeof schemes, word);
    }
    snprintf(origin, sizeof origin, "%s%s%s", info->path ? info->path : "built in", info->error ? ": " : "",
             info->error ? info->error : "");
    const char *lines[] = {schemes, origin}, *name = info->name;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        if (!*lines[i]) continue;
        printf("%-*s ", NAME_COLUMNS - 1, name);
        fill_text(stdout, lines[i], NAME_COLUMNS);
        name = "";
    }
    return 0;
}

static int print_backend(const struct dlock_backend_info *info, void *json) {
    backend_json(json, info);
    return 0;
}

static int print_json(void) {
    struct json json = {.out = stdout};
    struct dlock_error err = {0, ""};
    json_begin(&json, NULL, '{');
    json_begin(&json, "backends", '[');
    int result = dlock_backends(print_backend, &json, &err);
    json_end(&json, ']');
    json_end(&json, '}');
    json_newline(&json);
    return result == 0 ? STATUS_OK : report(&err);
}

static int print_tables(void) {
    struct dlock_error err = {0, ""};
    matrix_heading();
    int result = dlock_backends(matrix_row, NULL, &err);
    printf("\n%-*s SCHEMES, MODULE\n", NAME_COLUMNS - 1, "NAME");
    if (result == 0) result = dlock_backends(print_origin, NULL, &err);
    return result == 0 ? STATUS_OK : report(&err);
}

static int backends_main(int argc, char **argv) {
    static const struct option longs[] = {
        {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    bool as_json = false;
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":h", longs, NULL)) != -1;) {
        switch (c) {
        case 'j': as_json = true; break;
        case 'h': return print_help(&command_backends);
        default: return option_error(&command_backends, argv, longs, c);
        }
    }
    if (optind < argc) return usage_error(&command_backends, "backends takes no operand");
    return as_json ? print_json() : print_tables();
}

const struct command command_backends = {"backends", "show which servers can be used",
                                         "Usage: dlock backends [--json]\n\n"
                                         "Shows every backend of this installation: its capabilities (x: it has this "
                                         "one), its URI schemes, and the file of\n"
                                         "its module, or why the module cannot be loaded.\n\n"
                                         "      --json  print JSON\n"
                                         "  -h, --help  show this\n\n"
                                         "Exit status: 0, 64 wrong usage.\n\n"
                                         "Examples:\n"
                                         "  dlock backends\n"
                                         "  dlock backends --json | jq -r '.backends[].name'\n",
                                         backends_main};
