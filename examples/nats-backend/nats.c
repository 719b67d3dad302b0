/* A lock backend whose server is NATS with JetStream: nats://[user:password@]host[:port][/bucket]. docs/writing-a-backend.md
 * leads through it.
 *
 * A lock is a key of a key-value bucket, with the value "TOKEN LEASE_MS FENCE"; an empty value is left when it is released.
 * Each change names the revision of the key that it expects. The revision of a grant is its fence; a renewal, which makes
 * another revision, keeps it in the value. Revisions grow for all keys of the bucket, also across restarts.
 *
 * A lease has ended when it has by the clock of the server that leads the bucket's stream, which stamps each value that it
 * stores. To read this clock a value is stored under the key "=now". Since then at least as much time has passed there as
 * here: that says when reading it again may show the end of a lease, and no lease ends without.
 *
 * A waiter makes a consumer of the key, which sends all changes to the subject that its client's listener subscribes to,
 * and the present value first, so that a release just before it is not missed. The server deletes it some seconds after
 * the listener has gone. */
#include "nats.h"

enum {
    STEADY_US = 60000000, /* the server's clock is read again after this time */
    LOST_WAKE_MS = 2000   /* how long a lost wake-up delays a waiter */
};

/* ---- keys and values --------------------------------------------------------------------------------------------- */

/* A key has "=XX" for all other bytes of a name. */
static void key_of(const char *name, char key[KEY_SIZE]) {
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_/";
    for (; *name; name++) key += sprintf(key, strchr(plain, *name) ? "%c" : "=%02X", (unsigned char)*name);
    *key = '\0';
}

/* False: it is no lock's key. */
static bool name_of(const char *key, char name[256]) {
    const char *from = key;
    char again[KEY_SIZE];
    size_t n = 0;
    for (unsigned byte; *key && n < 255; n++) {
        int used = 1;
        byte = (unsigned char)*key;
        if (*key == '=' && (sscanf(key, "=%2X%n", &byte, &used) != 1 || byte < 0x20 || byte == 0x7f)) return false;
        name[n] = (char)byte;
        key += used;
    }
    name[n] = '\0';
    key_of(name, again);
    return n > 0 && strcmp(from, again) == 0;
}

/* Reads "2026-01-31T12:00:00.123456789Z". -1: it is no such time. */
static int64_t time_of(const char *text) {
    struct tm tm = {0};
    int used = 0;
    int64_t us = 0, unit = 100000;
    if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour, &tm.tm_min,
               &tm.tm_sec, &used) != 6)
        return -1;
    if (text[used] == '.')
        for (used++; text[used] >= '0' && text[used] <= '9'; used++, unit /= 10) us += (text[used] - '0') * unit;
    tm.tm_year -= 1900;
    tm.tm_mon--;
    return tm.tm_year < 70 || strcmp(text + used, "Z") != 0 ? -1 : timegm(&tm) * INT64_C(1000000) + us;
}

static bool read_value(const char *data, struct entry *entry) {
    char value[DLOCK_TOKEN_MAX + 64];
    int used = 0;
    return dlock_base64(data, value, sizeof value) &&
           sscanf(value, "%127[!-~] %" SCNd64 " %" SCNu64 "%n", entry->token, &entry->lease_ms, &entry->fence, &used) ==
               3 &&
           !value[used] && entry->lease_ms > 0 && entry->lease_ms <= DLOCK_LEASE_MAX_MS &&
           entry->fence <= entry->revision;
}

/* Reads an answer with a value, and its key. Returns 0, a code, or WRONG_REVISION if it is another program's value. */
static int read_entry(struct nats *c, const json_t *answer, struct entry *entry, char key[KEY_SIZE]) {
    const json_t *message = json_object_get(answer, "message");
    const char *subject = wire_string(message, "subject"), *data = wire_string(message, "data");
    const size_t start = strlen("$KV..") + strlen(c->bucket);
    int64_t revision = wire_number(message, "seq");
    int rc = wire_fault(c, answer);
    memset(entry, 0, sizeof *entry);
    if (rc != 0) return rc < 0 ? rc : rc == NO_MESSAGE ? 0 : wire_invalid(c, "answer");
    entry->end_us = time_of(wire_string(message, "time"));
    if (revision <= 0 || revision >> 55 || entry->end_us < 0 || strlen(subject) <= start)
        return wire_invalid(c, "value");
    snprintf(key, KEY_SIZE, "%s", subject + start);
    entry->revision = (uint64_t)revision;
    if (!*data) return 0;
    if (!read_value(data, entry)) return WRONG_REVISION;
    entry->held = true;
    entry->end_us += entry->lease_ms * 1000;
    if (entry->fence == 0) entry->fence = entry->revision; /* it was granted with this value */
    return 0;
}

