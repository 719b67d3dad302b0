/* Text for people and for programs. What a server says is not trusted: neither form lets control characters through. */
#ifndef DLOCK_CLI_TEXT_H
#define DLOCK_CLI_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ---- JSON, in the order of the calls; commas are the writer's ---------------------------------------------------- */

struct json {
    FILE *out;
    bool comma; /* a value stands before this place */
};

void json_begin(struct json *json, const char *key,
                char bracket); /* '{' or '['; key NULL inside an array and at the top */
void json_end(struct json *json, char bracket);
/* A string as JSON takes it: UTF-8 stays, control characters are escaped, each byte that is not UTF-8 becomes U+FFFD.
 * `text` NULL: null. */
void json_string(struct json *json, const char *key, const char *text);
void json_number(struct json *json, const char *key, int64_t number);
void json_decimal(struct json *json, const char *key, double number); /* finite; three digits after the point */
void json_bool(struct json *json, const char *key, bool value);
void json_null(struct json *json, const char *key);
void json_newline(struct json *json); /* ends the document */

/* ---- plain text -------------------------------------------------------------------------------------------------- */

/* Text without control characters, and in UTF-8: what is neither becomes U+FFFD. */
void clean_text(FILE *out, const char *text);

/* How many bytes the first `n` characters of `text` have. */
size_t first_characters(const char *text, size_t n);

/* ---- HTML and XML ------------------------------------------------------------------------------------------------ */

/* Text as it may stand between tags and in a quoted attribute. What has no place there becomes U+FFFD. */
void html_text(FILE *out, const char *text);

/* ---- lines ------------------------------------------------------------------------------------------------------- */

enum { LINE_COLUMNS = 80 };

/* Prints the words of `text`, and a newline, in lines that end before LINE_COLUMNS unless one word alone is longer. In
 * the first line `column` columns have been printed; the others are indented by as many. */
void fill_text(FILE *out, const char *text, size_t column);

/* ---- tables ------------------------------------------------------------------------------------------------------ */

enum { TABLE_COLUMNS = 9 };

struct table {
    size_t columns; /* at most TABLE_COLUMNS */
    size_t rows, capacity;
    char **cells;
    bool failed; /* out of memory */
};

/* Adds a row of `columns` cells, copied; the first row is the heading. */
void table_add(struct table *table, const char *const *cells);
/* Prints it with aligned columns; control characters and bytes that are not UTF-8 as '?'. Frees the rows. */
void table_print(struct table *table, FILE *out);

#endif
