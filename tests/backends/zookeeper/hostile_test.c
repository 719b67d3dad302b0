/* A server whose answers are wrong for a lock: nothing hangs, and no lock is considered granted. A malformed answer may
 * abort the library. */
#include "harness.h"
#include "support/fake.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* Answers one request, whose xid and type are given, on fd. */
typedef void answer_fn(int fd, uint32_t xid, uint32_t type);

static struct fake fake;
static answer_fn *answer;
static bool greet_badly;

/* ---- writing ----------------------------------------------------------------------------------------------------- */

struct packet {
    size_t used;
    unsigned char bytes[1024];
};

static void put32(struct packet *packet, uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8) packet->bytes[packet->used++] = (unsigned char)(value >> shift);
}

static void put64(struct packet *packet, uint64_t value) {
    put32(packet, (uint32_t)(value >> 32));
    put32(packet, (uint32_t)value);
}

static void put_text(struct packet *packet, const char *text) {
    put32(packet, (uint32_t)strlen(text));
    memcpy(packet->bytes + packet->used, text, strlen(text));
    packet->used += strlen(text);
}

static void put_header(struct packet *packet, uint32_t xid, int code) {
    put32(packet, xid);
    put64(packet, 1);
    put32(packet, (uint32_t)code);
}

static void put_stat(struct packet *packet, uint64_t czxid, uint64_t owner) {
    put64(packet, czxid);
    put64(packet, czxid);
    put64(packet, 0);
    put64(packet, 0);
    put32(packet, 0);
    put32(packet, 0);
    put32(packet, 0);
    put64(packet, owner);
    put32(packet, 0);
    put32(packet, 0);
    put64(packet, czxid);
}

static void post(int fd, const struct packet *packet) {
    struct packet length = {0};
    put32(&length, (uint32_t)packet->used);
    send(fd, length.bytes, 4, MSG_NOSIGNAL);
    send(fd, packet->bytes, packet->used, MSG_NOSIGNAL);
}

/* ---- the fake server --------------------------------------------------------------------------------------------- */

enum { SESSION = 4711 };

static void greet(int fd) {
    struct packet packet = {0};
    put32(&packet, 0);
    put32(&packet, 4000);
    put64(&packet, SESSION);
    put32(&packet, 16);
    for (int i = 0; i < 4; i++) put32(&packet, 0);
    packet.bytes[packet.used++] = 0;
    if (greet_badly) packet.used = 7;
    post(fd, &packet);
}

static uint32_t get32(const char *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return ntohl(value);
}

/* Length, xid, type, … */
static bool converse(struct fake *me, int fd, int i, const char *request, size_t size) {
    (void)me;
    if (size < 12) return false;
    uint32_t xid = get32(request + 4), type = get32(request + 8);
    if (i == 0) {
        greet(fd);
    } else if (type == OP_PING || type == (uint32_t)-11) {
        struct packet packet = {0};
        put_header(&packet, xid, 0);
        post(fd, &packet);
    } else {
        answer(fd, xid, type);
    }
    return true;
}

static size_t whole_request(const char *buffer, size_t size) {
    size_t length = size < 4 ? 0 : get32(buffer) + (size_t)4;
    return length <= size ? length : 0;
}

static const char *const no_greeting[] = {NULL};
const struct fake_protocol fake_protocol = {.greeting = no_greeting, .request = whole_request};

static void fake_begin(answer_fn *with) {
    answer = with;
    memset(&fake, 0, sizeof fake);
    fake.converse = converse;
    fake_start(&fake);
}

/* ---- nonsense ---------------------------------------------------------------------------------------------------- */

static void put_part(struct packet *packet, uint32_t type, bool end) {
    put32(packet, type);
    packet->bytes[packet->used++] = end;
    put32(packet, end ? UINT32_MAX : 0);
}

static void sensible_write(int fd, uint32_t xid) {
    struct packet packet = {0};
    put_header(&packet, xid, 0);
    put_part(&packet, ZOO_CHECK_OP, false);
    put_part(&packet, UINT32_MAX, true);
    post(fd, &packet);
}

