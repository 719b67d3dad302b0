/* Writing statements, and parsing values in the server's text format. */
#include "maria.h"

#include <stdlib.h>

void maria_begin(struct maria *maria) {
    maria->used = 0;
    maria->no_memory = false;
}

/* Makes room for so many more bytes and a NUL. */
static bool make_room(struct maria *maria, size_t more) {
    size_t size = maria->size ? maria->size : 1024;
    while (size <= maria->used + more) size *= 2;
    if (size == maria->size) return true;
    char *text = realloc(maria->text, size);
    if (!text) {
        maria->no_memory = true;
        return false;
    }
    maria->text = text;
    maria->size = size;
    return true;
}

void maria_say(struct maria *maria, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    if (length >= 0 && make_room(maria, (size_t)length)) {
        vsnprintf(maria->text + maria->used, (size_t)length + 1, format, again);
        maria->used += (size_t)length;
    }
    va_end(again);
    va_end(args);
}

void maria_say_bytes(struct maria *maria, const char *bytes, size_t length) {
    static const char hex[] = "0123456789abcdef";
    if (!make_room(maria, 2 * length + 3)) return;
    char *out = maria->text + maria->used;
    *out++ = 'x';
    *out++ = '\'';
    for (size_t i = 0; i < length; i++) {
        *out++ = hex[(unsigned char)bytes[i] >> 4];
        *out++ = hex[(unsigned char)bytes[i] & 15];
    }
    *out++ = '\'';
    maria->used = (size_t)(out - maria->text);
}

MYSQL_ROW maria_row(struct maria *maria, size_t answer, unsigned columns) {
    if (answer >= maria->n_answers || !maria->answers[answer].rows) return NULL;
    if (mysql_num_fields(maria->answers[answer].rows) < columns) return NULL;
    return mysql_fetch_row(maria->answers[answer].rows);
}

bool maria_number(MYSQL_RES *rows, MYSQL_ROW row, unsigned column, int64_t *value) {
    const unsigned long *lengths = mysql_fetch_lengths(rows);
    if (!lengths || !row[column] || lengths[column] == 0 || lengths[column] > 18) return false;
    int64_t number = 0;
    for (unsigned long i = 0; i < lengths[column]; i++) {
        char digit = row[column][i];
        if (digit < '0' || digit > '9') return false;
        number = number * 10 + (digit - '0');
    }
    *value = number;
    return true;
}

bool maria_bytes(MYSQL_RES *rows, MYSQL_ROW row, unsigned column, size_t least, char *out, size_t size) {
    const unsigned long *lengths = mysql_fetch_lengths(rows);
    if (!lengths || !row[column] || lengths[column] < least || lengths[column] >= size) return false;
    if (memchr(row[column], '\0', lengths[column])) return false;
    memcpy(out, row[column], lengths[column]);
    out[lengths[column]] = '\0';
    return true;
}
