/* Cluster nodes that lie about the owners of slots, redirect a call in a circle, or delay it without end: an error in
 * time that says so, and earlier knowledge is kept. */
#include "harness.h"
#include "support/fake.h"

#include <sys/socket.h>

enum { SHORT_MS = 600, LONG_MS = 5000, SLACK_MS = 3000, MAP = 1024, NAME_SLOT = 14018 };
#define NAME "hostile"
#define LOST "lost" /* the call is executed, and its answer lost with the connection */
#define RENEWED ":1790000000000000\r\n"
#define GRANTED "*5\r\n:1790000000000000\r\n:1790000000000000\r\n:0\r\n:10000\r\n:1\r\n"

/* ---- a node ------------------------------------------------------------------------------------------------------ */

struct node {
    struct fake fake;
    const char *map;                /* what it says to CLUSTER SLOTS; NULL: nothing */
    const char *const *says;        /* to the calls of scripts, NULL-terminated; the last one is repeated */
    void (*lie)(struct node *node); /* changes `map` before it is said; may be NULL */
    char room[MAP];
    bool mute;              /* it answers no PING */
    int calls, maps, asked; /* up to now */
};

/* The text with the lock's slot for <slot>, and this port for <port>. */
static void fill(char *out, size_t size, const char *text, int port) {
    size_t used = 0;
    for (const char *p = text; *p && used + 8 < size;) {
        const bool slot = strncmp(p, "<slot>", 6) == 0, here = strncmp(p, "<port>", 6) == 0;
        if (!slot && !here) out[used++] = *p++;
        if (slot || here) used += (size_t)snprintf(out + used, size - used, "%d", slot ? NAME_SLOT : port), p += 6;
    }
    out[used] = '\0';
}

static bool has(const char *request, size_t size, const char *word) {
    const size_t length = strlen(word);
    for (size_t i = 0; i + length <= size; i++)
        if (memcmp(request + i, word, length) == 0) return true;
    return false;
}

static const char *call_answer(struct node *node) {
    const char *text = "";
    for (int i = 0; i <= node->calls && node->says && node->says[i]; i++) text = node->says[i];
    node->calls++;
    return text;
}

/* Confirms the subscription; the channel is the last word of the request. */
static const char *subscribed(char out[160], const char *request, size_t size) {
    size_t from = size - 2;
    while (request[from - 1] != '\n') from--;
    const int length = (int)(size - 2 - from);
    snprintf(out, 160, "*3\r\n$10\r\nssubscribe\r\n$%d\r\n%.*s\r\n:1\r\n", length, length, request + from);
    return out;
}

static bool converse(struct fake *fake, int fd, int i, const char *request, size_t size) {
    struct node *node = (struct node *)fake;
    const char *text = "+OK\r\n"; /* to CLIENT SETNAME and ASKING */
    char room[160];
    (void)i;
    if (has(request, size, "\r\nEVALSHA\r\n")) {
        text = call_answer(node);
    } else if (has(request, size, "\r\nSLOTS\r\n")) {
        if (node->lie) node->lie(node);
        node->maps++;
        text = node->map ? node->map : "";
    } else if (has(request, size, "SUBSCRIBE\r\n")) {
        text = subscribed(room, request, size);
    } else if (has(request, size, "\r\nPING\r\n")) {
        text = node->mute ? "" : "*2\r\n$4\r\npong\r\n$0\r\n\r\n";
    } else if (has(request, size, "\r\nPUBLISH\r\n")) {
        text = ":0\r\n";
    } else if (has(request, size, "\r\nserver\r\n")) {
        text = "$21\r\nredis_version:7.0.0\r\n\r\n";
    } else if (has(request, size, "\r\nreplication\r\n")) {
        text = "$11\r\nrole:master\r\n";
    }
    if (has(request, size, "\r\nASKING\r\n")) node->asked++;
    if (strcmp(text, LOST) == 0) return false;
    return send(fd, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text);
}

