/* The rows of an answer. They are copied as they are read, so that libmariadb holds one row at a time, and the rows
 * stay when the next result is read. */
#include "maria.h"

#include <stdlib.h>

/* A value is its length in this type, and its bytes. */
typedef uint32_t length_t;
#define NO_VALUE UINT32_MAX

/* Larger buffers, as a list needs them, are freed after use. */
#define BUFFER_KEPT ((size_t)1 << 14)

void maria_forget_answers(struct maria *maria) {
    maria->n_answers = 0;
    maria->kept.used = 0;
    if (maria->kept.size <= BUFFER_KEPT) return;
    free(maria->kept.bytes);
    maria->kept.bytes = NULL;
    maria->kept.size = 0;
}

static bool make_room(struct maria *maria, size_t more) {
    size_t size = maria->kept.size ? maria->kept.size : 512;
    while (size < maria->kept.used + more) size *= 2;
    if (size == maria->kept.size) return true;
    char *bytes = realloc(maria->kept.bytes, size);
    if (!bytes) return false;
    maria->kept.bytes = bytes;
    maria->kept.size = size;
    return true;
}

static void put(struct maria *maria, const void *bytes, size_t length) {
    memcpy(maria->kept.bytes + maria->kept.used, bytes, length);
    maria->kept.used += length;
}

bool maria_keep_row(struct maria *maria, const char *const *row, const unsigned long *lengths) {
    struct maria_answer *answer = &maria->answers[maria->n_answers - 1];
    size_t size = answer->columns * sizeof(length_t);
    for (unsigned i = 0; i < answer->columns; i++) size += row[i] ? lengths[i] : 0;
    if (!make_room(maria, size)) return false;
    for (unsigned i = 0; i < answer->columns; i++) {
        const length_t length = row[i] ? (length_t)lengths[i] : NO_VALUE;
        put(maria, &length, sizeof length);
        if (row[i]) put(maria, row[i], lengths[i]);
    }
    answer->end = (uint32_t)maria->kept.used;
    return true;
}

const struct maria_value *maria_row(struct maria *maria, size_t answer, unsigned columns) {
    struct maria_answer *from = &maria->answers[answer];
    if (answer >= maria->n_answers || from->columns < columns || from->at == from->end) return NULL;
    for (unsigned i = 0; i < from->columns; i++) {
        struct maria_value *value = &maria->value[i];
        length_t length;
        memcpy(&length, maria->kept.bytes + from->at, sizeof length);
        from->at += sizeof length;
        value->bytes = length == NO_VALUE ? NULL : maria->kept.bytes + from->at;
        value->length = length == NO_VALUE ? 0 : length;
        from->at += (uint32_t)value->length;
    }
    return maria->value;
}
