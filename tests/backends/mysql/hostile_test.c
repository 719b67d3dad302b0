/* A server that greets as MariaDB does, and then sends without end: an error in time, and nothing fills up. Or one that
 * asks for the password, or has used up its resources. */
#include "support/clock.h"
#include "support/flood.h"
#include "support/link.h"
#include "support/test.h"

#include <poll.h>
#include <sys/socket.h>

enum { SHORT_MS = 300, SLACK_MS = 3000 };

/* For how long the server sends, and how much: by far more than a client may take, and more than the buffers of two
 * sockets hold. */
enum { SEND_MS = 8000, SEND_MAX = 64 << 20, TAKEN_MAX = 32 << 20 };

enum { PARTS = 4 };

struct packets {
    unsigned char *bytes;
    size_t used;
    unsigned serial;
};

/* Adds a packet: three bytes of length, a serial number, the content. */
static void add(struct packets *to, const void *content, size_t length) {
    const unsigned char head[4] = {(unsigned char)length, (unsigned char)(length >> 8), (unsigned char)(length >> 16),
                                   (unsigned char)to->serial++};
    assert_true(to->used + length + sizeof head <= FLOOD_PIECE);
    memcpy(to->bytes + to->used, head, sizeof head);
    memcpy(to->bytes + to->used + sizeof head, content, length);
    to->used += length + sizeof head;
}

#define ADD(to, literal) add(to, literal, sizeof(literal) - 1)

#define GREETING_OF(method)                            \
    "\x0a"                                             \
    "10.11.6-MariaDB\0"                                \
    "\1\0\0\0"                                         \
    "12345678\0"                                       \
    "\xff\xf7\x21\2\0\xff\xa0\x15\0\0\0\0\0\0\0\0\0\0" \
    "123456789012\0" method "\0"
#define GREETING GREETING_OF("mysql_native_password")
#define OK "\0\0\0\2\0\0\0"
#define OK_AND_MORE "\0\0\0\x0a\0\0\0"
#define COLUMN "\3def\0\0\0\1a\1a\x0c\x21\0\x64\0\0\0\xfd\0\0\0\0\0"
#define END "\xfe\0\0\2\0"
#define END_AND_MORE "\xfe\0\0\x0a\0"
#define NO_THREAD  \
    "\xff\x6f\x04" \
    "#HY000"       \
    "Can't create a new thread" /* error 1135 */
#define NO_SPACE   \
    "\xff\x06\x04" \
    "#HY000"       \
    "Got error 28 from storage engine" /* error 1030 */
#define ROW "\x64xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
#define PROGRESS "\xff\xff\xff\1\1\1\1\1\1\4work"

/* The part of the conversation that comes before the endless part. */
enum stage { FIRST, LOGIN, ANSWER, COLUMNS, ROWS };

/* The server's behaviour. */
struct script {
    enum stage after;
    struct part {
        const char *content;
        size_t length;
    } endless[PARTS]; /* the contents of packets, in turns; none: bytes of one packet */
    bool silent;      /* nothing comes instead */
};

static bool always_ready; /* poll() says that of the client's socket */
int __real_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms);

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms) {
    const int ready = __real_poll(fds, n, always_ready ? 0 : timeout_ms);
    if (ready != 0 || !always_ready) return ready;
    fds->revents = fds->events;
    return 1;
}

/* Sends what there is, and waits for the client's next words. */
static bool talk(int fd, struct packets *packets, unsigned next_serial) {
    bool heard = flood_send(fd, packets->bytes, packets->used) && flood_hear(fd);
    packets->used = 0;
    packets->serial = next_serial;
    return heard;
}

