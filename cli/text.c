#include "text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Reads one character of UTF-8 from non-empty `text`. Returns its length in bytes; *rune is -1 for a byte that begins
 * no valid character. */
static size_t next_rune(const char *text, int32_t *rune) {
    static const int32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *byte = (const unsigned char *)text;
    size_t length = *byte < 0x80 ? 1 : *byte < 0xc2 ? 0 : *byte < 0xe0 ? 2 : *byte < 0xf0 ? 3 : *byte < 0xf5 ? 4 : 0;
    *rune = length <= 1 ? *byte : *byte & (0x7f >> length);
    for (size_t i = 1; i < length; i++) {
        if ((byte[i] & 0xc0) != 0x80) {
            length = 0;
            break;
        }
        *rune = *rune << 6 | (byte[i] & 0x3f);
    }
    bool surrogate = *rune >= 0xd800 && *rune <= 0xdfff;
    if (length == 0 || *rune < least[length] || *rune > 0x10ffff || surrogate) {
        *rune = -1;
        return 1;
    }
    return length;
}

/* True for what must not reach a terminal: control characters, and the formats that change the order or the look of
 * the text around them, or that nobody sees. */
static bool is_control(int32_t rune) {
    static const struct {
        int32_t first, last;
    } formats[] = {{0x61c, 0x61c},   {0x200b, 0x200f}, {0x2028, 0x202e},  {0x2060, 0x206f},
                   {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe007f}};
    if (rune < 0x20 || (rune >= 0x7f && rune < 0xa0) || rune == 0xad) return true;
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (rune >= formats[i].first && rune <= formats[i].last) return true;
    return false;
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

/* Above 0xffff JSON has two halves of a surrogate pair. */
static void json_escape(FILE *out, uint32_t rune) {
    if (rune > 0xffff)
        fprintf(out, "\\u%04" PRIx32 "\\u%04" PRIx32, 0xd800 + ((rune - 0x10000) >> 10), 0xdc00 + (rune & 0x3ff));
    else
        fprintf(out, "\\u%04" PRIx32, rune);
}

static void json_quoted(FILE *out, const char *text) {
    fputc('"', out);
    while (*text) {
        int32_t rune;
        size_t length = next_rune(text, &rune);
        if (rune == -1)
            fputs("\\ufffd", out);
        else if (rune == '"' || rune == '\\')
            fprintf(out, "\\%c", (char)rune);
        else if (is_control(rune))
            json_escape(out, (uint32_t)rune);
        else
            fwrite(text, 1, length, out);
        text += length;
    }
    fputc('"', out);
}

/* Writes what precedes a value: a comma where one is needed, and the key unless it is NULL. */
static void json_place(struct json *json, const char *key) {
    if (json->comma) fputs(", ", json->out);
    json->comma = true;
    if (!key) return;
    json_quoted(json->out, key);
    fputs(": ", json->out);
}

void json_begin(struct json *json, const char *key, char bracket) {
    json_place(json, key);
    fputc(bracket, json->out);
    json->comma = false;
}

void json_end(struct json *json, char bracket) {
    fputc(bracket, json->out);
    json->comma = true;
}

void json_string(struct json *json, const char *key, const char *text) {
    if (!text) {
        json_null(json, key);
        return;
    }
    json_place(json, key);
    json_quoted(json->out, text);
}

void json_number(struct json *json, const char *key, int64_t number) {
    json_place(json, key);
    fprintf(json->out, "%" PRId64, number);
}

void json_decimal(struct json *json, const char *key, double number) {
    json_place(json, key);
    fprintf(json->out, "%.3f", number);
}

void json_bool(struct json *json, const char *key, bool value) {
    json_place(json, key);
    fputs(value ? "true" : "false", json->out);
}

void json_null(struct json *json, const char *key) {
    json_place(json, key);
    fputs("null", json->out);
}

void json_newline(struct json *json) {
    fputc('\n', json->out);
}

/* ---- text that is safe to show ----------------------------------------------------------------------------------- */

/* Writes `text` with each control character, and each byte that is not UTF-8, replaced by `bad`. */
static void put_clean(FILE *out, const char *text, const char *bad) {
    while (*text) {
        int32_t rune;
        size_t length = next_rune(text, &rune);
        if (rune == -1 || is_control(rune))
            fputs(bad, out);
        else
            fwrite(text, 1, length, out);
        text += length;
    }
}

void clean_text(FILE *out, const char *text) {
    put_clean(out, text, "\xef\xbf\xbd");
}

size_t mask_text(char *text) {
    char *to = text;
    for (const char *at = text; *at;) {
        int32_t rune;
        size_t length = next_rune(at, &rune);
        if (rune == -1 || is_control(rune)) {
            *to++ = '?';
        } else {
            memmove(to, at, length);
            to += length;
        }
        at += length;
    }
    *to = '\0';
    return (size_t)(to - text);
}

size_t first_characters(const char *text, size_t n) {
    const char *end = text;
    for (int32_t rune; n > 0 && *end; n--) end += next_rune(end, &rune);
    return (size_t)(end - text);
}

/* ---- HTML and XML ------------------------------------------------------------------------------------------------ */

void html_text(FILE *out, const char *text) {
    while (*text) {
        int32_t rune;
        size_t length = next_rune(text, &rune);
        if (rune == -1 || is_control(rune) || (rune & 0xfffe) == 0xfffe)
            fputs("\xef\xbf\xbd", out);
        else if (rune < 0x80 && strchr("<>&\"'", rune))
            fprintf(out, "&#%d;", (int)rune);
        else
            fwrite(text, 1, length, out);
        text += length;
    }
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

/* Returns the number of characters in a cell. Wide and combining characters are one: a Unicode table would be out
 * of proportion. */
static size_t cell_width(const char *cell) {
    size_t width = 0;
    for (int32_t rune; *cell; width++) cell += next_rune(cell, &rune);
    return width;
}

static void print_cell(FILE *out, const char *cell) {
    put_clean(out, cell, "?");
}

void fill_text(FILE *out, const char *text, size_t column) {
    size_t at = column;
    for (text += strspn(text, " "); *text;) {
        char word[1024];
        size_t length = strcspn(text, " ");
        snprintf(word, sizeof word, "%.*s", (int)length, text);
        size_t width = cell_width(word);
        if (at > column && at + 1 + width > LINE_COLUMNS) {
            fprintf(out, "\n%*s", (int)column, "");
            at = column;
        } else if (at > column) {
            fputc(' ', out);
            at++;
        }
        print_cell(out, word);
        at += width;
        text += length;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

void table_add(struct table *table, const char *const *cells) {
    if (table->rows == table->capacity) {
        size_t capacity = table->capacity ? 2 * table->capacity : 16;
        char **more = realloc(table->cells, capacity * table->columns * sizeof *more);
        if (!more) {
            table->failed = true;
            return;
        }
        table->cells = more;
        table->capacity = capacity;
    }
    char **row = table->cells + table->rows++ * table->columns;
    for (size_t i = 0; i < table->columns; i++) {
        row[i] = strdup(cells[i]);
        if (!row[i]) table->failed = true;
    }
}

void table_print(struct table *table, FILE *out) {
    size_t widths[TABLE_COLUMNS] = {0};
    size_t n = table->rows * table->columns;
    for (size_t i = 0; i < n; i++) {
        size_t width = table->cells[i] ? cell_width(table->cells[i]) : 0;
        if (width > widths[i % table->columns]) widths[i % table->columns] = width;
    }
    for (size_t i = 0; i < n; i++) {
        const char *cell = table->cells[i] ? table->cells[i] : "";
        size_t column = i % table->columns;
        print_cell(out, cell);
        if (column + 1 == table->columns)
            fputc('\n', out);
        else
            fprintf(out, "%*s", (int)(widths[column] - cell_width(cell)) + 2, "");
        free(table->cells[i]);
    }
    free(table->cells);
    table->cells = NULL;
    table->rows = table->capacity = 0;
}