static void node_start(struct node *node) {
    node->fake.converse = converse;
    fake_start(&node->fake);
}

/* A range of slots as CLUSTER SLOTS has it: all of them, or those from `from` to `to`. */
static int put_range(char *out, size_t size, int from, int to, const char *host, int port) {
    return snprintf(out, size, "*3\r\n:%d\r\n:%d\r\n*3\r\n$%zu\r\n%s\r\n:%d\r\n$1\r\nx\r\n", from, to, strlen(host),
                    host, port);
}

/* The first has all slots. */
static void honest_map(struct node *node) {
    int used = snprintf(node->room, MAP, "*1\r\n");
    put_range(node->room + used, MAP - (size_t)used, 0, 16383, "127.0.0.1", node->fake.port);
    node->map = node->room;
}

/* Both say that each has a half. */
static void halve(struct node nodes[2]) {
    int used = snprintf(nodes[0].room, MAP, "*2\r\n");
    used += put_range(nodes[0].room + used, MAP - (size_t)used, 8192, 16383, "127.0.0.1", nodes[0].fake.port);
    put_range(nodes[0].room + used, MAP - (size_t)used, 0, 8191, "127.0.0.1", nodes[1].fake.port);
    nodes[0].map = nodes[1].map = nodes[0].room;
}

static int try_for(struct link *link, int timeout_ms, struct dlock_error *err) {
    struct held held;
    claim_init(&held, NAME, 'a', 1);
    memset(err, 0, sizeof *err);
    int rc = held_run(backend->acquire, link, &held, 0, timeout_ms, err);
    return rc ? rc : held.claim.result;
}

static int try_acquire(struct link *link, struct dlock_error *err) {
    return try_for(link, SHORT_MS, err);
}

/* ---- maps -------------------------------------------------------------------------------------------------------- */

/* In these <port> is the node's own. */
#define LOCALHOST "$9\r\nlocalhost\r\n"
#define NODE "*3\r\n$9\r\n127.0.0.1\r\n:<port>\r\n$1\r\nx\r\n"

static int connect_with(struct node *node, struct link *link, const char *map, struct dlock_error *err) {
    struct uri uri;
    memset(node, 0, sizeof *node);
    node_start(node);
    fill(node->room, MAP, map, node->fake.port);
    node->map = node->room;
    uri_init(&uri, node->fake.port);
    memset(err, 0, sizeof *err);
    return link_try(link, &uri.parts, 'a', 0, SHORT_MS, err);
}

