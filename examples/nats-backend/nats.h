/* The connection to NATS, and its protocol of lines. */
#ifndef NATS_H
#define NATS_H

#include <dlock/backend_stream.h>

#include <inttypes.h>
#include <jansson.h>

enum {
    KEY_SIZE = 3 * 255 + 1,
    LINE_SIZE = 8192,
    REPLIES = 1, /* our subscriptions: answers … */
    WAKES = 2,   /* … and changes of keys */
    BATCH = 256  /* most requests at the same time */
};

/* The last value of a key. */
struct entry {
    uint64_t revision; /* 0: there is none */
    bool held;
    int64_t end_us; /* of the lease, or when it was released; by the server's clock */
    int64_t lease_ms;
    uint64_t fence;
    char token[DLOCK_TOKEN_MAX + 1];
};

struct nats {
    struct dlock_stream stream;
    bool open, unanswered, probed;
    struct dlock_text in; /* what the server has sent; the first `used` bytes are read already */
    size_t used;
    struct dlock_text out; /* requests that are not sent yet */
    unsigned serial;       /* of the last one */
    size_t asked, answered;
    json_t *answers[BATCH];
    struct entry entries[BATCH]; /* of the claims in the present call */
    char client[25], inbox[80], where[80], bucket[64], version[32];
    int64_t max_age_ms;          /* how long the bucket keeps a value; 0: forever */
    int64_t server_us, local_us; /* the server's clock, and ours right after that was read */
    char name[256];              /* of the last wake-up */
    /* of the present call: */
    int64_t deadline_us;
    struct dlock_error *err;
};

/* Begins an operation. */
struct nats *wire_begin(void *conn, int ms, struct dlock_error *err);

/* Connects, and authenticates. Returns 0 or a code. */
int wire_connect(struct nats *c, const struct dlock_uri *uri);

/* Set the error of the present operation, and return the code: this one, EPROTO, EUNAVAILABLE. */
DLOCK_PRINTF(3, 4) int wire_fail(const struct nats *c, int code, const char *format, ...);
int wire_invalid(const struct nats *c, const char *what);
int wire_late(const struct nats *c);

/* Sends a text, and frees it; sends one word. Return 0 or a code. */
int wire_send(struct nats *c, struct dlock_text *text);
int wire_word(struct nats *c, const char *word);

/* A line that the server has sent, with the message that belongs to it. Its texts are valid until the next one. */
struct message {
    char line[LINE_SIZE];
    const char *word;
    const char *subject; /* NULL: it is no message */
    int subscription;
    const char *body; /* NULL: nobody listens to the subject of the request */
    size_t n;
};

/* Returns 1, 0 (nothing came by the deadline) or a code. */
int wire_next(struct nats *c, struct message *out);

/* Waits for a line that begins with this word. Returns 0 or a code. */
int wire_await(struct nats *c, const char *word, struct message *out);

enum { NO_CONSUMER = 10014, NO_MESSAGE = 10037, NO_STREAM = 10059, WRONG_REVISION = 10071 };

/* Adds a request, whose subject is `subject`, the bucket's name and `key`. `revision`: the last one of the key that it
 * expects; -1: any. */
void wire_ask(struct nats *c, const char *subject, const char *key, const char *body, int64_t revision);

/* Sends them, and gets their answers in c->answers, in the order of the requests, valid until the next ones. Returns 0 or a
 * code. */
int wire_answers(struct nats *c);

/* Frees the answers. */
void wire_forget(struct nats *c);

/* What an answer says: 0, JetStream's number of one of the errors above, or a code. */
int wire_fault(struct nats *c, const json_t *answer);

/* All of this for one request. */
int wire_request(struct nats *c, const char *subject, const char *key, const char *body, int64_t revision);

/* A member of an object; -1, "": there is none of this type. */
int64_t wire_number(const json_t *object, const char *key);
const char *wire_string(const json_t *object, const char *key);

#endif
