/* The descriptions of a result's columns. libmariadb reads all of them in one step, without a limit, before the first
 * row can be counted. The function for this is in a table of the connection (MYSQL.methods, which mysql.h declares for
 * connection plugins): this file replaces it with one that stops after a few. */
#include "maria.h"

#include <stdlib.h>

#define IS_KNOWN(version) ((version) >= 30300 && (version) < 30500)
#if defined(MARIADB_PACKAGE_VERSION_ID) && IS_KNOWN(MARIADB_PACKAGE_VERSION_ID)

enum { END_OF_COLUMNS = 0xfe, END_MAX = 8, BLOCK = 2048 };

/* Returns memory that libmariadb frees with the descriptions; NULL: there is none. */
static void *take(MYSQL_DATA *columns, size_t size) {
    MA_USED_MEM *block = columns->alloc.used;
    size = (size + sizeof(void *) - 1) & ~(sizeof(void *) - 1);
    if (!block || block->left < size) {
        const size_t room = size > BLOCK ? size : BLOCK;
        block = malloc(sizeof *block + room);
        if (!block) return NULL;
        *block = (MA_USED_MEM){.next = columns->alloc.used, .left = room, .size = sizeof *block + room};
        columns->alloc.used = block;
    }
    char *taken = (char *)block + block->size - block->left;
    block->left -= size;
    return taken;
}

static void release(MYSQL_DATA *columns) {
    for (MA_USED_MEM *block = columns->alloc.used, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    free(columns);
}

/* Reads the length of a value, of at most two bytes: names are short. A value after the end is empty: most servers send
 * no default. False: it is no length, or the value does not fit. */
static bool read_length(const unsigned char **at, const unsigned char *end, size_t *length) {
    enum { TWO_BYTES = 0xfc, LONGEST_IN_ONE = 0xfa };
    if (*at == end) {
        *length = 0;
    } else if (**at <= LONGEST_IN_ONE) {
        *length = *(*at)++;
    } else if (end - *at >= 3 && **at == TWO_BYTES) {
        *length = (size_t)((*at)[1] | (*at)[2] << 8);
        *at += 3;
    } else {
        return false;
    }
    return *length <= (size_t)(end - *at);
}

/* Adds a description with this number of values, as libmariadb would: each ends with a NUL. */
static MYSQL_ROWS *add(MYSQL_DATA *columns, const unsigned char *at, size_t size, unsigned values) {
    const unsigned char *const end = at + size;
    MYSQL_ROWS *column = take(columns, sizeof *column);
    char **value = take(columns, (values + 1) * sizeof *value + values + size);
    if (!column || !value) return NULL;
    char *text = (char *)(value + values + 1);
    for (unsigned i = 0; i < values; i++) {
        size_t length;
        if (!read_length(&at, end, &length)) return NULL;
        value[i] = text;
        memcpy(text, at, length);
        text[length] = '\0';
        text += length + 1;
        at += length;
    }
    value[values] = text;
    *column = (MYSQL_ROWS){.data = value, .length = size};
    columns->rows++;
    return column;
}

/* Takes the place of libmariadb's function, and is called inside of its steps. Returns NULL after an error. */
static MYSQL_DATA *read_columns(MYSQL *link, MYSQL_FIELD *fields, unsigned values) {
    struct maria *maria = (struct maria *)(void *)((char *)link->methods - offsetof(struct maria, methods));
    MYSQL_DATA *columns = calloc(1, sizeof *columns);
    MYSQL_ROWS **last = columns ? &columns->data : NULL;
    (void)fields;
    while (last) {
        const unsigned long size = mysql_net_read_packet(link);
        const unsigned char *packet = link->net.read_pos;
        if (size == packet_error) break;
        if (*packet == END_OF_COLUMNS && size < END_MAX) {
            if (size >= 5) link->server_status = (unsigned)(packet[3] | packet[4] << 8);
            return columns;
        }
        maria->heard += size;
        if (columns->rows == MARIA_COLUMNS || maria->heard > MARIA_ANSWER_MAX)
            maria->flaw = "a result of too many columns";
        *last = maria->flaw ? NULL : add(columns, packet, size, values);
        if (!*last && !maria->flaw) maria->flaw = "the description of a column";
        last = *last ? &(*last)->next : NULL;
    }
    if (columns) release(columns);
    return NULL;
}

void maria_limit_columns(struct maria *maria) {
    if (!IS_KNOWN(mysql_get_client_version())) return;
    maria->methods = *maria->link->methods;
    maria->methods.db_read_rows = read_columns;
    maria->link->methods = &maria->methods;
}

#else
void maria_limit_columns(struct maria *maria) {
    (void)maria;
}
#endif