TEST(maps_that_make_no_sense) {
    static const struct {
        const char *map;
        int code;
    } maps[] = {
        {"+OK\r\n", DLOCK_EPROTO},
        {":1\r\n", DLOCK_EPROTO},
        {"$-1\r\n", DLOCK_EPROTO},
        {"*-1\r\n", DLOCK_EPROTO},
        {"*0\r\n", DLOCK_EUNAVAILABLE}, /* a node that no other has met yet */
        {"*1\r\n:1\r\n", DLOCK_EPROTO},
        {"*1\r\n*0\r\n", DLOCK_EPROTO},
        {"*1\r\n*2\r\n:0\r\n:1\r\n", DLOCK_EPROTO},
        {"*1\r\n*3\r\n:0\r\n:16384\r\n" NODE, DLOCK_EPROTO},
        {"*1\r\n*3\r\n:-1\r\n:16383\r\n" NODE, DLOCK_EPROTO},
        {"*1\r\n*3\r\n:-9223372036854775808\r\n:9223372036854775807\r\n" NODE, DLOCK_EPROTO},
        {"*1\r\n*3\r\n:2\r\n:1\r\n" NODE, DLOCK_EPROTO},
        {"*2\r\n*3\r\n:0\r\n:16383\r\n" NODE "*3\r\n:5\r\n:5\r\n" NODE, DLOCK_EPROTO},
        {"*1\r\n*3\r\n$1\r\n0\r\n:16383\r\n" NODE, DLOCK_EPROTO},
        {"*1\r\n*3\r\n:0\r\n:16383\r\n$-1\r\n", DLOCK_EPROTO},
        {"*1\r\n*3\r\n:0\r\n:16383\r\n*-1\r\n", DLOCK_EPROTO},
        {"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$-1\r\n:1\r\n", DLOCK_EPROTO},
        {"*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n:127\r\n:1\r\n$1\r\nx\r\n", DLOCK_EPROTO},
        {"*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$-1\r\n:0\r\n$1\r\nx\r\n", DLOCK_EPROTO},
        {"*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$-1\r\n:65536\r\n$1\r\nx\r\n", DLOCK_EPROTO},
        {"*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$-1\r\n$4\r\n6379\r\n$1\r\nx\r\n", DLOCK_EPROTO},
        {"*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$-1\r\n:1\r\n$-1\r\n", DLOCK_EPROTO},
        {"*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$-1\r\n:1\r\n$41\r\n"
         "12345678901234567890123456789012345678901\r\n",
         DLOCK_EPROTO},
        {"*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$5\r\na b.c\r\n:1\r\n$1\r\nx\r\n", DLOCK_EPROTO}, /* no name of a host */
        {"*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$4\r\n/tmp\r\n:1\r\n$1\r\nx\r\n", DLOCK_EPROTO},
        {"*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$4\r\nno", DLOCK_EUNAVAILABLE}, /* and no more */
        {"*2147483647\r\n*2147483647\r\n", DLOCK_EPROTO},
        {"*400000\r\n*400000\r\n:1\r\n", DLOCK_EPROTO},
        {"-CLUSTERDOWN The cluster is down\r\n", DLOCK_EUNAVAILABLE},
        {"-LOADING Redis is loading the dataset in memory\r\n", DLOCK_EUNAVAILABLE},
        {"-NOPERM this user has no permissions\r\n", DLOCK_EAUTH},
        {"-MOVED 1 127.0.0.1:<port>\r\n", DLOCK_EPROTO},
    };
    for (size_t i = 0; i < sizeof maps / sizeof maps[0]; i++) {
        struct node node;
        struct link link;
        struct dlock_error err;
        const int64_t begin = now_ms();
        const int rc = connect_with(&node, &link, maps[i].map, &err);
        if (rc != maps[i].code || err.code != rc || !*err.message)
            fail_msg("map \"%.200s\": %d (%s) instead of %d", maps[i].map, rc, err.message, maps[i].code);
        assert_true(now_ms() - begin < SHORT_MS + SLACK_MS);
        fake_unlink(&node.fake, &link);
    }
}

/* Since Redis 7: nodes that do not know their address, that are called by names, or have none. */
TEST(maps_of_other_kinds) {
    static const char *const maps[] = {
        "*1\r\n*3\r\n:0\r\n:16383\r\n" NODE,
        "*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n$-1\r\n:<port>\r\n$1\r\nx\r\n*0\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n$0\r\n\r\n:<port>\r\n$1\r\nx\r\n*-1\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n$1\r\n?\r\n:<port>\r\n$1\r\nx\r\n*0\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n$1\r\n?\r\n:<port>\r\n$1\r\nx\r\n*2\r\n$2\r\nip\r\n$9\r\n127.0.0.1\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n$4\r\nnode\r\n:<port>\r\n$1\r\nx\r\n*2\r\n$2\r\nip\r\n$9\r\n127.0.0.1\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n$9\r\n127.0.0.1\r\n:<port>\r\n$0\r\n\r\n*2\r\n$8\r\nhostname\r\n$"
        "4\r\nnode\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n" LOCALHOST ":<port>\r\n$1\r\nx\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n" LOCALHOST ":<port>\r\n$1\r\nx\r\n*2\r\n$2\r\nip\r\n$-1\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n" LOCALHOST ":<port>\r\n$1\r\nx\r\n*2\r\n$2\r\nip\r\n$4\r\nnode\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n" LOCALHOST ":<port>\r\n$1\r\nx\r\n*2\r\n$2\r\nip\r\n$10\r\n127.0.0.77\r\n",
    };
    for (size_t i = 0; i < sizeof maps / sizeof maps[0]; i++) {
        struct node node;
        struct link link;
        struct dlock_error err;
        const int rc = connect_with(&node, &link, maps[i], &err);
        if (rc) fail_msg("map \"%.200s\": %s", maps[i], err.message);
        node.says = FAKE_SAYS(GRANTED);
        assert_int_equal(try_acquire(&link, &err), 0);
        fake_unlink(&node.fake, &link);
    }
}

