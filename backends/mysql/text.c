/* Writing statements, and parsing values in the server's text format. */
#include "maria.h"

#include <stdlib.h>

void maria_begin(struct maria *maria) {
    maria->used = 0;
    maria->no_memory = false;
}

/* Makes room for `more` more bytes and a NUL. */
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

void maria_say_name_and_token(struct maria *maria, const struct dlock_claim *claim, const char *between) {
    maria_say_bytes(maria, claim->name, strlen(claim->name));
    maria_say(maria, "%s", between);
    maria_say_bytes(maria, claim->token, strlen(claim->token));
}

bool maria_number(const struct maria_value *value, int64_t *number) {
    int64_t sum = 0;
    if (!value->bytes || value->length == 0 || value->length > 18) return false;
    for (size_t i = 0; i < value->length; i++) {
        char digit = value->bytes[i];
        if (digit < '0' || digit > '9') return false;
        sum = sum * 10 + (digit - '0');
    }
    *number = sum;
    return true;
}

bool maria_bytes(const struct maria_value *value, size_t least, char *out, size_t size) {
    if (!value->bytes || value->length < least || value->length >= size) return false;
    if (memchr(value->bytes, '\0', value->length)) return false;
    memcpy(out, value->bytes, value->length);
    out[value->length] = '\0';
    return true;
}
