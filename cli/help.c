/* Prints help texts in lines of at most 80 columns, independent of the line breaks in the source. */
#include "cli.h"
#include "text.h"

#include <string.h>

/* Returns the column where the description of an option begins, or 0 if `line` describes no option. */
static size_t description_of(const char *line) {
    size_t indent = strspn(line, " "), end = strcspn(line, "\n");
    const char *gap = strstr(line + indent, "  ");
    if (indent == 0 || line[indent] != '-' || !gap || gap > line + end) return 0;
    return (size_t)(gap - line) + strspn(gap, " ");
}

/* True if `line` continues the paragraph before it, whose text begins at `column`. */
static bool goes_on(const char *line, size_t column) {
    size_t indent = strspn(line, " ");
    return column ? indent == column : indent == 0 && *line && *line != '\n';
}

static const char *next_line(const char *line) {
    line += strcspn(line, "\n");
    return *line ? line + 1 : line;
}

/* Prints the paragraph that begins at `line`. Returns the beginning of the next one. */
static const char *print_paragraph(const char *line) {
    char text[2048];
    size_t column = description_of(line), used = 0;
    const char *from = line + column;
    printf("%.*s", (int)column, line);
    do {
        size_t length = strcspn(from, "\n");
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%.*s", used ? " " : "", (int)length, from);
        if (used >= sizeof text) used = sizeof text - 1;
        line = next_line(from);
        from = line + column;
    } while (goes_on(line, column));
    fill_text(stdout, text, column);
    return line;
}

int print_help(const struct command *command) {
    for (const char *line = command->help; *line;) {
        bool as_it_is = *line == '\n' || strncmp(line, "Usage:", 6) == 0 || (*line == ' ' && !description_of(line));
        if (!as_it_is) {
            line = print_paragraph(line);
            continue;
        }
        printf("%.*s\n", (int)strcspn(line, "\n"), line);
        line = next_line(line);
    }
    return STATUS_OK;
}