static void answers_another(int fd, uint32_t xid, uint32_t type) {
    sensible_write(fd, type == OP_MULTI ? xid : xid + 7);
}

/* A node of another session, or with an odd name, or with a fence of 0. */
static void create_of(int fd, uint32_t xid, const char *path, uint64_t czxid, uint64_t owner) {
    struct packet packet = {0};
    put_header(&packet, xid, 0);
    put_text(&packet, path);
    put_stat(&packet, czxid, owner);
    post(fd, &packet);
}

static void empty_list(int fd, uint32_t xid) {
    struct packet packet = {0};
    put_header(&packet, xid, 0);
    put32(&packet, 0);
    post(fd, &packet);
}

static const struct {
    const char *path;
    uint64_t czxid, owner;
} odd[] = {{"/x/_c_-lock-0000000001", 5, 666},
           {"/x/_c_-lock-0000000001", 0, SESSION},
           {"/x/no sequence", 5, SESSION},
           {"", 5, SESSION},
           {"/x/lock-9999999999", 5, SESSION}};
static size_t which;

static void creates_oddly(int fd, uint32_t xid, uint32_t type) {
    if (type == OP_CREATE2)
        create_of(fd, xid, odd[which].path, odd[which].czxid, odd[which].owner);
    else if (type == OP_CHILDREN)
        empty_list(fd, xid);
    else
        sensible_write(fd, xid);
}

/* An unknown error code. */
static void fails_oddly(int fd, uint32_t xid, uint32_t type) {
    struct packet packet = {0};
    if (type == OP_MULTI) {
        sensible_write(fd, xid);
        return;
    }
    put_header(&packet, xid, -4242);
    post(fd, &packet);
}

/* ---- the tests --------------------------------------------------------------------------------------------------- */

static void nothing_is_granted(answer_fn *with) {
    struct dlock_error err = {0};
    struct link link;
    struct uri uri;
    fake_begin(with);
    uri_session(&uri, fake.port, "4s");
    assert_int_equal(link_try(&link, &uri.parts, 'a', 0, CONNECTS_MS, &err), 0);
    CLAIM_INIT(held, "hostile", 'a', 1);
    int64_t begun = now_ms();
    int rc = held_run(backend->acquire, &link, &held, DLOCK_CLAIM_QUEUE, 1000, &err);
    if (rc == 0) {
        assert_int_not_equal(held.claim.result, 0);
        assert_int_not_equal(held.claim.result, DLOCK_EBUSY);
        rc = held_run(backend->renew, &link, &held, 0, 500, &err);
        if (rc == 0) assert_int_not_equal(held.claim.result, 0);
        rc = held_run(backend->release, &link, &held, 0, 500, &err);
        if (rc == 0) assert_int_not_equal(held.claim.result, 0);
    }
    assert_true(rc == 0 || rc == DLOCK_EUNAVAILABLE || rc == DLOCK_EPROTO);
    assert_in_range(now_ms() - begun, 0, 5000);
    link_end(&link);
    fake_stop(&fake);
}

TEST(wrong_answers) {
    nothing_is_granted(answers_another);
}

TEST(unknown_errors) {
    nothing_is_granted(fails_oddly);
}

TEST(odd_nodes) {
    for (which = 0; which < sizeof odd / sizeof *odd; which++) nothing_is_granted(creates_oddly);
}

TEST(half_a_greeting) {
    struct dlock_error err = {0};
    struct link link;
    struct uri uri;
    greet_badly = true;
    fake_begin(answers_another);
    uri_session(&uri, fake.port, "1s");
    int rc = link_try(&link, &uri.parts, 'a', 0, 1500, &err);
    assert_true(rc == DLOCK_EUNAVAILABLE || rc == DLOCK_EPROTO);
    link_end(&link);
    fake_stop(&fake);
    greet_badly = false;
}

TESTS(NULL, NULL, backend_load, NULL)
