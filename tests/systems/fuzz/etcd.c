/* etcd: the JSON of its gateway, errors, streams that report deleted keys. libcurl itself is not tested: this file
 * replaces its functions that talk to a server, and makes their results from the input, a line for each request:
 *
 *   <JSON>          the answer to the next request, with the status 200
 *   <digits><JSON>  the same with another status
 *   -<digits>       no answer: libcurl's code
 *   ~<JSON>         a message of the streams that are open; ^<JSON>: the beginning of one
 *
 * The end of the input is the end of all connections. If the script begins with '!', the lease is not granted
 * beforehand, and the URI has a user: the input then also answers the requests of a new connection. Keys have the lease
 * 4711, "…/1267". */
#include "operate.h"

#include <ctype.h>
#include <etcd.h>
#include <stdlib.h>

/* The linker puts the functions named __wrap_… in the place of others: nothing else names them. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

extern const struct dlock_backend dlock_backend_etcd;

/* Replaces a handle of libcurl. */
struct handle {
    struct handle *next; /* in the list of streams */
    curl_write_callback write;
    void *to, *private;
    long status;
    bool told; /* its end has been reported */
};

/* Of the member's state, which tells the term, and of the lease. */
static const char lease[] = "{\"header\":{\"revision\":\"5\",\"raft_term\":\"2\"}}\n"
                            "{\"header\":{\"revision\":\"5\",\"raft_term\":\"2\"},\"ID\":\"4711\",\"TTL\":\"60\"}\n";

static struct {
    const char *greeting; /* its unread rest */
    const char *at, *end;
    struct handle *streams;
} server;

/* ---- the input --------------------------------------------------------------------------------------------------- */

/* Takes a line of the greeting or of the input. False: there is none. */
static bool take_line(const char **line, size_t *n) {
    const char *from = *server.greeting ? server.greeting : server.at;
    const char *end = *server.greeting ? from + strlen(from) : server.end;
    if (from == end) return false;
    const char *stop = memchr(from, '\n', (size_t)(end - from));
    *line = from;
    *n = (size_t)((stop ? stop : end) - from);
    if (*server.greeting)
        server.greeting = stop + 1;
    else
        server.at = stop ? stop + 1 : end;
    return true;
}

static bool is_message(void) {
    return server.at < server.end && (*server.at == '~' || *server.at == '^');
}

/* Takes the digits at the beginning of a line. */
static long take_number(const char **line, size_t *n) {
    long number = 0;
    for (; *n > 0 && number < 1000 && isdigit((unsigned char)**line); ++*line, --*n)
        number = number * 10 + **line - '0';
    return number;
}

/* Gives the bytes to the handle's write function, in two pieces. False: it has refused one. */
static bool bring(const struct handle *handle, const char *bytes, size_t n) {
    char copy[32 * 1024];
    size_t half = n / 2;
    memcpy(copy, bytes, n);
    if (half && handle->write(copy, 1, half, handle->to) != half) return false;
    return n == half || handle->write(copy + half, 1, n - half, handle->to) == n - half;
}

/* ---- libcurl's part: requests ------------------------------------------------------------------------------------ */

CURL *__wrap_curl_easy_init(void) {
    return calloc(1, sizeof(struct handle));
}

void __wrap_curl_easy_cleanup(CURL *easy) {
    free(easy);
}

CURLcode __wrap_curl_easy_setopt(CURL *easy, CURLoption option, ...) {
    struct handle *handle = easy;
    va_list args;
    va_start(args, option);
    if (option == CURLOPT_WRITEFUNCTION) handle->write = va_arg(args, curl_write_callback);
    if (option == CURLOPT_WRITEDATA) handle->to = va_arg(args, void *);
    if (option == CURLOPT_PRIVATE) handle->private = va_arg(args, void *);
    va_end(args);
    return CURLE_OK;
}