/* Each slot is a separate range, with a master and a replica. */
TEST(a_map_of_as_many_ranges_as_slots) {
    enum { SLOTS = 16384, ROOM = SLOTS * 120 };
    static char map[ROOM];
    struct node node = {.map = map, .says = FAKE_SAYS(GRANTED)};
    struct link link;
    struct dlock_error err;
    node_start(&node);
    size_t used = (size_t)snprintf(map, ROOM, "*%d\r\n", SLOTS);
    for (int slot = 0; slot < SLOTS; slot++)
        used += (size_t)snprintf(map + used, ROOM - used,
                                 "*4\r\n:%d\r\n:%d\r\n*4\r\n$-1\r\n:%d\r\n$1\r\nx\r\n*0\r\n"
                                 "*4\r\n$9\r\n127.0.0.2\r\n:%d\r\n$1\r\ny\r\n*0\r\n",
                                 slot, slot, node.fake.port, node.fake.port);
    link_to(&link, node.fake.port, 'a');
    if (try_for(&link, LONG_MS, &err) != 0) fail_msg("%s", err.message);
    fake_unlink(&node.fake, &link);
}

/* The second map that it tells, and each after that, is cut in the middle. */
static void tell_half(struct node *node) {
    if (node->maps > 0) node->map = "*2\r\n*3\r\n:0\r\n:0\r\n*3\r\n$-1\r\n:1\r\n$1\r\nx\r\n:1\r\n";
}

TEST(a_bad_map_leaves_the_old_one) {
    static const char *const first[] = {"-TRYAGAIN x\r\n", GRANTED, NULL};
    struct node nodes[2] = {{.says = first}, {.says = first}};
    struct held held[2];
    struct dlock_claim *claims[] = {&held[0].claim, &held[1].claim};
    struct dlock_error err = {0};
    struct link link;
    char moved[60];
    for (int i = 0; i < 2; i++) {
        node_start(&nodes[i]);
        claim_init(&held[i], i ? "beside" : NAME, 'a', i);
    }
    snprintf(moved, sizeof moved, "-MOVED %d :%d\r\n", NAME_SLOT, nodes[0].fake.port);
    halve(nodes);
    nodes[0].says = FAKE_SAYS(moved, GRANTED);
    nodes[0].lie = nodes[1].lie = tell_half;
    nodes[1].maps = 1;
    link_to(&link, nodes[0].fake.port, 'a');
    if (backend->acquire(link.conn, claims, 2, TIMEOUT_MS, &err) != 0) fail_msg("%s", err.message);
    for (int i = 0; i < 2; i++)
        if (held[i].claim.result) fail_msg("%s: %s", held[i].claim.name, err.message);
    assert_true(nodes[0].maps > 1);
    link_end(&link);
    for (int i = 0; i < 2; i++) fake_stop(&nodes[i].fake);
}

/* Each map has another node for a slot that no client asks for; every other map is malformed. */
static void move_on(struct node *node) {
    int used = snprintf(node->room, MAP, "*2\r\n");
    char host[24];
    snprintf(host, sizeof host, "127.1.%d.%d", node->maps / 200, node->maps % 200);
    used += put_range(node->room + used, MAP - (size_t)used, 0, 16382, "127.0.0.1", node->fake.port);
    used += put_range(node->room + used, MAP - (size_t)used, 16383, 16383, host, 6379);
    node->map = node->room;
    if (node->maps > 0 && node->maps % 2) snprintf(node->room + 1, 2, "3"), node->room[2] = '\r';
    if (node->maps > 0 && node->maps % 2) snprintf(node->room + used, MAP - (size_t)used, ":1\r\n");
}