static const char get_message[] = "$JS.API.STREAM.MSG.GET.KV_";

static void ask_key(struct nats *c, const char *key) {
    char which[KEY_SIZE + 128];
    snprintf(which, sizeof which, "{\"last_by_subj\":\"$KV.%s.%s\"}", c->bucket, key);
    wire_ask(c, get_message, "", which, -1);
}

static void ask_put(struct nats *c, const char *key, const char *value, int64_t revision) {
    char suffix[KEY_SIZE + 1];
    snprintf(suffix, sizeof suffix, ".%s", key);
    wire_ask(c, "$KV.", suffix, value, revision);
}

static int read_clock(struct nats *c) {
    static const char now[] = "=now"; /* no name has this key */
    struct entry entry;
    char key[KEY_SIZE];
    ask_put(c, now, "", -1);
    int rc = wire_answers(c);
    if (rc == 0) rc = wire_fault(c, c->answers[0]);
    if (rc == 0) {
        ask_key(c, now);
        rc = wire_answers(c);
    }
    if (rc == 0) rc = read_entry(c, c->answers[0], &entry, key);
    if (rc > 0 || (rc == 0 && !entry.revision)) rc = wire_invalid(c, "time");
    if (rc != 0) return rc;
    c->local_us = dlock_now_us();
    c->server_us = entry.end_us;
    return 0;
}

/* The server's clock shows at least this. */
static int64_t server_now_us(const struct nats *c) {
    return c->server_us + dlock_now_us() - c->local_us;
}

/* Gets the locks of these names, in c->entries. None is held whose lease has ended. */
static int look(struct nats *c, struct dlock_claim *const *claims, size_t n) {
    bool unsure = dlock_now_us() > c->local_us + STEADY_US;
    char key[KEY_SIZE];
    for (size_t i = 0; i < n; i++) {
        key_of(claims[i]->name, key);
        ask_key(c, key);
    }
    int rc = wire_answers(c);
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = read_entry(c, c->answers[i], &c->entries[i], key);
        if (rc > 0) return wire_fail(c, DLOCK_EPROTO, "has another program's value under \"%.200s\"", key);
        unsure = unsure || (c->entries[i].held && server_now_us(c) >= c->entries[i].end_us);
    }
    if (rc != 0 || !unsure) return rc;
    rc = read_clock(c);
    for (size_t i = 0; i < n; i++)
        if (c->server_us >= c->entries[i].end_us) c->entries[i].held = false;
    return rc;
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

static void consumer_of(const struct dlock_claim *claim, char name[32]) {
    snprintf(name, 32, "dlock-%016" PRIx64, dlock_hash(claim->token, strlen(claim->token), DLOCK_HASH_SEED));
}

static int watch(struct nats *c, struct dlock_claim *claim) {
    char key[KEY_SIZE], name[32], suffix[KEY_SIZE + 128], config[KEY_SIZE + 512];
    key_of(claim->name, key);
    consumer_of(claim, name);
    snprintf(suffix, sizeof suffix, ".%s.$KV.%s.%s", name, c->bucket, key);
    snprintf(config, sizeof config,
             "{\"stream_name\":\"KV_%s\",\"config\":{\"name\":\"%s\",\"deliver_subject\":\"_INBOX.dlock.%s\","
             "\"filter_subject\":\"$KV.%s.%s\",\"deliver_policy\":\"last_per_subject\",\"ack_policy\":\"none\","
             "\"max_deliver\":1,\"replay_policy\":\"instant\",\"mem_storage\":true,\"num_replicas\":1,"
             "\"inactive_threshold\":5000000000}}",
             c->bucket, name, c->client, c->bucket, key);
    claim->state[0] = 1;
    int rc = wire_request(c, "$JS.API.CONSUMER.CREATE.KV_", suffix, config, -1);
    return rc > 0 ? wire_invalid(c, "answer") : rc;
}