CURLcode __wrap_curl_easy_getinfo(CURL *easy, CURLINFO info, ...) {
    const struct handle *handle = easy;
    va_list args;
    va_start(args, info);
    void *out = va_arg(args, void *);
    va_end(args);
    if (info == CURLINFO_RESPONSE_CODE) memcpy(out, &handle->status, sizeof handle->status);
    if (info == CURLINFO_PRIVATE) memcpy(out, &handle->private, sizeof handle->private);
    return CURLE_OK;
}

CURLcode __wrap_curl_easy_perform(CURL *easy) {
    struct handle *handle = easy;
    const char *line;
    size_t n;
    do {
        if (!take_line(&line, &n)) return CURLE_COULDNT_CONNECT;
    } while (n > 0 && (*line == '~' || *line == '^')); /* messages that no stream has read */
    if (n > 0 && *line == '-') {
        line++, n--;
        long code = take_number(&line, &n);
        return code > 0 && code < CURL_LAST ? (CURLcode)code : CURLE_GOT_NOTHING;
    }
    handle->status = n > 0 && isdigit((unsigned char)*line) ? take_number(&line, &n) : 200;
    return bring(handle, line, n) ? CURLE_OK : CURLE_WRITE_ERROR;
}

/* ---- libcurl's part: streams ------------------------------------------------------------------------------------- */

CURLMcode __wrap_curl_multi_add_handle(CURLM *multi, CURL *easy) {
    struct handle *handle = easy;
    (void)multi;
    handle->next = server.streams;
    server.streams = handle;
    return CURLM_OK;
}

CURLMcode __wrap_curl_multi_remove_handle(CURLM *multi, CURL *easy) {
    (void)multi;
    for (struct handle **at = &server.streams; *at; at = &(*at)->next) {
        if (*at != easy) continue;
        *at = (*at)->next;
        return CURLM_OK;
    }
    return CURLM_OK;
}

CURLMcode __wrap_curl_multi_socket_action(CURLM *multi, curl_socket_t fd, int what, int *running) {
    (void)multi, (void)fd, (void)what, (void)running;
    return CURLM_OK;
}

/* Delivers the messages at this place of the input; at its end, returns the streams, which have ended then. */
CURLMsg *__wrap_curl_multi_info_read(CURLM *multi, int *left) {
    static CURLMsg message;
    const char *line;
    size_t n;
    (void)multi;
    *left = 0;
    while (is_message() && take_line(&line, &n)) {
        for (const struct handle *handle = server.streams; handle; handle = handle->next) {
            char end[] = "\n";
            bring(handle, line + 1, n - 1);
            if (*line == '~') bring(handle, end, 1);
        }
    }
    for (struct handle *handle = server.streams; handle && server.at == server.end; handle = handle->next) {
        if (handle->told) continue;
        handle->told = true;
        message = (CURLMsg){.msg = CURLMSG_DONE, .easy_handle = handle};
        return &message;
    }
    return NULL;
}

/* ---- the target -------------------------------------------------------------------------------------------------- */

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    static const struct dlock_uri plain = {.scheme = "etcd", .path = "/fuzz"},
                                  strict = {.scheme = "etcd", .user = "u", .password = FUZZ_PASSWORD, .path = "/fuzz"};
    struct dlock_error err = {0};
    const bool told = fuzz_tells(data, size);
    struct etcd *z = NULL;
    char script[32];
    if (size > 32 * 1024 || !fuzz_script(&data, &size, script)) return 0;
    const bool naked = *script == '!';
    server.greeting = naked ? "" : lease;
    server.at = (const char *)data;
    server.end = server.at + size;
    int rc = dlock_backend_etcd.connect(&z, naked ? &strict : &plain, &fuzz_peer,
                                        naked ? FUZZ_TIMEOUT_MS : FUZZ_CONNECT_MS, &err);
    fuzz_require(naked || rc == 0, "the lease of an honest server");
    fuzz_connected(&dlock_backend_etcd, &z, rc, &err, told, script + naked);
    fuzz_require(!server.streams, "no stream that is left");
    return 0;
}