TEST(nodes_are_forgotten) {
    enum { MAPS = 600 };
    static const char *says[MAPS + 2];
    struct node node = {.lie = move_on};
    struct dlock_error err;
    struct link link;
    char moved[60];
    node_start(&node);
    snprintf(moved, sizeof moved, "-MOVED %d :%d\r\n", NAME_SLOT, node.fake.port);
    for (int i = 0; i <= MAPS; i++) says[i] = i % 2 ? GRANTED : moved;
    node.says = says;
    link_to(&link, node.fake.port, 'a');
    while (node.maps < MAPS) {
        int rc = try_for(&link, LONG_MS, &err);
        if (rc && rc != DLOCK_EPROTO) fail_msg("after %d maps: %s", node.maps, err.message);
    }
    fake_unlink(&node.fake, &link);
}

/* ---- answers to calls -------------------------------------------------------------------------------------------- */

#define BYTES_64 "1234567890123456789012345678901234567890123456789012345678901234"

/* Both nodes answer each call with this, in which <port> is the other's. */
static int answered(struct node nodes[2], const char *answer, int timeout_ms, struct dlock_error *err) {
    char texts[2][400];
    const char *says[2][2] = {{texts[0], NULL}, {texts[1], NULL}};
    struct link link;
    memset(nodes, 0, 2 * sizeof nodes[0]);
    for (int i = 0; i < 2; i++) node_start(&nodes[i]);
    for (int i = 0; i < 2; i++) {
        fill(texts[i], sizeof texts[i], answer, nodes[1 - i].fake.port);
        nodes[i].says = says[i];
    }
    halve(nodes);
    link_to(&link, nodes[0].fake.port, 'a');
    const int64_t begin = now_ms();
    const int rc = try_for(&link, timeout_ms, err);
    if (now_ms() - begin > timeout_ms + SLACK_MS) fail_msg("answer \"%.60s\" took too long", answer);
    link_end(&link);
    for (int i = 0; i < 2; i++) fake_stop(&nodes[i].fake);
    return rc;
}