static int unwatch(struct nats *c, struct dlock_claim *claim) {
    char suffix[33] = ".";
    if (!claim->state[0]) return 0;
    claim->state[0] = 0;
    consumer_of(claim, suffix + 1);
    int rc = wire_request(c, "$JS.API.CONSUMER.DELETE.KV_", suffix, "", -1);
    return rc > 0 ? 0 : rc; /* there is none any more */
}

static int nats_listen(void *conn, int *fd, int ms, struct dlock_error *err) {
    struct nats *c = wire_begin(conn, ms, err);
    struct dlock_text text = {0};
    struct message message;
    dlock_text_add(&text, "SUB _INBOX.dlock.%s %d\r\nPING\r\n", c->client, WAKES);
    *fd = c->stream.fd;
    int rc = wire_send(c, &text);
    return rc == 0 ? wire_await(c, "PONG", &message) : rc;
}

/* Only an empty value is a reason to look: the others are renewals and grants. */
static int nats_wake(void *conn, struct dlock_wake *out, struct dlock_error *err) {
    struct nats *c = wire_begin(conn, 0, err);
    struct message message;
    const size_t start = strlen("$KV..") + strlen(c->bucket);
    for (int i = 0; i < 10000; i++) {
        int rc = wire_next(c, &message);
        if (rc <= 0) return rc;
        if (strncmp(message.word, "PONG", 4) == 0 && c->probed) {
            c->probed = false;
            out->kind = DLOCK_WAKE_HEARD;
            return 1;
        }
        if (!message.subject || message.subscription != WAKES || message.n > 0) continue;
        if (strlen(message.subject) <= start || !name_of(message.subject + start, c->name)) continue;
        out->kind = DLOCK_WAKE_LOOK;
        out->name = c->name;
        return 1;
    }
    return wire_invalid(c, "flood of messages");
}

static int nats_probe(void *conn, struct dlock_error *err) {
    struct nats *c = wire_begin(conn, 0, err);
    c->probed = true;
    return wire_word(c, "PING");
}

/* ---- claims ------------------------------------------------------------------------------------------------------ */

/* Decides about a claim, whose lock is as `entry` says, and writes what that needs. Returns whether it writes. */
static bool decide(struct nats *c, enum dlock_operation operation, struct dlock_claim *claim,
                   const struct entry *entry) {
    const bool ours = entry->held && strcmp(entry->token, claim->token) == 0;
    char key[KEY_SIZE], value[DLOCK_TOKEN_MAX + 64] = "";
    int64_t left_ms = (entry->end_us - server_now_us(c)) / 1000 + 1;
    claim->result = operation == DLOCK_ACQUIRE ? DLOCK_EBUSY : DLOCK_ELOST;
    claim->fence = entry->fence;
    if (operation == DLOCK_ACQUIRE && claim->flags & DLOCK_CLAIM_QUEUE)
        claim->retry_ms = left_ms < 1 ? 1 : left_ms < LOST_WAKE_MS ? left_ms : LOST_WAKE_MS;
    /* A release gives a free lock another revision: so no acquire is carried out any more that was given up. */
    if (!ours && (entry->held || operation == DLOCK_RENEW)) return false;
    claim->kept_ms = c->max_age_ms && c->max_age_ms < claim->lease_ms ? c->max_age_ms : claim->lease_ms;
    if (operation != DLOCK_RELEASE)
        snprintf(value, sizeof value, "%s %" PRId64 " %" PRIu64, claim->token, claim->kept_ms, ours ? entry->fence : 0);
    key_of(claim->name, key);
    ask_put(c, key, value, (int64_t)entry->revision);
    return true;
}

/* Reads what came of it. Returns 0, a code, or WRONG_REVISION: another client was faster. */
static int conclude(struct nats *c, enum dlock_operation operation, struct dlock_claim *claim,
                    const struct entry *entry, const json_t *answer) {
    int64_t revision = wire_number(answer, "seq");
    int rc = wire_fault(c, answer);
    if (rc == 0 && (revision <= 0 || revision >> 55)) rc = wire_invalid(c, "revision");
    if (rc != 0) return rc;
    if (operation == DLOCK_ACQUIRE && !entry->held) claim->fence = (uint64_t)revision;
    if (operation != DLOCK_RELEASE || entry->held) claim->result = 0;
    return 0;
}

