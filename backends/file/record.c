/* The contents of a lock file, for us and for people:
 *
 *     dlock lock, format 1
 *     fence 1795248000000000
 *     token 5f0c…e1.17@host:4242
 *     name  nightly report
 *
 * Fence and token are padded with blanks, so that the record of a name always has the same length and is replaced by
 * one write. It may still be torn (after a power failure), damaged, or written by another program: the reader trusts
 * nothing. A damaged fence is no danger, because fences also follow the clock.
 *
 * Readers, or the holders of permits, follow in a list, each in its seat:
 *
 *     reader               fence 1795248000000001  token 5f0c…e1.18@host:4242
 *     permit of 3          fence …
 *
 * The list does not tell whether a seat is taken: the lock on its byte does (byte_locks.c).
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
#define READER "reader"
#define PERMIT "permit of "
#define SEAT_FENCE " fence "
#define SEAT_TOKEN " token "

enum {
    FENCE_DIGITS = 17,   /* number of digits of 2^55 */
    TITLE_AT_LEAST = 12, /* bytes of a torn title that identify a record of dlock */
    FIXED_LENGTH = sizeof TITLE FENCE TOKEN NAME - 1 + FENCE_DIGITS + DLOCK_TOKEN_MAX + 3,
    KIND_WIDTH = sizeof PERMIT - 1 + 10, /* a limit has up to 10 digits */
    SEAT_LENGTH = KIND_WIDTH + sizeof SEAT_FENCE SEAT_TOKEN - 1 + FENCE_DIGITS + DLOCK_TOKEN_MAX + 1
};

static const uint64_t fence_limit = UINT64_C(1) << 55;

/* Sets *value to the value of the line at *at, or to "" if the line does not begin with `label`. Moves *at to the next
 * line. Returns the value's length. */
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

/* Returns the number, or 0 for a text that is no number below `limit`: larger ones are never written. */
static uint64_t parse_number(const char *text, size_t length, uint64_t limit) {
    uint64_t number = 0;
    if (length == 0 || length > FENCE_DIGITS) return 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9') return 0;
        number = number * 10 + (uint64_t)(text[i] - '0');
    }
    return number < limit ? number : 0;
}

/* Copies `text` if it fits and all its bytes are between `first` and `last` and printable; otherwise *out is "". */
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

enum {
    LOOK = FIXED_LENGTH + FILE_NAME_SIZE, /* longest record */
    GLANCE = 64                           /* title and fence are shorter than this */
};

/* Reads the first `size` bytes of the file, and returns its kind; `used` is the number of bytes read. */
static enum file_content look_into(int fd, char *text, size_t size, size_t *used) {
    const size_t title = sizeof TITLE - 1;
    ssize_t got;
    do got = pread(fd, text, size, 0);
    while (got < 0 && errno == EINTR);
    if (got < 0) return FILE_UNREADABLE;
    *used = (size_t)got;
    if (*used >= title && memcmp(text, TITLE, title) == 0) return FILE_RECORD;
    if (*used >= TITLE_AT_LEAST && *used < title && memcmp(text, TITLE, *used) == 0) return FILE_BLANK;
    for (size_t i = 0; i < *used; i++)
        if (text[i] != '\0' && text[i] != ' ' && text[i] != '\n') return FILE_FOREIGN;
    return *used < size ? FILE_BLANK : FILE_FOREIGN; /* the unread rest may have contents */
}

/* Returns the fence in the line at *at, and moves *at to the next line. */
static uint64_t take_fence(const char **at, const char *end) {
    const char *value;
    size_t length = take_line(at, end, FENCE, &value);
    return parse_number(value, without_padding(value, length), fence_limit);
}

enum file_content file_fence_read(int fd, uint64_t *fence) {
    char text[LOOK];
    const char *at = text + sizeof TITLE - 1;
    size_t used;
    enum file_content content = look_into(fd, text, GLANCE, &used);
    if (content != FILE_RECORD && content != FILE_UNREADABLE && used == GLANCE)
        content = look_into(fd, text, LOOK, &used);
    *fence = content == FILE_RECORD ? take_fence(&at, text + used) : 0;
    return content;
}