/* Sends what an honest server sends until that stage. */
static bool begin(const struct script *script, int fd, struct packets *packets) {
    if (script->after == FIRST) return true;
    ADD(packets, GREETING);
    if (!talk(fd, packets, 2)) return false;
    if (script->after == LOGIN) return true;
    ADD(packets, OK);
    if (!talk(fd, packets, 1)) return false;
    if (script->after == ANSWER) return true;
    ADD(packets, "\1");
    ADD(packets, COLUMN);
    if (script->after == ROWS) ADD(packets, END);
    return flood_send(fd, packets->bytes, packets->used);
}

/* Fills a piece with what is sent without end. The serial numbers go round in it. */
static void fill(const struct script *script, struct packets *piece) {
    const unsigned first = piece->serial;
    piece->used = 0;
    if (!script->endless[0].content) {
        memset(piece->bytes, 'x', FLOOD_PIECE);
        memcpy(piece->bytes, "\xff\xff\xff\0", 4);
        piece->used = FLOOD_PIECE;
        return;
    }
    size_t round = 0;
    for (size_t i = 0; i < PARTS; i++) round += 256 * (script->endless[i].length + 4);
    do
        for (size_t i = 0; i < PARTS && script->endless[i].content; i++)
            add(piece, script->endless[i].content, script->endless[i].length);
    while ((piece->serial & 255) != (first & 255) || piece->used + round <= FLOOD_PIECE);
}

static size_t play(void *arg, int fd, unsigned char *bytes) {
    struct packets piece = {.bytes = bytes};
    if (!begin(arg, fd, &piece)) return 0;
    fill(arg, &piece);
    return piece.used;
}

/* The error when such a server is connected to within `timeout_ms`. Returns how many bytes it could send. */
static size_t meet(struct script script, int timeout_ms, int code, const char *word) {
    struct dlock_error err = {0};
    struct link link;
    struct uri uri;
    struct flood flood = {.begin = play, .arg = &script, .silent = script.silent, .most_ms = SEND_MS, .most = SEND_MAX};
    flood_start(&flood);
    uri_init(&uri, flood.port);
    uri.parts.path = "/db";
    uri.parts.user = uri.parts.password = "u";
    const int64_t begun = now_ms();
    const int rc = link_try(&link, &uri.parts, 'a', 0, timeout_ms, &err);
    const int64_t took_ms = now_ms() - begun;
    link_end(&link);
    flood_end(&flood);
    if (rc != code || !strstr(err.message, word)) fail_msg("%d (%s) instead of %d (%s)", rc, err.message, code, word);
    assert_true(took_ms < timeout_ms + SLACK_MS);
    return flood.sent;
}

#define PART(literal) \
    { .content = (literal), .length = sizeof(literal) - 1 }
#define ENDLESS(literal) .endless = {PART(literal)}

static void assert_too_long(struct script script, const char *word) {
    assert_true(meet(script, TIMEOUT_MS, DLOCK_EPROTO, word) < TAKEN_MAX);
}

TEST(rows_without_end) {
    assert_too_long((struct script){.after = ROWS, ENDLESS(ROW)}, "too long");
    assert_too_long((struct script){.after = ROWS, ENDLESS("\0")}, "too long");
    assert_too_long((struct script){.after = ROWS, ENDLESS("\xfb")}, "too long"); /* NULL */
}

TEST(columns_without_end) {
    assert_too_long((struct script){.after = COLUMNS, ENDLESS(COLUMN)}, "too many columns");
    assert_too_long((struct script){.after = COLUMNS, ENDLESS("\3def\xfa")}, "description of a column");
    assert_too_long((struct script){.after = COLUMNS, ENDLESS("\3def\xfd\0\0\0")}, "description of a column");
}

TEST(results_without_end) {
    assert_too_long((struct script){.after = ANSWER, ENDLESS(OK_AND_MORE)}, "more results");
    assert_too_long((struct script){.after = ANSWER,
                                    .endless = {PART("\1"), PART(COLUMN), PART(END), PART(END_AND_MORE)}},
                    "more results");
}