/* Looks at all, then changes all. Those that another client has changed in between stay first in the list, and *n is
 * their number. */
static int pass(struct nats *c, enum dlock_operation operation, struct dlock_claim **claims, size_t *n) {
    size_t writing[BATCH], writes = 0, left = 0;
    int rc = look(c, claims, *n);
    for (size_t i = 0; i < *n && rc == 0; i++)
        if (decide(c, operation, claims[i], &c->entries[i])) writing[writes++] = i;
    if (rc == 0 && writes > 0) rc = wire_answers(c);
    for (size_t i = 0; i < writes && rc == 0; i++) {
        struct dlock_claim *claim = claims[writing[i]];
        rc = conclude(c, operation, claim, &c->entries[writing[i]], c->answers[i]);
        if (rc == WRONG_REVISION) claims[left++] = claim;
        if (rc > 0) rc = rc == WRONG_REVISION ? 0 : wire_invalid(c, "answer");
    }
    *n = left;
    return rc;
}

static int run(struct nats *c, enum dlock_operation operation, struct dlock_claim *const *claims, size_t n) {
    struct dlock_claim *left[BATCH];
    size_t n_left = 0;
    int rc = 0;
    for (size_t i = 0; i < n; i++)
        if (claims[i]->mode == DLOCK_EXCLUSIVE)
            left[n_left++] = claims[i];
        else
            claims[i]->result = dlock_fail(c->err, DLOCK_ENOTSUP, "this backend has neither readers nor permits");
    while (rc == 0 && n_left > 0) {
        rc = pass(c, operation, left, &n_left);
        if (rc == 0 && n_left > 0 && dlock_now_us() >= c->deadline_us) rc = wire_late(c);
    }
    for (size_t i = 0; i < n && rc == 0; i++)
        if (claims[i]->result == DLOCK_EBUSY && claims[i]->flags & DLOCK_CLAIM_QUEUE)
            rc = watch(c, claims[i]);
        else if (claims[i]->result != DLOCK_EBUSY && operation != DLOCK_RENEW)
            rc = unwatch(c, claims[i]);
    return rc;
}

static int nats_acquire(void *conn, struct dlock_claim *const *claims, size_t n, int ms, struct dlock_error *err) {
    return run(wire_begin(conn, ms, err), DLOCK_ACQUIRE, claims, n);
}

static int nats_renew(void *conn, struct dlock_claim *const *claims, size_t n, int ms, struct dlock_error *err) {
    return run(wire_begin(conn, ms, err), DLOCK_RENEW, claims, n);
}

static int nats_release(void *conn, struct dlock_claim *const *claims, size_t n, int ms, struct dlock_error *err) {
    return run(wire_begin(conn, ms, err), DLOCK_RELEASE, claims, n);
}

/* ---- looking and breaking ---------------------------------------------------------------------------------------- */

static int show(const struct nats *c, const char *name, const struct entry *entry, dlock_each each, void *arg) {
    int64_t left_ms = (entry->end_us - server_now_us(c)) / 1000;
    struct dlock_info info = {.name = name, .token = entry->token, .limit = 1, .fence = entry->fence};
    info.remaining_ms = left_ms < 0 ? 0 : left_ms < entry->lease_ms ? left_ms : entry->lease_ms;
    return each(&info, arg);
}

static int nats_inspect(void *conn, const char *name, dlock_each each, void *arg, int ms, struct dlock_error *err) {
    struct nats *c = wire_begin(conn, ms, err);
    struct dlock_claim claim = {.name = name}, *const claims[] = {&claim};
    int rc = look(c, claims, 1);
    if (rc == 0 && c->entries[0].held) show(c, name, &c->entries[0], each, arg);
    return rc;
}

/* In the order of revisions: a lock that is renewed while the pages are read may come twice. A page is what is left of so
 * many revisions in a row, from the next one that is left; those of locks that are held are near each other. */