enum file_content file_record_read(int fd, struct file_record *record) {
    char text[LOOK];
    const char *value, *at = text + sizeof TITLE - 1;
    size_t used;
    memset(record, 0, sizeof *record);
    enum file_content content = look_into(fd, text, LOOK, &used);
    if (content != FILE_RECORD) return content;
    record->fence = take_fence(&at, text + used);
    size_t length = take_line(&at, text + used, TOKEN, &value);
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

static char *put_number(char *at, uint64_t number, size_t width) {
    char digits[FENCE_DIGITS];
    size_t n = 0;
    for (uint64_t rest = number; n == 0 || rest > 0; rest /= 10) digits[FENCE_DIGITS - ++n] = (char)('0' + rest % 10);
    return put(at, digits + FENCE_DIGITS - n, n, width);
}

static char *put_label(char *at, const char *label) {
    return put(at, label, strlen(label), strlen(label));
}

static char *put_token(char *at, const char *token) {
    return put(at, token, strnlen(token, DLOCK_TOKEN_MAX), DLOCK_TOKEN_MAX);
}

/* Checks the limit first, because the kernel would not just let a write beyond it fail: it sends SIGXFSZ. */
static int write_all(const struct file_conn *conn, int fd, const char *text, size_t size, off_t at) {
    ssize_t done;
    if ((rlim_t)at + size > conn->size_limit) return errno = EFBIG, -1;
    do done = pwrite(fd, text, size, at);
    while (done < 0 && errno == EINTR);
    if (done >= 0 && (size_t)done != size) return errno = ENOSPC, -1;
    return done < 0 ? -1 : 0;
}

static size_t record_length(const char *name) {
    return FIXED_LENGTH + strlen(name);
}

bool file_record_fits(const char *name, uint64_t size) {
    size_t length = record_length(name);
    return size >= length && (size - length) % SEAT_LENGTH == 0;
}

int file_record_write(const struct file_conn *conn, int fd, uint64_t fence, const char *token, const char *name) {
    char text[LOOK];
    if (record_length(name) > sizeof text) return errno = ENAMETOOLONG, -1;
    char *at = put_label(text, TITLE FENCE);
    at = put_number(at, fence, FENCE_DIGITS);
    at = put_label(at, "\n" TOKEN);
    at = put_token(at, token);
    at = put_label(at, "\n" NAME);
    at = put_label(at, name);
    *at++ = '\n';
    return write_all(conn, fd, text, (size_t)(at - text), 0);
}

/* ---- seats ------------------------------------------------------------------------------------------------------- */

static off_t seat_offset(const char *name, uint32_t seat) {
    return (off_t)record_length(name) + (off_t)seat * SEAT_LENGTH;
}

int file_seat_write(const struct file_conn *conn, int fd, const char *name, uint32_t seat,
                    const struct file_seat *content) {
    char text[SEAT_LENGTH], *at = text;
    if (content->limit == 0) {
        at = put(at, READER, sizeof READER - 1, KIND_WIDTH);
    } else {
        at = put_label(at, PERMIT);
        at = put_number(at, content->limit, KIND_WIDTH - (sizeof PERMIT - 1));
    }
    at = put_label(at, SEAT_FENCE);
    at = put_number(at, content->fence, FENCE_DIGITS);
    at = put_label(at, SEAT_TOKEN);
    at = put_token(at, content->token);
    *at = '\n';
    return write_all(conn, fd, text, sizeof text, seat_offset(name, seat));
}

void file_seat_read(int fd, const char *name, uint32_t seat, struct file_seat *content) {
    char text[SEAT_LENGTH];
    const char *fence = text + KIND_WIDTH + sizeof SEAT_FENCE - 1;
    const char *token = fence + FENCE_DIGITS + sizeof SEAT_TOKEN - 1;
    const size_t kind = sizeof PERMIT - 1, digits = KIND_WIDTH - kind;
    ssize_t got;
    memset(content, 0, sizeof *content);
    do got = pread(fd, text, sizeof text, seat_offset(name, seat));
    while (got < 0 && errno == EINTR);
    if (got != sizeof text) return;
    if (memcmp(text, PERMIT, kind) == 0)
        content->limit =
            (uint32_t)parse_number(text + kind, without_padding(text + kind, digits), (uint64_t)UINT32_MAX + 1);
    content->fence = parse_number(fence, without_padding(fence, FENCE_DIGITS), fence_limit);
    parse_text(content->token, sizeof content->token, token, without_padding(token, DLOCK_TOKEN_MAX), 0x21, 0x7e);
}
