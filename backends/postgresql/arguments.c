/* Values in the server's binary format: big-endian numbers, and arrays as a header followed by elements with lengths.
 */
#include "postgresql.h"

#include <stdlib.h>

static void put(struct pg_arguments *arguments, const void *bytes, size_t length) {
    if (arguments->failed) return;
    if (length > arguments->size - arguments->used) {
        size_t size = arguments->size ? arguments->size * 2 : 4096;
        while (size - arguments->used < length) size *= 2;
        char *grown = realloc(arguments->bytes, size);
        if (!grown) {
            arguments->failed = true;
            return;
        }
        arguments->bytes = grown;
        arguments->size = size;
    }
    if (length) memcpy(arguments->bytes + arguments->used, bytes, length);
    arguments->used += length;
}

static void put_number(struct pg_arguments *arguments, uint64_t value, size_t length) {
    unsigned char bytes[8];
    for (size_t i = 0; i < length; i++) bytes[i] = (unsigned char)(value >> (8 * (length - 1 - i)));
    put(arguments, bytes, length);
}

static void begin_one(struct pg_arguments *arguments, bool null) {
    arguments->at[arguments->n] = arguments->used;
    arguments->null[arguments->n++] = null;
}

void pg_begin(struct pg_arguments *arguments) {
    arguments->used = 0;
    arguments->n = 0;
    arguments->failed = false;
}

void pg_add_int4(struct pg_arguments *arguments, int32_t value) {
    begin_one(arguments, false);
    put_number(arguments, (uint32_t)value, 4);
}

void pg_add_int8(struct pg_arguments *arguments, int64_t value) {
    begin_one(arguments, false);
    put_number(arguments, (uint64_t)value, 8);
}

void pg_drop_last(struct pg_arguments *arguments) {
    arguments->used = arguments->at[--arguments->n];
}

void pg_add_bytes(struct pg_arguments *arguments, const void *bytes, size_t length) {
    begin_one(arguments, !bytes);
    if (bytes) put(arguments, bytes, length);
}

void pg_add_column(struct pg_arguments *arguments, const PGresult *rows, int column) {
    begin_one(arguments, false);
    for (int row = 0; row < PQntuples(rows); row++)
        put(arguments, PQgetvalue(rows, row, column), (size_t)PQgetlength(rows, row, column));
}

void pg_add_array(struct pg_arguments *arguments, enum pg_type type, size_t n) {
    begin_one(arguments, false);
    put_number(arguments, 1, 4); /* dimensions */
    put_number(arguments, 0, 4); /* no NULLs */
    put_number(arguments, type, 4);
    put_number(arguments, n, 4);
    put_number(arguments, 1, 4); /* the first index */
}

void pg_item_bytes(struct pg_arguments *arguments, const void *bytes, size_t length) {
    put_number(arguments, length, 4);
    put(arguments, bytes, length);
}

void pg_item_int8(struct pg_arguments *arguments, int64_t value) {
    put_number(arguments, 8, 4);
    put_number(arguments, (uint64_t)value, 8);
}

void pg_item_int4(struct pg_arguments *arguments, int32_t value) {
    put_number(arguments, 4, 4);
    put_number(arguments, (uint32_t)value, 4);
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static bool read_number(const PGresult *rows, int row, int column, enum pg_type type, int length, uint64_t *value) {
    const unsigned char *bytes = (const unsigned char *)PQgetvalue(rows, row, column);
    if (PQgetisnull(rows, row, column) || PQftype(rows, column) != (Oid)type || PQfformat(rows, column) != 1 ||
        PQgetlength(rows, row, column) != length)
        return false;
    *value = 0;
    for (int i = 0; i < length; i++) *value = *value << 8 | bytes[i];
    return true;
}

bool pg_read_int8(const PGresult *rows, int row, int column, int64_t *value) {
    uint64_t number;
    if (!read_number(rows, row, column, PG_INT8, 8, &number)) return false;
    *value = (int64_t)number;
    return true;
}

/* PostgreSQL counts microseconds from 2000-01-01, this backend from 1970-01-01. */
bool pg_read_time(const PGresult *rows, int row, int column, int64_t *unix_us) {
    uint64_t number;
    if (!read_number(rows, row, column, PG_TIME, 8, &number) || number >> 62) return false;
    *unix_us = (int64_t)number + INT64_C(946684800000000);
    return true;
}

bool pg_read_int4(const PGresult *rows, int row, int column, int32_t *value) {
    uint64_t number;
    if (!read_number(rows, row, column, PG_INT4, 4, &number)) return false;
    *value = (int32_t)(uint32_t)number;
    return true;
}

bool pg_read_bool(const PGresult *rows, int row, int column, bool *value) {
    uint64_t number;
    if (!read_number(rows, row, column, PG_BOOL, 1, &number)) return false;
    *value = number != 0;
    return true;
}

bool pg_read_text(const PGresult *rows, int row, int column, char *out, size_t size) {
    int length = PQgetlength(rows, row, column);
    Oid type = PQftype(rows, column);
    if (PQgetisnull(rows, row, column) || (type != PG_BYTEA && type != PG_TEXT) || length < 1 ||
        (size_t)length >= size || memchr(PQgetvalue(rows, row, column), '\0', (size_t)length))
        return false;
    memcpy(out, PQgetvalue(rows, row, column), (size_t)length);
    out[length] = '\0';
    return true;
}
