/* Puts a key with a lease and deletes it again, through the JSON gateway on one connection that is kept alive: the
 * requests that every lock needs. */
#include "floor.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ANSWER = 4096 };

static struct floor_address address;
static char base[FLOOR_TEXT + 64];

struct answer {
    size_t n;
    char text[ANSWER];
};

static void prepare(struct floor *floor, const char *uri) {
    (void)floor;
    floor_address(uri, 2379, &address);
    floor_need(!*address.user);
    snprintf(base, sizeof base, "http://%s:%d/v3", address.host, address.port);
}

static size_t receive(char *bytes, size_t size, size_t n, void *arg) {
    struct answer *answer = arg;
    floor_check(answer->n + size * n < ANSWER, "reading an answer");
    memcpy(answer->text + answer->n, bytes, size * n);
    answer->n += size * n;
    answer->text[answer->n] = '\0';
    return size * n;
}

static void post(CURL *server, const char *path, const char *body, const char *expected, struct answer *answer) {
    char url[FLOOR_TEXT + 128];
    long status = 0;
    answer->n = 0;
    snprintf(url, sizeof url, "%s%s", base, path);
    curl_easy_setopt(server, CURLOPT_URL, url);
    curl_easy_setopt(server, CURLOPT_POSTFIELDS, body);
    curl_easy_setopt(server, CURLOPT_WRITEDATA, answer);
    floor_check(curl_easy_perform(server) == CURLE_OK, path);
    curl_easy_getinfo(server, CURLINFO_RESPONSE_CODE, &status);
    floor_check(status == 200 && strstr(answer->text, expected), path);
}

/* A connection: its curl handle and its lease. */
struct server {
    CURL *curl;
    char lease[24];
};

static void *connect_to(void) {
    struct server *server = calloc(1, sizeof *server);
    struct answer answer;
    floor_check(server && (server->curl = curl_easy_init()), "connecting");
    curl_easy_setopt(server->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(server->curl, CURLOPT_PROXY, "");
    curl_easy_setopt(server->curl, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(server->curl, CURLOPT_WRITEFUNCTION, receive);
    post(server->curl, "/lease/grant", "{\"TTL\":\"600\"}", "\"ID\"", &answer);
    const char *id = strstr(answer.text, "\"ID\":\"");
    floor_check(id && sscanf(id + 6, "%20[0-9]", server->lease) == 1, "granting a lease");
    return server;
}

static void base64(const char *text, char *out) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n = strlen(text); /* must be a multiple of 3 */
    for (size_t i = 0; i < n; i += 3) {
        unsigned three = (unsigned)text[i] << 16 | (unsigned)text[i + 1] << 8 | (unsigned)text[i + 2];
        for (int k = 0; k < 4; k++) *out++ = digits[three >> (18 - 6 * k) & 63];
    }
    *out = '\0';
}

static void key_of(int number, char out[64]) {
    char key[48];
    snprintf(key, sizeof key, "dlock-bench:floor-%03d/%020d", number % 1000, (int)getpid());
    base64(key, out);
}

static void acquire(void *arg, int number) {
    struct server *server = arg;
    struct answer answer;
    char key[64], body[192];
    key_of(number, key);
    snprintf(body, sizeof body, "{\"key\":\"%s\",\"lease\":\"%s\"}", key, server->lease);
    post(server->curl, "/kv/put", body, "\"header\"", &answer);
}

static void release(void *arg, int number) {
    struct server *server = arg;
    struct answer answer;
    char key[64], body[128];
    key_of(number, key);
    snprintf(body, sizeof body, "{\"key\":\"%s\"}", key);
    post(server->curl, "/kv/deleterange", body, "\"deleted\":\"1\"", &answer);
}

/* Sends a read that the leader has to answer. */
static void round_trip(void *arg) {
    struct server *server = arg;
    struct answer answer;
    post(server->curl, "/kv/range", "{\"key\":\"ZGxvY2s=\"}", "\"header\"", &answer);
}

/* ---- the server's request count ---------------------------------------------------------------------------------- */

static size_t keep(char *bytes, size_t size, size_t n, void *arg) {
    return fwrite(bytes, size, n, arg) * size;
}

/* Returns the number of gRPC calls; a stream counts as one. This request, over plain HTTP, is not among them. */
static int64_t commands(void) {
    static const char name[] = "grpc_server_started_total{";
    static CURL *curl;
    char url[FLOOR_TEXT + 128], line[1024];
    FILE *metrics = tmpfile();
    int64_t sum = 0;
    if (!curl) curl = curl_easy_init();
    floor_check(curl && metrics, "connecting");
    snprintf(url, sizeof url, "http://%s:%d/metrics", address.host, address.port);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, keep);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, metrics);
    floor_check(curl_easy_perform(curl) == CURLE_OK, "reading /metrics");
    rewind(metrics);
    while (fgets(line, sizeof line, metrics)) {
        const char *count = strstr(line, "} ");
        if (strncmp(line, name, sizeof name - 1) == 0 && count) sum += (int64_t)strtod(count + 2, NULL);
    }
    fclose(metrics);
    return sum;
}

struct floor floor_program = {.prepare = prepare,
                              .connect = connect_to,
                              .acquire = acquire,
                              .release = release,
                              .round_trip = round_trip,
                              .commands = commands};
