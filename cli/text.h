/* Output for people and for programs. Texts from servers are not trusted: no control character gets through. */
#ifndef DLOCK_CLI_TEXT_H
#define DLOCK_CLI_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ---- JSON, written in the order of the calls, with the commas ---------------------------------------------------- */

struct json {
    FILE *out;
    bool comma; /* a value precedes: the next one needs a comma */
};

void json_begin(struct json *json, const char *key,
                char bracket); /* '{' or '['; key NULL inside an array and at the top */
void json_end(struct json *json, char bracket);
/* Writes a string: UTF-8 stays, control characters are escaped, each byte that is not UTF-8 becomes U+FFFD. `text` NULL
 * is written as null. */
void json_string(struct json *json, const char *key, const char *text);
void json_number(struct json *json, const char *key, int64_t number);
void json_decimal(struct json *json, const char *key, double number); /* finite; three digits after the point */
void json_bool(struct json *json, const char *key, bool value);
void json_null(struct json *json, const char *key);
void json_newline(struct json *json); /* ends the document */

/* ---- plain text -------------------------------------------------------------------------------------------------- */

/* Writes `text` with each control character, and each byte that is not UTF-8, replaced by U+FFFD. */
void clean_text(FILE *out, const char *text);

/* Replaces in `text` each control character, and each byte that is not UTF-8, by '?'. Returns its new length. */
size_t mask_text(char *text);

/* Returns the length in bytes of the first `n` characters of `text`. */
size_t first_characters(const char *text, size_t n);

/* ---- HTML and XML ------------------------------------------------------------------------------------------------ */

/* Writes `text`, escaped for use between tags and in quoted attributes. Characters that XML forbids become U+FFFD. */
void html_text(FILE *out, const char *text);

/* ---- lines ------------------------------------------------------------------------------------------------------- */

enum { LINE_COLUMNS = 80 };

/* Prints the words of `text` and a newline, in lines of at most LINE_COLUMNS columns unless a single word is longer.
 * The first line already has `column` columns; the others are indented by as many. */
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
/* Prints the table with aligned columns; control characters and bytes that are not UTF-8 become '?'. Frees the rows. */
void table_print(struct table *table, FILE *out);

#endif
