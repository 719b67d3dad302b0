/* What stands in a lock file, for us and for people:
 *
 *     dlock lock, format 1
 *     fence 1795248000000000
 *     token 5f0c…e1.17@host:4242
 *     name  nightly report
 *
 * Fence and token are padded with blanks, so that the record of a name always has the same length and is replaced by
 * one write. It may all the same be torn (the machine lost power), damaged, or written by somebody else: reading
 * believes nothing. A damaged fence is no danger, because fences also follow the clock.
 *
 * SPDX-License-Identifier: MIT
 */
#include "file.h"

#include <errno.h>
#include <unistd.h>

#define TITLE "dlock lock, format 1\n"
#define FENCE "fence "
#define TOKEN "token "
#define NAME "name  "

enum {
    FENCE_DIGITS = 17,   /* of 2^55 */
    TITLE_AT_LEAST = 12, /* of a torn record: enough to know it for ours */
    FIXED_LENGTH = sizeof TITLE FENCE TOKEN NAME - 1 + FENCE_DIGITS + DLOCK_TOKEN_MAX + 3
};

static const uint64_t fence_limit = UINT64_C(1) << 55;

/* The value of the line at *at if it begins with `label`, else ""; *at moves on. */
static size_t take_line(const char **at, const char *end, const char *label, const char **value) {
    size_t label_length = strlen(label);
    const char *newline = memchr(*at, '\n', (size_t)(end - *at));
    const char *stop = newline ? newline : end;
    bool whole = newline && (size_t)(stop - *at) >= label_length && memcmp(*at, label, label_length) == 0;
    *value = whole ? *at + label_length : stop;
    *at = newline ? newline + 1 : end;
    return (size_t)(stop - *value);
}

static size_t without_padding(const char *text, size_t length) {
    while (length > 0 && text[length - 1] == ' ') length--;
    return length;
}

static uint64_t parse_fence(const char *text, size_t length) {
    uint64_t fence = 0;
    if (length == 0 || length > FENCE_DIGITS) return 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9') return 0;
        fence = fence * 10 + (uint64_t)(text[i] - '0');
    }
    return fence < fence_limit ? fence : 0; /* we never wrote a larger one */
}

/* Copies `text` when it fits and all its bytes are fit to be shown. */
static void parse_text(char *out, size_t size, const char *text, size_t length, unsigned char first,
                       unsigned char last) {
    *out = '\0';
    if (length >= size) return;
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (byte < first || byte > last || byte == 0x7f) return;
    }
    memcpy(out, text, length);
    out[length] = '\0';
}

enum file_content file_record_read(int fd, struct file_record *record) {
    char text[FIXED_LENGTH + FILE_NAME_SIZE];
    const char *value, *at = text;
    ssize_t got;
    memset(record, 0, sizeof *record);
    do got = pread(fd, text, sizeof text, 0);
    while (got < 0 && errno == EINTR);
    if (got < 0) return FILE_UNREADABLE;

    size_t used = (size_t)got, title = sizeof TITLE - 1;
    if (used < TITLE_AT_LEAST || memcmp(text, TITLE, used < title ? used : title) != 0) {
        for (size_t i = 0; i < used; i++)
            if (text[i] != '\0' && text[i] != ' ' && text[i] != '\n') return FILE_FOREIGN;
        return used < sizeof text ? FILE_BLANK : FILE_FOREIGN; /* more may follow what we saw */
    }
    if (used < title) return FILE_BLANK;
    at += title;
    size_t length = take_line(&at, text + used, FENCE, &value);
    record->fence = parse_fence(value, without_padding(value, length));
    length = take_line(&at, text + used, TOKEN, &value);
    parse_text(record->token, sizeof record->token, value, without_padding(value, length), 0x21, 0x7e);
    length = take_line(&at, text + used, NAME, &value);
    parse_text(record->name, sizeof record->name, value, length, 0x20, 0xff);
    return FILE_RECORD;
}

static char *put(char *at, const char *text, size_t length, size_t width) {
    memcpy(at, text, length);
    memset(at + length, ' ', width - length);
    return at + width;
}

size_t file_record_length(const char *name) {
    return FIXED_LENGTH + strlen(name);
}

int file_record_write(int fd, uint64_t fence, const char *token, const char *name) {
    char text[FIXED_LENGTH + FILE_NAME_SIZE], digits[FENCE_DIGITS];
    size_t n = 0, total = file_record_length(name);
    if (total > sizeof text) return errno = ENAMETOOLONG, -1;
    for (uint64_t rest = fence; n == 0 || rest > 0; rest /= 10) digits[FENCE_DIGITS - ++n] = (char)('0' + rest % 10);
    char *at = put(text, TITLE FENCE, sizeof TITLE FENCE - 1, sizeof TITLE FENCE - 1);
    at = put(at, digits + FENCE_DIGITS - n, n, FENCE_DIGITS);
    at = put(at, "\n" TOKEN, sizeof TOKEN, sizeof TOKEN);
    at = put(at, token, strnlen(token, DLOCK_TOKEN_MAX), DLOCK_TOKEN_MAX);
    at = put(at, "\n" NAME, sizeof NAME, sizeof NAME);
    at = put(at, name, strlen(name), strlen(name));
    *at = '\n';
    ssize_t put_bytes;
    do put_bytes = pwrite(fd, text, total, 0);
    while (put_bytes < 0 && errno == EINTR);
    if (put_bytes >= 0 && (size_t)put_bytes != total) return errno = ENOSPC, -1;
    return put_bytes < 0 ? -1 : 0;
}