/* One packet, at each stage: the connection ends as soon as its length is known. */
TEST(a_packet_without_end) {
    for (int after = FIRST; after <= ROWS; after++) {
        const struct script script = {.after = (enum stage)after};
        assert_true(meet(script, TIMEOUT_MS, DLOCK_EUNAVAILABLE, "MySQL at") < TAKEN_MAX);
    }
}

/* They are read as long as they come, but not beyond the deadline. */
TEST(reports_of_progress_without_end) {
    meet((struct script){.after = FIRST, ENDLESS(PROGRESS)}, SHORT_MS, DLOCK_EUNAVAILABLE, "MySQL at");
    meet((struct script){.after = LOGIN, ENDLESS(PROGRESS)}, SHORT_MS, DLOCK_EUNAVAILABLE, "MySQL at");
    meet((struct script){.after = ANSWER, ENDLESS(PROGRESS)}, SHORT_MS, DLOCK_EUNAVAILABLE, "MySQL at");
    meet((struct script){.after = ROWS, ENDLESS(PROGRESS)}, SHORT_MS, DLOCK_EUNAVAILABLE, "MySQL at");
}

/* As if each poll() found another byte. */
TEST(a_socket_that_is_always_ready) {
    always_ready = true;
    meet((struct script){.after = LOGIN, .silent = true}, SHORT_MS, DLOCK_EUNAVAILABLE, "in time");
    meet((struct script){.after = ANSWER, .silent = true}, SHORT_MS, DLOCK_EUNAVAILABLE, "in time");
    meet((struct script){.after = ROWS, .silent = true}, SHORT_MS, DLOCK_EUNAVAILABLE, "in time");
    always_ready = false;
}

/* ---- what the login gives away ----------------------------------------------------------------------------------- */

/* A server that greets with one method, and then asks for another one. */
struct login {
    struct part greeting, method;
    size_t heard; /* bytes of the answer to that, without the packet's head */
    int after;    /* the answer's first byte after "that proof does not suffice"; -1: none */
    bool serves;  /* it accepts the answer, and has got a request */
};

static ssize_t hear(int fd, unsigned char *bytes, size_t size) {
    ssize_t n = recv(fd, bytes, size, 0);
    return n > 4 ? n - 4 : 0;
}

static size_t log_in(void *arg, int fd, unsigned char *bytes) {
    struct login *login = arg;
    struct packets packets = {.bytes = bytes};
    unsigned char answer[8192];
    add(&packets, login->greeting.content, login->greeting.length);
    if (!talk(fd, &packets, 2)) return 0;
    add(&packets, login->method.content, login->method.length);
    if (!flood_send(fd, packets.bytes, packets.used)) return 0;
    login->heard = (size_t)hear(fd, answer, sizeof answer);
    packets = (struct packets){.bytes = bytes, .serial = 4};
    if (login->serves)
        ADD(&packets, OK);
    else
        ADD(&packets, "\1\4");
    if (!flood_send(fd, packets.bytes, packets.used)) return 0;
    const ssize_t n = hear(fd, answer, sizeof answer);
    login->after = n > 0 ? answer[4] : -1;
    return 0;
}

#define NATIVE "mysql_native_password"
#define SHA2 "caching_sha2_password"
#define SWITCH_TO(method)   \
    PART("\xfe" method "\0" \
         "12345678123456789012\0")

/* Connects to this server. Returns the code. */
static int connect_to(struct flood *flood, struct dlock_error *err) {
    struct link link;
    struct uri uri;
    flood_start(flood);
    uri_init(&uri, flood->port);
    uri.parts.path = "/db";
    uri.parts.user = uri.parts.password = "u";
    const int rc = link_try(&link, &uri.parts, 'a', 0, TIMEOUT_MS, err);
    link_end(&link);
    flood_end(flood);
    return rc;
}

