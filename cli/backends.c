/* backends: lists the servers that this installation can talk to, and the module that serves each. */
#include "cli.h"
#include "text.h"

#include <getopt.h>
#include <string.h>

struct listing {
    bool as_json;
    struct json json;
};

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

enum { NAME_COLUMNS = 12 };

static void backend_lines(const struct dlock_backend_info *info) {
    char schemes[256] = "", words[256] = "", origin[1024];
    for (const char *const *scheme = info->schemes; scheme && *scheme; scheme++)
        append(schemes, sizeof schemes, *scheme);
    for (size_t i = 0; i < N_CAPABILITIES; i++)
        if (info->caps & capabilities[i].bit) append(words, sizeof words, capabilities[i].word);
    snprintf(origin, sizeof origin, "%s%s%s", info->path ? info->path : "built in", info->error ? ": " : "",
             info->error ? info->error : "");
    const char *lines[] = {schemes, words, origin}, *name = info->name;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        if (!*lines[i]) continue; /* nothing is known of a module that cannot be loaded */
        printf("%-*s ", NAME_COLUMNS - 1, name);
        fill_text(stdout, lines[i], NAME_COLUMNS);
        name = "";
    }
}

static int list_backend(const struct dlock_backend_info *info, void *arg) {
    struct listing *listing = arg;
    if (listing->as_json)
        backend_json(&listing->json, info);
    else
        backend_lines(info);
    return 0;
}

static int print_backends(struct listing *listing) {
    struct dlock_error err = {0, ""};
    json_begin(&listing->json, NULL, '{');
    json_begin(&listing->json, "backends", '[');
    int result = dlock_backends(list_backend, listing, &err);
    json_end(&listing->json, ']');
    json_end(&listing->json, '}');
    json_newline(&listing->json);
    return result == 0 ? STATUS_OK : report(&err);
}

static int backends_main(int argc, char **argv) {
    static const struct option longs[] = {
        {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct listing listing = {.json = {.out = stdout}};
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":h", longs, NULL)) != -1;) {
        switch (c) {
        case 'j': listing.as_json = true; break;
        case 'h': return print_help(&command_backends);
        default: return option_error(&command_backends, argv, longs, c);
        }
    }
    if (optind < argc) return usage_error(&command_backends, "backends takes no operand");
    if (listing.as_json) return print_backends(&listing);
    struct dlock_error err = {0, ""};
    printf("%-*s SCHEMES, CAPABILITIES, MODULE\n", NAME_COLUMNS - 1, "NAME");
    int result = dlock_backends(list_backend, &listing, &err);
    return result == 0 ? STATUS_OK : report(&err);
}

const struct command command_backends = {
    "backends", "show which servers can be used",
    "Usage: dlock backends [--json]\n\n"
    "Shows every backend of this installation: its URI schemes, its capabilities, and the file of its module, or why\n"
    "the module cannot be loaded.\n\n"
    "      --json  print JSON\n"
    "  -h, --help  show this\n\n"
    "Exit status: 0, 64 wrong usage.\n\n"
    "Examples:\n"
    "  dlock backends\n"
    "  dlock backends --json | jq -r '.backends[].name'\n",
    backends_main};