TEST(answers_that_lead_nowhere) {
    static const struct {
        const char *answer;
        int code;
        const char *why;
    } answers[] = {
        {"-MOVED <slot> 127.0.0.1:<port>\r\n", DLOCK_EUNAVAILABLE, "keep redirecting"}, /* to each other */
        {"-ASK <slot> 127.0.0.1:<port>\r\n", DLOCK_EUNAVAILABLE, "keep redirecting"},
        {"-MOVED <slot> :<port>\r\n", DLOCK_EUNAVAILABLE, "keep redirecting"},
        {"-MOVED 5 127.0.0.1:6379\r\n", DLOCK_EUNAVAILABLE, "keep redirecting"}, /* another slot */
        {"-MOVED <slot> 127.0.0.1:1\r\n", DLOCK_EUNAVAILABLE, "127.0.0.1:1"},    /* no server listens there */
        {"-MOVED <slot> node.example:<port>\r\n", DLOCK_EUNAVAILABLE, "\"node.example\" was not found"},
        {"-ASK <slot> node.example:<port>\r\n", DLOCK_EUNAVAILABLE, "\"node.example\" was not found"},
        {"-MOVED <slot> ?:<port>\r\n", DLOCK_EUNAVAILABLE, "keep redirecting"}, /* it has no name */
        {"-ASK <slot> ?:<port>\r\n", DLOCK_EUNAVAILABLE, "on its way"},
        {"-TRYAGAIN Multiple keys request during rehashing of slot\r\n", DLOCK_EUNAVAILABLE, "on its way"},
        {"-CLUSTERDOWN The cluster is down\r\n", DLOCK_EUNAVAILABLE, "CLUSTERDOWN"},
        {"-MOVED <slot> 127.0.0.1:0\r\n", DLOCK_EPROTO, "names no slot, or no address"},
        {"-MOVED <slot> 127.0.0.1:65536\r\n", DLOCK_EPROTO, "names no slot, or no address"},
        {"-MOVED <slot> 127.0.0.1:99999999999999999999\r\n", DLOCK_EPROTO, "names no slot, or no address"},
        {"-MOVED <slot> 127.0.0.1:\r\n", DLOCK_EPROTO, "names no slot, or no address"},
        {"-MOVED <slot> 127.0.0.1\r\n", DLOCK_EPROTO, "names no slot, or no address"},
        {"-MOVED <slot>:6379\r\n", DLOCK_EPROTO, "names no slot, or no address"},
        {"-MOVED <slot> \r\n", DLOCK_EPROTO, "names no slot, or no address"},
        {"-MOVED <slot>\r\n", DLOCK_EPROTO, "names no slot, or no address"},
        {"-MOVED\r\n", DLOCK_EPROTO, "names no slot, or no address"},
        {"-MOVED 16384 127.0.0.1:6379\r\n", DLOCK_EPROTO, "names no slot, or no address"},
        {"-MOVED -1 127.0.0.1:6379\r\n", DLOCK_EPROTO, "names no slot, or no address"},
        {"-MOVED 99999999999999999999 127.0.0.1:6379\r\n", DLOCK_EPROTO, "names no slot, or no address"},
        {"-MOVED <slot> " BYTES_64 BYTES_64 BYTES_64 BYTES_64 ":1\r\n", DLOCK_EPROTO, "names no slot, or no address"},
        {"-ASK <slot> 127.0.0.1:0\r\n", DLOCK_EPROTO, "names no slot, or no address"},
        {"-ASK\r\n", DLOCK_EPROTO, "names no slot, or no address"},
        {"", DLOCK_EUNAVAILABLE, "no answer in time"},
    };
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        struct node nodes[2];
        struct dlock_error err;
        const bool redirects = strcmp(answers[i].why, "keep redirecting") == 0; /* which ends before the deadline */
        const int rc = answered(nodes, answers[i].answer, redirects ? LONG_MS : SHORT_MS, &err);
        if (rc != answers[i].code || err.code != rc || !strstr(err.message, answers[i].why))
            fail_msg("answer \"%.60s\": %d (%s) instead of %d (%s)", answers[i].answer, rc, err.message,
                     answers[i].code, answers[i].why);
        if (redirects) assert_in_range(nodes[0].calls + nodes[1].calls, 16, 100); /* 10 ms apart for half a second */
    }
}

/* Without a host it is the one that says so. */
TEST(an_address_without_a_host) {
    static const char *const kinds[] = {"MOVED", "ASK"};
    for (int kind = 0; kind < 2; kind++) {
        struct node nodes[2] = {{.calls = 0}, {.calls = 0}};
        struct dlock_error err;
        struct link link;
        char text[60];
        for (int i = 0; i < 2; i++) node_start(&nodes[i]);
        snprintf(text, sizeof text, "-%s %d :%d\r\n", kinds[kind], NAME_SLOT, nodes[1].fake.port);
        halve(nodes);
        nodes[0].says = FAKE_SAYS(text);
        nodes[1].says = FAKE_SAYS(GRANTED);
        link_to(&link, nodes[0].fake.port, 'a');
        if (try_acquire(&link, &err) != 0) fail_msg("%s: %s", kinds[kind], err.message);
        assert_int_equal(nodes[1].calls, 1);
        assert_int_equal(nodes[1].asked, kind);
        link_end(&link);
        for (int i = 0; i < 2; i++) fake_stop(&nodes[i].fake);
    }
}

/* The same for what operators ask. */
static int never(const struct dlock_info *info, void *arg) {
    (void)info, (void)arg;
    fail_msg("a holder out of nothing");
    return 1;
}

