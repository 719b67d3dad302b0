/* Lines, messages and requests. */
#include "nats.h"

enum { PORT = 4222, MESSAGE_MAX = 2 << 20 };

struct nats *wire_begin(void *conn, int ms, struct dlock_error *err) {
    struct nats *c = conn;
    c->deadline_us = dlock_deadline_us(ms);
    c->err = err;
    return c;
}

int wire_fail(const struct nats *c, int code, const char *format, ...) {
    char what[400];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return dlock_fail(c->err, code, "NATS at %s %s", c->where, what);
}

int wire_invalid(const struct nats *c, const char *what) {
    wire_fail(c, DLOCK_EPROTO, "sent an invalid %s", what);
    dlock_doubt(c->err, "NATS");
    return DLOCK_EPROTO;
}

int wire_late(const struct nats *c) {
    return wire_fail(c, DLOCK_EUNAVAILABLE, "does not answer in time");
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

int wire_send(struct nats *c, struct dlock_text *text) {
    int rc = text->failed ? dlock_fail(c->err, DLOCK_ENOMEM, "out of memory for a request to NATS") : 0, code;
    for (size_t sent = 0; rc == 0 && sent < text->n;) {
        ssize_t n = dlock_stream_send(&c->stream, text->at + sent, text->n - sent);
        if (n > 0)
            sent += (size_t)n;
        else if (errno != EAGAIN && errno != EINTR)
            rc = wire_fail(c, DLOCK_EUNAVAILABLE, "is gone: %s", dlock_stream_why(&c->stream, errno, &code));
        else if (!dlock_stream_wait(&c->stream, POLLOUT, c->deadline_us))
            rc = wire_late(c);
    }
    dlock_text_free(text);
    return rc;
}

int wire_word(struct nats *c, const char *word) {
    struct dlock_text text = {0};
    dlock_text_add(&text, "%s\r\n", word);
    return wire_send(c, &text);
}

/* Has n unread bytes. Returns 1, 0 (not by the deadline) or a code. */
static int fill(struct nats *c, size_t n) {
    int code;
    while (c->in.n - c->used < n) {
        if (!dlock_text_room(&c->in, 4096)) return dlock_fail(c->err, DLOCK_ENOMEM, "out of memory for an answer");
        ssize_t got = dlock_stream_recv(&c->stream, c->in.at + c->in.n, 4096, MSG_DONTWAIT);
        if (got > 0) {
            c->in.n += (size_t)got;
            if (dlock_now_us() >= c->deadline_us) return c->in.n - c->used >= n; /* it may send little by little */
        } else if (got == 0)
            return wire_fail(c, DLOCK_EUNAVAILABLE, "closed the connection");
        else if (errno != EAGAIN && errno != EINTR)
            return wire_fail(c, DLOCK_EUNAVAILABLE, "is gone: %s", dlock_stream_why(&c->stream, errno, &code));
        else if (!dlock_stream_wait(&c->stream, POLLIN, c->deadline_us))
            return 0;
    }
    return 1;
}

/* Reads "MSG subject subscription [reply] bytes" or "HMSG … bytes-of-headers bytes", and these bytes. */
static int read_body(struct nats *c, size_t length, struct message *out) {
    char *words[6], *rest = NULL;
    size_t n = 0, head = 0, size;
    for (char *word = strtok_r(out->line, " \t\r", &rest); word && n < 6; word = strtok_r(NULL, " \t\r", &rest))
        words[n++] = word;
    if (n < 4) return wire_invalid(c, "message");
    size = strtoul(words[n - 1], NULL, 10);
    if (*out->word == 'H') head = strtoul(words[n - 2], NULL, 10);
    if (size > MESSAGE_MAX || head > size) return wire_invalid(c, "message");
    int rc = fill(c, length + size + 2);
    if (rc <= 0) return rc;
    const char *bytes = c->in.at + c->used + length;
    out->subject = words[1];
    out->subscription = atoi(words[2]);
    out->body = head >= 12 && memcmp(bytes, "NATS/1.0 503", 12) == 0 ? NULL : bytes + head;
    out->n = size - head;
    c->used += length + size + 2;
    return 1;
}

int wire_next(struct nats *c, struct message *out) {
    const char *end = NULL;
    if (c->used > 0) memmove(c->in.at, c->in.at + c->used, c->in.n - c->used);
    c->in.n -= c->used;
    c->used = 0;
    while (!(end = c->in.n ? memchr(c->in.at, '\n', c->in.n) : NULL)) {
        int rc = c->in.n < LINE_SIZE ? fill(c, c->in.n + 1) : wire_invalid(c, "line");
        if (rc <= 0) return rc;
    }
    size_t length = (size_t)(end - c->in.at) + 1;
    if (length >= LINE_SIZE) return wire_invalid(c, "line");
    memcpy(out->line, c->in.at, length - 1);
    out->line[length - 1] = '\0';
    out->word = out->line;
    out->subject = NULL;
    if (strncmp(out->line, "MSG ", 4) == 0 || strncmp(out->line, "HMSG ", 5) == 0) return read_body(c, length, out);
    c->used = length;
    if (strncmp(out->line, "PING", 4) == 0 && wire_word(c, "PONG") != 0) return DLOCK_EUNAVAILABLE;
    if (strncmp(out->line, "-ERR", 4) != 0) return 1;
    bool rights =
        strcasestr(out->line, "authori") || strcasestr(out->line, "authenti") || strcasestr(out->line, "permission");
    return wire_fail(c, rights ? DLOCK_EAUTH : DLOCK_EUNAVAILABLE, "says %.200s", out->line);
}

int wire_await(struct nats *c, const char *word, struct message *out) {
    do {
        int rc = wire_next(c, out);
        if (rc < 0) return rc;
        if (rc == 0 || dlock_now_us() >= c->deadline_us) return wire_late(c);
    } while (strncmp(out->word, word, strlen(word)) != 0);
    return 0;
}

int64_t wire_number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

const char *wire_string(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

void wire_ask(struct nats *c, const char *subject, const char *key, const char *body, int64_t revision) {
    char header[96] = "";
    if (revision >= 0)
        snprintf(header, sizeof header, "NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: %" PRId64 "\r\n\r\n",
                 revision);
    dlock_text_add(&c->out, "%s %s%s", *header ? "HPUB" : "PUB", subject, c->bucket);
    dlock_text_add_bytes(&c->out, key, strlen(key));
    dlock_text_add(&c->out, " %s.%u ", c->inbox, ++c->serial);
    if (*header) dlock_text_add(&c->out, "%zu ", strlen(header));
    dlock_text_add(&c->out, "%zu\r\n%s", strlen(header) + strlen(body), header);
    dlock_text_add_bytes(&c->out, body, strlen(body));
    dlock_text_add(&c->out, "\r\n");
    c->asked++;
}

void wire_forget(struct nats *c) {
    while (c->answered > 0) json_decref(c->answers[--c->answered]);
    memset(c->answers, 0, sizeof c->answers);
}

/* The place of an answer among those that are awaited; `asked`: it is none of them. */
static size_t place_of(const struct nats *c, const struct message *message) {
    const char *serial = message->subject ? strrchr(message->subject, '.') : NULL;
    if (!serial || message->subscription != REPLIES) return c->asked;
    size_t place = (unsigned)strtoul(serial + 1, NULL, 10) - (c->serial - (unsigned)c->asked + 1);
    return place < c->asked && !c->answers[place] ? place : c->asked;
}

static int read_answers(struct nats *c) {
    struct message message;
    for (size_t left = c->asked; left > 0;) {
        int rc = wire_await(c, "", &message);
        if (rc != 0) return rc;
        size_t place = place_of(c, &message);
        if (place == c->asked) continue;
        if (!message.body)
            return wire_fail(c, DLOCK_EUNAVAILABLE, "has no JetStream, or no bucket \"%s\" at present", c->bucket);
        c->answers[place] = json_loadb(message.body, message.n, 0, NULL);
        if (!json_is_object(c->answers[place])) return wire_invalid(c, "answer");
        left--;
    }
    c->unanswered = false;
    return 0;
}

int wire_answers(struct nats *c) {
    wire_forget(c);
    c->unanswered = true;
    c->answered = c->asked;
    int rc = wire_send(c, &c->out);
    if (rc == 0) rc = read_answers(c);
    c->asked = 0;
    return rc;
}

int wire_fault(struct nats *c, const json_t *answer) {
    const json_t *error = json_object_get(answer, "error");
    int64_t fault = wire_number(error, "err_code");
    if (!error || fault == NO_CONSUMER || fault == NO_MESSAGE || fault == NO_STREAM || fault == WRONG_REVISION)
        return error ? (int)fault : 0;
    /* from 500 on: there is no leader, no space, … */
    return wire_fail(c, wire_number(error, "code") < 500 ? DLOCK_EPROTO : DLOCK_EUNAVAILABLE, "says %.200s",
                     wire_string(error, "description"));
}

int wire_request(struct nats *c, const char *subject, const char *key, const char *body, int64_t revision) {
    wire_ask(c, subject, key, body, revision);
    int rc = wire_answers(c);
    return rc == 0 ? wire_fault(c, c->answers[0]) : rc;
}

/* ---- connecting -------------------------------------------------------------------------------------------------- */

static int dial(struct nats *c, const struct dlock_uri *uri) {
    static const struct dlock_host local = {"127.0.0.1", "127.0.0.1", PORT};
    const size_t n = uri->n_hosts ? uri->n_hosts : 1;
    int rc = DLOCK_EUNAVAILABLE;
    for (size_t i = 0; i < n && rc == DLOCK_EUNAVAILABLE; i++) {
        const struct dlock_host *host = uri->n_hosts ? &uri->hosts[i] : &local;
        int64_t now_us = dlock_now_us(), share_us = (c->deadline_us - now_us) / (int64_t)(n - i);
        char server[96];
        snprintf(c->where, sizeof c->where, "%.60s:%d", host->host, host->port ? host->port : PORT);
        snprintf(server, sizeof server, "NATS at %s", c->where);
        rc = dlock_stream_dial(&c->stream, uri, NULL, host, host->port ? host->port : PORT, server, now_us + share_us,
                               c->err);
    }
    c->open = rc == 0;
    return rc;
}

/* The server begins. */
static int greet(struct nats *c, const struct dlock_uri *uri) {
    struct dlock_text text = {0};
    struct message message;
    int rc = wire_await(c, "", &message);
    if (rc != 0) dlock_doubt(c->err, "NATS");
    if (rc != 0) return rc;
    json_t *info = strncmp(message.word, "INFO ", 5) == 0 ? json_loads(message.word + 5, 0, NULL) : NULL;
    const bool tls = json_is_true(json_object_get(info, "tls_required"));
    const bool old = !json_is_true(json_object_get(info, "headers"));
    snprintf(c->version, sizeof c->version, "%s", wire_string(info, "version"));
    json_decref(info);
    if (!info) return wire_invalid(c, "greeting");
    if (tls || old)
        return wire_fail(c, DLOCK_ENOTSUP, tls ? "wants TLS, which this backend has not" : "is older than 2.2");
    dlock_text_add(&text, "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true,"
                          "\"lang\":\"C\",\"version\":\"1\",\"name\":\"dlock\"");
    if (uri->user) {
        dlock_text_add(&text, ",\"user\":");
        dlock_text_add_json(&text, uri->user);
        dlock_text_add(&text, ",\"pass\":");
        dlock_text_add_json(&text, uri->password);
    }
    dlock_text_add(&text, "}\r\nSUB %s.* %d\r\nPING\r\n", c->inbox, REPLIES);
    rc = wire_send(c, &text);
    return rc == 0 ? wire_await(c, "PONG", &message) : rc;
}

int wire_connect(struct nats *c, const struct dlock_uri *uri) {
    int rc = dial(c, uri);
    return rc == 0 ? greet(c, uri) : rc;
}