static int nats_list(void *conn, const char *prefix, char cursor[256], dlock_each each, void *arg, int ms,
                     struct dlock_error *err) {
    struct nats *c = wire_begin(conn, ms, err);
    uint64_t from = *cursor ? strtoull(cursor, NULL, 10) : 1;
    struct entry entry;
    char which[96], key[KEY_SIZE], name[256];
    snprintf(which, sizeof which, "{\"seq\":%" PRIu64 ",\"next_by_subj\":\">\"}", from);
    wire_ask(c, get_message, "", which, -1);
    int rc = wire_answers(c);
    if (rc == 0) rc = read_entry(c, c->answers[0], &entry, key);
    if (rc < 0 || !entry.revision) return rc;
    if (entry.revision < from) return wire_invalid(c, "revision");
    from = entry.revision;
    for (uint64_t i = 0; i < BATCH; i++) {
        snprintf(which, sizeof which, "{\"seq\":%" PRIu64 "}", from + i);
        wire_ask(c, get_message, "", which, -1);
    }
    rc = wire_answers(c);
    for (uint64_t i = 0; i < BATCH && rc >= 0; i++) {
        rc = read_entry(c, c->answers[i], &entry, key);
        if (rc != 0 || !entry.held || server_now_us(c) >= entry.end_us) continue;
        if (entry.revision != from + i) return wire_invalid(c, "revision");
        if (!name_of(key, name) || strncmp(name, prefix, strlen(prefix)) != 0) continue;
        if (show(c, name, &entry, each, arg) != 0) return 0;
    }
    if (rc >= 0) snprintf(cursor, 256, "%" PRIu64, from + BATCH);
    return rc < 0 ? rc : 1;
}

static int nats_break(void *conn, const char *name, int ms, struct dlock_error *err) {
    struct nats *c = wire_begin(conn, ms, err);
    struct dlock_claim claim = {.name = name}, *const claims[] = {&claim};
    char key[KEY_SIZE];
    key_of(name, key);
    for (int rc = WRONG_REVISION; rc == WRONG_REVISION && dlock_now_us() < c->deadline_us;) {
        rc = look(c, claims, 1);
        if (rc != 0) return rc;
        if (!c->entries[0].held) return wire_fail(c, DLOCK_ELOST, "has no holder of that lock");
        ask_put(c, key, "", (int64_t)c->entries[0].revision);
        rc = wire_answers(c);
        if (rc == 0) rc = wire_fault(c, c->answers[0]);
        if (rc <= 0) return rc;
    }
    return wire_late(c);
}

/* ---- the bucket -------------------------------------------------------------------------------------------------- */

static const char schema[] =
    "# A bucket on three servers of a cluster; dlock itself makes one on one server. No lease is\n"
    "# longer than its ttl, after which it also forgets the names of released locks.\n"
    "nats kv add dlock --history=1 --storage=file --replicas=3 --ttl=25h\n";

/* Gets the bucket's configuration, in the answer, after making it if it is missing. */
static int ask_bucket(struct nats *c) {
    char config[512];
    int rc = wire_request(c, "$JS.API.STREAM.INFO.KV_", "", "", -1);
    if (rc != NO_STREAM) return rc > 0 ? wire_invalid(c, "answer") : rc;
    snprintf(
        config, sizeof config,
        "{\"name\":\"KV_%s\",\"subjects\":[\"$KV.%s.>\"],\"max_msgs_per_subject\":1,\"max_age\":90000000000000,"
        "\"storage\":\"file\",\"discard\":\"new\",\"num_replicas\":1,\"allow_rollup_hdrs\":true,\"deny_delete\":true}",
        c->bucket, c->bucket);
    rc = wire_request(c, "$JS.API.STREAM.CREATE.KV_", "", config, -1);
    return rc > 0 ? wire_invalid(c, "answer") : rc;
}

static int nats_check(void *conn, dlock_each_finding each, void *arg, int ms, struct dlock_error *err) {
    struct nats *c = wire_begin(conn, ms, err);
    struct dlock_report report = {.each = each, .arg = arg};
    int rc = ask_bucket(c);
    if (rc != 0) return rc;
    const json_t *config = json_object_get(c->answers[0], "config");
    int64_t replicas = wire_number(config, "num_replicas"),
            hours = wire_number(config, "max_age") / INT64_C(3600000000000);
    dlock_find(&report, NULL, "NATS %s, with the bucket \"%s\"", c->version, c->bucket);
    dlock_find(&report, replicas >= 3 ? NULL : "make a bucket with three replicas: dlock schema",
               "%" PRId64 " replicas; a server that loses its power forgets what it stored in the last minutes",
               replicas);
    dlock_find(&report, hours > 0 ? NULL : "set a ttl, or a value stays for each name that was ever locked",
               "values, and with them leases, end after %" PRId64 " h", hours);
    dlock_find(&report, NULL, "leases end by the clock of the server that leads the bucket's stream");
    dlock_find(&report, "this backend has no TLS: use it in a network that you trust",
               "the connection is not encrypted");
    return 0;
}