static void meet_login(struct login *login, int code, const char *word) {
    struct flood flood = {.begin = log_in, .arg = login, .most_ms = SEND_MS};
    struct dlock_error err = {0};
    login->after = -1;
    const int rc = connect_to(&flood, &err);
    if (rc != code || !strstr(err.message, word)) fail_msg("%d (%s) instead of %d (%s)", rc, err.message, code, word);
}

/* With caching_sha2_password it would be encrypted with a key that the other side sends, whatever that is. */
TEST(a_password_is_not_given_to_who_asks) {
    const struct part greetings[] = {PART(GREETING), PART(GREETING_OF(SHA2))};
    for (int i = 0; i < 2; i++) {
        struct login login = {.greeting = greetings[i], .method = SWITCH_TO(SHA2)};
        meet_login(&login, DLOCK_EAUTH, "mysql+tls://");
        assert_int_equal(login.heard, 0);
        assert_int_equal(login.after, -1);
    }
}

/* A server since MySQL 8.0, where the account has another method than the server's default. */
TEST(the_method_is_the_accounts) {
    struct login login = {.greeting = PART(GREETING_OF(SHA2)), .method = SWITCH_TO(NATIVE), .serves = true};
    enum { SHA1_BYTES = 20, QUERY = 3 };
    meet_login(&login, DLOCK_EUNAVAILABLE, "MySQL at"); /* it hangs up when it has heard the first request */
    assert_int_equal(login.heard, SHA1_BYTES);
    assert_int_equal(login.after, QUERY);
}

/* ---- used-up resources ------------------------------------------------------------------------------------------- */

/* A server that answers with an error, in place of its greeting or to the first query. */
struct refusal {
    enum stage at;
    struct part error;
};

static size_t refuse(void *arg, int fd, unsigned char *bytes) {
    const struct refusal *refusal = arg;
    const struct script script = {.after = refusal->at};
    struct packets packets = {.bytes = bytes};
    if (!begin(&script, fd, &packets)) return 0;
    add(&packets, refusal->error.content, refusal->error.length);
    flood_send(fd, packets.bytes, packets.used);
    return 0;
}

/* A wait continues until the server has them again, and no client is told to doubt that it is MySQL. */
TEST(a_server_without_resources_is_unavailable) {
    struct refusal refusals[] = {{FIRST, PART(NO_THREAD)}, {ANSWER, PART(NO_SPACE)}};
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        struct flood flood = {.begin = refuse, .arg = &refusals[i], .most_ms = SEND_MS};
        struct dlock_error err = {0};
        const int rc = connect_to(&flood, &err);
        if (rc != DLOCK_EUNAVAILABLE || strstr(err.message, "server?")) fail_msg("%d (%s)", rc, err.message);
        if (!strstr(err.message, i == 0 ? "new thread" : "error 28")) fail_msg("%s", err.message);
    }
}

/* Galera and group replication: a node that has lost its cluster, or is not a primary. A wait continues, and the
 * message gives the reason. */
TEST(a_member_without_its_group_is_unavailable) {
    static const struct {
        struct part error;
        const char *advice;
    } answers[] = {
        {PART("\xff\x17\x04#08S01WSREP has not yet prepared node for application use"), "lost its cluster"},  /* 1047 */
        {PART("\xff\x1c\x0c#HY000Error on observer while running replication hook"), "look for the primary"}, /* 3100 */
        {PART("\xff\x1d\x0c#40000Plugin instructed the server to rollback"), "look for the primary"},         /* 3101 */
    };
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        struct refusal refusal = {ANSWER, answers[i].error};
        struct flood flood = {.begin = refuse, .arg = &refusal, .most_ms = SEND_MS};
        struct dlock_error err = {0};
        const int rc = connect_to(&flood, &err);
        if (rc != DLOCK_EUNAVAILABLE || !strstr(err.message, answers[i].advice)) fail_msg("%d (%s)", rc, err.message);
    }
}

TESTS(NULL, NULL, backend_load, NULL)
