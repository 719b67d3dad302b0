/* Hash slots of a cluster, and error replies that say where one is. */
#include "redis.h"

#include <stdlib.h>

/* The slot is the CRC-16 with the polynomial 0x1021 (XMODEM), modulo the number of slots. */
unsigned redis_slot_of(const char *key, size_t length) {
    unsigned crc = 0;
    for (size_t i = 0; i < length; i++) {
        crc ^= (unsigned)(unsigned char)key[i] << 8;
        for (int bit = 0; bit < 8; bit++) crc = (crc << 1 ^ (crc & 0x8000 ? 0x1021 : 0)) & 0xffff;
    }
    return crc % REDIS_SLOTS;
}

/* Reads "3999 127.0.0.1:6381". The host may contain colons, or be missing. */
static bool read_place(const char *text, struct redis_move *move) {
    char *end;
    const long slot = strtol(text, &end, 10);
    const char *colon = strrchr(end, ':');
    const long port = colon ? strtol(colon + 1, NULL, 10) : 0;
    if (slot < 0 || slot >= REDIS_SLOTS || *end != ' ' || port < 1 || port > 65535 ||
        (size_t)(colon - end) > sizeof move->host)
        return false;
    move->slot = (unsigned)slot;
    move->port = (int)port;
    snprintf(move->host, sizeof move->host, "%.*s", (int)(colon - end - 1), end + 1);
    return true;
}

bool redis_note_move(struct redis_member *member, const redisReply *reply) {
    struct redis_move move = {.kind = REDIS_TRYAGAIN};
    if (reply->type != REDIS_REPLY_ERROR) return false;
    if (strncmp(reply->str, "MOVED ", 6) == 0 && read_place(reply->str + 6, &move))
        move.kind = REDIS_MOVED;
    else if (strncmp(reply->str, "ASK ", 4) == 0 && read_place(reply->str + 4, &move))
        move.kind = REDIS_ASK;
    else if (!redis_error_is(reply, "TRYAGAIN") && !strstr(reply->str, "access a non local key"))
        return false;
    if (member->n_moves < REDIS_MOVES) member->moves[member->n_moves++] = move;
    return true;
}