/* ---- connecting -------------------------------------------------------------------------------------------------- */

static int nats_accepts(const struct dlock_uri *uri, struct dlock_error *err) {
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    const char *bucket = uri->path && *uri->path == '/' ? uri->path + 1 : "";
    int rc = dlock_check_slashes(uri, err);
    if (rc == 0 && (strlen(bucket) > 60 || bucket[strspn(bucket, plain)]))
        rc = dlock_fail(err, DLOCK_EINVAL, "URI: a bucket has at most 60 letters, digits, \"-\" and \"_\"");
    if (rc == 0 && !uri->user != !uri->password)
        rc = dlock_fail(err, DLOCK_EINVAL, "NATS takes a user and a password, or neither: nats://user:password@host");
    return rc;
}

static int nats_connect(void *conn, const struct dlock_uri *uri, const struct dlock_peer *peer, int ms,
                        struct dlock_error *err) {
    struct nats *c = wire_begin(conn, ms, err);
    int rc = nats_accepts(uri, err);
    if (rc != 0) return rc;
    snprintf(c->bucket, sizeof c->bucket, "%s", uri->path && uri->path[1] ? uri->path + 1 : "dlock");
    snprintf(c->client, sizeof c->client, "%s", peer->client);
    snprintf(c->inbox, sizeof c->inbox, "_INBOX.%s.%" PRIxPTR ".%" PRIx64, c->client, (uintptr_t)c, dlock_now_us());
    rc = wire_connect(c, uri);
    if (rc == 0) rc = ask_bucket(c);
    if (rc != 0) return rc;
    const json_t *config = json_object_get(c->answers[0], "config");
    const bool file = strcmp(wire_string(config, "storage"), "file") == 0;
    const int64_t max_age_ns = wire_number(config, "max_age");
    if (max_age_ns < 0) return wire_invalid(c, "answer");
    if (!file)
        return wire_fail(c, DLOCK_ENOTSUP, "has the bucket \"%s\" in memory: it would forget at a restart", c->bucket);
    c->max_age_ms = max_age_ns ? max_age_ns / 1000000 : 0;
    return read_clock(c);
}

static void nats_abandon(void *conn) {
    const struct nats *c = conn;
    if (c->open) close(c->stream.fd);
    if (c->stream.dialing) close(c->stream.dialing - 1);
}

static void nats_disconnect(void *conn) {
    struct nats *c = conn;
    const bool open = c->open;
    *(volatile bool *)&c->open = false; /* first: a child that is forked now must not close this number */
    if (open) dlock_stream_hang_up(&c->stream, c->unanswered);
    if (open) dlock_stream_close(&c->stream);
    wire_forget(c);
    dlock_text_free(&c->in);
    dlock_text_free(&c->out);
}

DLOCK_BACKEND(nats) = {.abi = DLOCK_ABI,
                       .size = sizeof(struct dlock_backend),
                       .name = "nats",
                       .schemes = (const char *const[]){"nats", NULL},
                       .caps = DLOCK_CAP_LEASE | DLOCK_CAP_FENCE | DLOCK_CAP_WAKE | DLOCK_CAP_INSPECT | DLOCK_CAP_LIST |
                               DLOCK_CAP_BREAK | DLOCK_CAP_EXPORT,
                       .conn_size = sizeof(struct nats),
                       .connect = nats_connect,
                       .disconnect = nats_disconnect,
                       .acquire = nats_acquire,
                       .renew = nats_renew,
                       .release = nats_release,
                       .abandon = nats_abandon,
                       .listen = nats_listen,
                       .wake = nats_wake,
                       .probe = nats_probe,
                       .inspect = nats_inspect,
                       .list = nats_list,
                       .break_lock = nats_break,
                       .check = nats_check,
                       .schema = schema,
                       .accepts = nats_accepts};
