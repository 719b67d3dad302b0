#include "resp.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { ROOM = 256 * 1024, DEPTH = 32 };

struct text {
    const unsigned char *at, *end;
    unsigned char out[ROOM];
    size_t n;
};

/* What no longer fits is left out: the connection ends there. */
static void put(struct text *text, const void *bytes, size_t n) {
    if (n > ROOM - text->n) n = ROOM - text->n;
    memcpy(text->out + text->n, bytes, n);
    text->n += n;
}

/* Puts a length or a count before what there is since `from`. */
static void put_before(struct text *text, size_t from, char type, size_t count) {
    char head[32];
    const size_t n = (size_t)snprintf(head, sizeof head, "%c%zu\r\n", type, count);
    if (n > ROOM - text->n) return;
    memmove(text->out + from + n, text->out + from, text->n - from);
    memcpy(text->out + from, head, n);
    text->n += n;
}

static bool at_one_of(const struct text *text, const char *bytes) {
    return text->at < text->end && *text->at && strchr(bytes, *text->at);
}

/* A word, or what is in quotes: a string, or an integer as it is. */
static void expand_word(struct text *text) {
    const size_t from = text->n;
    const bool quoted = at_one_of(text, "\""), integer = at_one_of(text, ":");
    text->at += quoted;
    for (; text->at < text->end && !at_one_of(text, quoted ? "\"\n" : " ()\n"); text->at++)
        if (quoted && *text->at == '~')
            put(text, "\r\n", 2);
        else
            put(text, text->at, 1);
    text->at += quoted && at_one_of(text, "\"");
    if (!integer) put_before(text, from, '$', text->n - from);
    put(text, "\r\n", 2);
}

/* False where there is none. */
static bool expand_reply(struct text *text, int depth) {
    const size_t from = text->n;
    size_t items = 0;
    while (at_one_of(text, " ")) text->at++;
    if (text->at == text->end || at_one_of(text, ")\n")) return false;
    if (!at_one_of(text, "(")) {
        expand_word(text);
        return true;
    }
    if (depth == 0) return false;
    text->at++;
    while (expand_reply(text, depth - 1)) items++;
    text->at += at_one_of(text, ")");
    put_before(text, from, '*', items);
    return true;
}

void resp_expand(const unsigned char **data, size_t *size) {
    static struct text text;
    text.at = *data;
    text.end = *data + *size;
    text.n = 0;
    while (text.at < text.end) {
        const bool brief = at_one_of(&text, "@");
        text.at += brief;
        if (brief) expand_reply(&text, DEPTH);
        const unsigned char *rest = memchr(text.at, '\n', (size_t)(text.end - text.at));
        const unsigned char *next = rest ? rest + 1 : text.end;
        if (!brief) put(&text, text.at, (size_t)(next - text.at));
        text.at = next;
    }
    *data = text.out;
    *size = text.n;
}