TEST(operators_get_an_error_in_time) {
    static const char *const answers[] = {"-MOVED <slot> 127.0.0.1:<port>\r\n", "-ASK <slot> 127.0.0.1:<port>\r\n",
                                          "-TRYAGAIN x\r\n", "-CLUSTERDOWN x\r\n", "-MOVED <slot> ?:<port>\r\n"};
    for (size_t i = 0; i < 2 * sizeof answers / sizeof answers[0]; i++) {
        struct node node = {.map = NULL};
        struct dlock_error err = {0};
        struct link link;
        char text[60];
        node_start(&node);
        honest_map(&node);
        fill(text, sizeof text, answers[i / 2], node.fake.port);
        node.says = FAKE_SAYS(text);
        link_to(&link, node.fake.port, 'a');
        const bool redirects = strncmp(text, "-MOVED", 6) == 0; /* which ends before the deadline */
        const int timeout_ms = redirects ? LONG_MS : SHORT_MS;
        const int64_t begin = now_ms();
        const int rc = i % 2 ? backend->break_lock(link.conn, NAME, timeout_ms, &err)
                             : backend->inspect(link.conn, NAME, never, NULL, timeout_ms, &err);
        if (rc != DLOCK_EUNAVAILABLE || !strstr(err.message, redirects ? "keep redirecting" : " "))
            fail_msg("\"%s\": %d (%s)", text, rc, err.message);
        assert_true(now_ms() - begin < timeout_ms + SLACK_MS);
        fake_unlink(&node.fake, &link);
    }
}

/* The first request may be executed after the second one, which the node has answered: the core has to know. */
TEST(what_was_sent_twice_is_said) {
    static const char *const says[] = {GRANTED, LOST, GRANTED, RENEWED, LOST, RENEWED, ":0\r\n", LOST, ":0\r\n", NULL};
    dlock_batch *const operations[] = {backend->acquire, backend->renew, backend->release};
    struct node node = {.says = says};
    struct dlock_error err;
    struct link link;
    struct held held;
    node_start(&node);
    honest_map(&node);
    link_to(&link, node.fake.port, 'a');
    held_new(&held, &link, NAME);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(held_run(operations[i / 2], &link, &held, 0, LONG_MS, &err), 0);
        assert_int_equal(node.calls, i / 2 * 3 + (i % 2 ? 3 : 1));
        assert_int_equal(held.claim.result, i < 4 ? 0 : DLOCK_ELOST);
        assert_int_equal(held.claim.hints & DLOCK_HINT_RESENT, i % 2 ? DLOCK_HINT_RESENT : 0);
    }
    fake_unlink(&node.fake, &link);
}

/* ---- wake-ups ---------------------------------------------------------------------------------------------------- */

/* However often the nodes are asked, and however well the others answer. */
TEST(a_silent_node_is_noticed_beside_another) {
    struct node nodes[2];
    struct link link;
    struct dlock_wake wake;
    struct dlock_error err;
    int rc = 0;
    memset(nodes, 0, sizeof nodes);
    for (int i = 0; i < 2; i++) node_start(&nodes[i]);
    halve(nodes);
    nodes[1].mute = true;
    link_to(&link, nodes[0].fake.port, 'a');
    link_listen(&link);
    for (const int64_t until = now_ms() + SLACK_MS; rc == 0 && now_ms() < until;) {
        rc = backend->probe(link.conn, &err);
        if (rc == 0) assert_false(wake_within(&link, &wake, 100)); /* not all have answered */
    }
    assert_int_equal(rc, DLOCK_EUNAVAILABLE);
    link_end(&link);
    for (int i = 0; i < 2; i++) fake_stop(&nodes[i].fake);
}

static int begin(void **state) {
    static const struct dlock_uri uri = {.scheme = "redis+cluster"};
    const int rc = backend_load(state);
    if (rc == 0) backend = backend->variant(&uri);
    return rc;
}

TESTS(NULL, NULL, begin, NULL)
