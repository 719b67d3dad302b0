#include "floor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void floor_decode(const char *begin, const char *end, char *out, size_t size) {
    for (; begin < end; begin++, out++, size--) {
        unsigned byte = (unsigned char)*begin;
        floor_need(size > 1);
        if (*begin == '%') {
            floor_need(end - begin > 2 && sscanf(begin + 1, "%2x", &byte) == 1 && byte != 0);
            begin += 2;
        }
        *out = (char)byte;
    }
    *out = '\0';
}

void floor_address(const char *uri, int default_port, struct floor_address *address) {
    const char *host = strstr(uri, "://");
    memset(address, 0, sizeof *address);
    floor_need(host != NULL && !memchr(uri, '+', (size_t)(host - uri)));
    host += 3;
    const char *end = host + strcspn(host, "/?"), *at = memchr(host, '@', (size_t)(end - host));
    if (at) {
        const char *colon = memchr(host, ':', (size_t)(at - host));
        floor_decode(host, colon ? colon : at, address->user, sizeof address->user);
        if (colon) floor_decode(colon + 1, at, address->password, sizeof address->password);
        host = at + 1;
    }
    const char *port = memchr(host, ':', (size_t)(end - host));
    floor_need(host < end && !memchr(host, ',', (size_t)(end - host)) && *host != '[');
    floor_decode(host, port ? port : end, address->host, sizeof address->host);
    address->port = port ? atoi(port + 1) : default_port;
    if (*end == '/') floor_decode(end + 1, end + strcspn(end, "?"), address->path, sizeof address->path);
}

bool floor_key(const char *uri, const char *key, char value[FLOOR_TEXT]) {
    size_t length = strlen(key);
    for (const char *at = strchr(uri, '?'); at; at = strchr(at, '&')) {
        at++;
        if (strncmp(at, key, length) != 0 || at[length] != '=') continue;
        floor_decode(at + length + 1, at + strcspn(at, "&"), value, FLOOR_TEXT);
        return true;
    }
    return false;
}
