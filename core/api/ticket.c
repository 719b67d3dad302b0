/* Grants that change hands between processes. A ticket is everything that a backend needs to renew and release an
 * acquisition, in printable characters:
 *
 *     dlock1+<backend>+<mode>+<limit>+<flags>+<lease_ms>+<fence>+<ordinal>+<state>+…+<state>+<token>+<name>+<check>
 *
 * Numbers are in hex, the full name is percent-encoded, and the check is an FNV-1a hash of all before it, against
 * typos. */
#include "api/api.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBERS = 10, FIELDS = NUMBERS + 5 };

struct ticket {
    const char *backend, *token;
    uint64_t number[NUMBERS]; /* mode, limit, flags, lease_ms, fence, ordinal, state[4] */
    char name[DLOCK_FULL_NAME_MAX + 1];
};
enum { MODE, LIMIT, FLAGS, LEASE, FENCE, ORDINAL, STATE };

_Static_assert(6 + DLOCK__WORD_MAX + 1 + NUMBERS * 17 + DLOCK_TOKEN_MAX + 3 * DLOCK_FULL_NAME_MAX + 20 <=
                   DLOCK_TICKET_MAX,
               "a ticket always fits");

/* ---- writing ---- */

static void write_ticket(const struct dlock__acquisition *acq, char out[DLOCK_TICKET_MAX + 1]) {
    char name[3 * DLOCK_FULL_NAME_MAX + 1];
    dlock_encode_name(name, sizeof name, acq->name->text, " !\"#$&'()*+,/;<=>?[\\]^`{|}~", true);
    int n = snprintf(out, DLOCK_TICKET_MAX + 1,
                     "dlock1+%s+%x+%" PRIx32 "+%" PRIx32 "+%" PRIx64 "+%" PRIx64 "+%x+%" PRIx64 "+%" PRIx64 "+%" PRIx64
                     "+%" PRIx64 "+%s+%s",
                     acq->name->client->backend->name, (unsigned)acq->mode, acq->limit, acq->flags,
                     (uint64_t)acq->lease_ms, acq->server_fence, acq->ordinal, acq->backend_state[0],
                     acq->backend_state[1], acq->backend_state[2], acq->backend_state[3], acq->token, name);
    snprintf(out + n, (size_t)(DLOCK_TICKET_MAX + 1 - n), "+%016" PRIx64, dlock_hash(out, (size_t)n, DLOCK_HASH_SEED));
}

/* ---- reading: a ticket is untrusted input ---- */

static bool read_number(const char *text, uint64_t *number) {
    char *end;
    if (!isxdigit((unsigned char)*text) || strlen(text) > 16) return false;
    *number = strtoull(text, &end, 16);
    return *end == '\0';
}

static bool read_name(const char *from, char out[DLOCK_FULL_NAME_MAX + 1]) {
    size_t n = 0;
    for (; *from; n++) {
        char hex[3] = {0};
        if (n >= DLOCK_FULL_NAME_MAX) return false;
        if (*from != '%') {
            out[n] = *from++;
            continue;
        }
        if (!isxdigit((unsigned char)from[1]) || !isxdigit((unsigned char)from[2])) return false;
        memcpy(hex, from + 1, 2);
        out[n] = (char)strtoul(hex, NULL, 16);
        if (out[n] == '\0') return false;
        from += 3;
    }
    out[n] = '\0';
    return n > 0;
}

static bool sensible(const struct ticket *ticket) {
    const uint64_t *number = ticket->number;
    return number[MODE] <= DLOCK_PERMIT && number[LIMIT] <= UINT32_MAX &&
           (number[MODE] == DLOCK_PERMIT) == (number[LIMIT] > 0) &&
           number[FLAGS] <= (DLOCK_FIXED_LEASE | DLOCK_NO_REENTRY) && number[LEASE] <= DLOCK_LEASE_MAX_MS &&
           number[FENCE] > 0 && number[FENCE] < UINT64_C(1) << 55 && number[ORDINAL] < DLOCK__ORDINAL_MAX &&
           dlock__token_check(ticket->token);
}

/* Splits `copy` in place, which has to live as long as the ticket. False: not a valid ticket. */
static bool read_ticket(char *copy, struct ticket *ticket) {
    char *field[FIELDS], *rest = copy;
    uint64_t check;
    const char *last = strrchr(copy, '+');
    if (!last || !read_number(last + 1, &check) || check != dlock_hash(copy, (size_t)(last - copy), DLOCK_HASH_SEED))
        return false;
    for (size_t i = 0; i < FIELDS; i++)
        if (!(field[i] = strsep(&rest, "+"))) return false;
    if (rest || strcmp(field[0], "dlock1") != 0) return false;
    ticket->backend = field[1];
    for (size_t i = 0; i < NUMBERS; i++)
        if (!read_number(field[2 + i], &ticket->number[i])) return false;
    ticket->token = field[2 + NUMBERS];
    return read_name(field[3 + NUMBERS], ticket->name) && sensible(ticket);
}

/* ---- export ---- */

static int check_export(struct dlock_lock *lock, const struct dlock__acquisition *acq, struct dlock_error *err) {
    const char *shown = dlock__name_shown(lock->name);
    if (!dlock__can(lock->client, DLOCK_CAP_EXPORT))
        return dlock__not_supported(lock->client, DLOCK_CAP_EXPORT,
                                    "cannot hand a grant to another process: it ends with the process that has it; "
                                    "keep that one running (`dlock run NAME COMMAND`)",
                                    err);
    if (!acq) return dlock__not_owned(lock, err);
    if (dlock__acq_lost(acq)) return dlock__loss_fail(acq, " before its export", err);
    if (acq->count != 1)
        return dlock_fail(err, DLOCK_EINVAL,
                          "lock \"%s\" was acquired %u times; release it down to once, then export it", shown,
                          (unsigned)acq->count);
    return dlock__fence_can_grow(acq, err);
}

/* Refuses an export while a request that was not answered may reach the server and change what the importer counts on.
 * An acquire that comes after the end of the exported grant would be granted again; the importer would take that for
 * this grant, with a fence that others have overtaken. An extension, or the downgrade of a fixed lease, could set a
 * shorter lease than the ticket's. */
static int check_late(const struct dlock__acquisition *acq, struct dlock_error *err) {
    int64_t now = dlock__now_us(), kept_us = dlock__us(dlock__lease_for_ms(acq->valid_until_us - now));
    bool anew = dlock__acq_may_come_late(acq, dlock__after(now, kept_us));
    int64_t lease_ms = acq->lease_ms < UINT32_MAX ? acq->lease_ms : UINT32_MAX; /* the most that is noted of another */
    bool shorter = dlock__acq_least_ms(acq, now, lease_ms) < lease_ms;
    if (!anew && !shorter) return 0;
    return dlock_fail(err, DLOCK_EUNAVAILABLE,
                      "lock \"%s\" is still held here: a request for it that was not answered may reach the server "
                      "later and %s; export it in %lld ms",
                      dlock__name_shown(acq->name), anew ? "acquire it anew" : "make its lease shorter",
                      (long long)(acq->unanswered.late_until_us - now) / 1000 + 1);
}

/* Restarts the lease, so that the importer has a whole lease for the import. Meanwhile another thread may use the
 * grant through the same handle, also release it, and it may be handed over to a next owner, whose fence is another
 * one. A reader's grant is never handed over here, and the end of a downgrade changes its fence: so that is not
 * compared. */
static int renew(struct dlock_lock *lock, struct dlock__acquisition *acq, struct dlock_error *err) {
    uint64_t fence = dlock__acq_fence(acq);
    int rc = dlock__renew_to_export(lock, acq, err);
    if (rc != 0) return rc;
    if (acq->mode != DLOCK_SHARED && dlock__acq_fence(acq) != fence)
        return dlock_fail(err, DLOCK_EOWNER, "lock \"%s\" was released before its export",
                          dlock__name_shown(lock->name));
    return check_export(lock, acq, err);
}

static int export(struct dlock_lock *lock, struct dlock__acquisition *acq, char *out, struct dlock_error *err) {
    struct dlock__name *name = acq->name;
    int rc = renew(lock, acq, err);
    if (rc == 0) rc = check_late(acq, err);
    if (rc == 0) rc = dlock__exported_remember(acq, err);
    if (rc != 0) return rc;
    write_ticket(acq, out);
    dlock__acq_release(acq); /* neither this process nor our guardian renews or releases it any more */
    dlock__held_remove(name, acq);
    dlock__acq_disown(acq);
    dlock__guard_leave(acq);
    acq->token[0] = '\0'; /* another thread may still have a reference, and an import here must not find this */
    dlock__name_signal(name);
    dlock__acq_put(acq);
    return 0;
}

int dlock_export(dlock_lock *lock, char *ticket, size_t size, struct dlock_error *err) {
    if (!ticket || size < DLOCK_TICKET_MAX + 1)
        return dlock_fail(err, DLOCK_EINVAL, "a ticket needs a buffer of %d bytes, got %zu", DLOCK_TICKET_MAX + 1,
                          size);
    int rc = dlock__lock_begin(lock, err);
    if (rc != 0) return rc;
    struct dlock__acquisition *acq = dlock__owned(lock);
    rc = check_export(lock, acq, err);
    if (rc == 0) {
        acq->refs++;
        rc = export(lock, acq, ticket, err);
        dlock__acq_put(acq);
    }
    return dlock__lock_end(lock, rc);
}

/* ---- import ---- */

/* Fills in the options from the ticket. The caller may omit what the ticket says, but must not contradict it. */
static int merge(const struct ticket *ticket, struct dlock_options *options, struct dlock_error *err) {
    const uint64_t *number = ticket->number;
    if ((options->mode != DLOCK_EXCLUSIVE && (uint64_t)options->mode != number[MODE]) ||
        (options->limit != 0 && options->limit != number[LIMIT]) ||
        (options->lease_ms != 0 && (uint64_t)options->lease_ms != number[LEASE]))
        return dlock_fail(err, DLOCK_EINVAL, "the options contradict the ticket: leave mode, limit and lease_ms out");
    options->mode = (enum dlock_mode)number[MODE];
    options->limit = (uint32_t)number[LIMIT];
    options->lease_ms = (int64_t)number[LEASE];
    options->flags |= (uint32_t)number[FLAGS];
    options->size = sizeof *options;
    return 0;
}

static int check_import(dlock_client *client, const struct ticket *ticket, struct dlock_error *err) {
    const char *prefix = client->uri->prefix;
    if (strcmp(ticket->backend, client->backend->name) != 0)
        return dlock_fail(err, DLOCK_EINVAL, "the ticket is for a %s server, this one is %s", ticket->backend,
                          client->backend->name);
    if (!dlock__can(client, DLOCK_CAP_EXPORT))
        return dlock__not_supported(client, DLOCK_CAP_EXPORT, "cannot take over a grant of another process", err);
    if (strncmp(ticket->name, prefix, strlen(prefix)) != 0)
        return dlock_fail(err, DLOCK_EINVAL, "the ticket is for a name without this client's prefix \"%s\"", prefix);
    return 0;
}

/* Takes over the grant by one renewal, which shows whether it still exists and restarts its lease. */
static int take_over(struct dlock_lock *lock, const struct ticket *ticket, struct dlock_error *err) {
    struct dlock_client *client = lock->client;
    if (dlock__acq_find(client, lock->name->text, ticket->token))
        return dlock_fail(err, DLOCK_EINVAL, "the ticket's grant is in this client already");
    int rc = dlock__keeper_start(client, err);
    if (rc != 0) return rc;
    struct dlock__acquisition *acq = dlock__acq_for_token(lock->name, ticket->token);
    if (!acq) return dlock_fail(err, DLOCK_ENOMEM, "out of memory for an acquisition");
    struct dlock_error why;
    why.code = 0;
    acq->mode = lock->mode;
    acq->limit = lock->limit;
    acq->flags = lock->flags & 0xff;
    acq->lease_ms = lock->lease_ms;
    memcpy(acq->backend_state, ticket->number + STATE, sizeof acq->backend_state);
    int64_t deadline_us = dlock__after(dlock__now_us(), dlock__us(client->uri->timeout_ms));
    rc = dlock__op_run(acq, DLOCK__RENEW, 0, deadline_us, &why);
    if (rc == 0) rc = dlock__guard_enter(acq); /* not earlier: before that our death must not end the grant */
    if (rc == 0) {
        /* After a failure another thread's request may still use the claim. */
        acq->op->arg.fence = ticket->number[FENCE];
        rc = dlock__acq_granted(acq, &why);
    }
    if (rc == 0) {
        acq->ordinal = (uint8_t)(ticket->number[ORDINAL] + 1);
        dlock__held_add(lock->name, acq);
        dlock__own(acq, lock);
        return 0;
    }
    if (rc == DLOCK_ELOST)
        rc = dlock_fail(err, rc, "the grant of lock \"%s\" that the ticket stands for has ended",
                        dlock__name_shown(lock->name));
    else
        rc = dlock_fail(err, rc, "lock \"%s\" was not taken over: %s", dlock__name_shown(lock->name),
                        why.code ? why.message : dlock_strerror(rc));
    dlock__acq_put(acq);
    return rc;
}

int dlock_import(dlock_client *client, const char *text, const struct dlock_options *from, dlock_lock **out,
                 struct dlock_error *err) {
    char copy[DLOCK_TICKET_MAX + 1];
    struct ticket ticket;
    struct dlock_options options;
    if (!client || !out) return dlock_fail(err, DLOCK_EINVAL, "dlock_import needs a client and a place for the lock");
    if (dlock__forked(client)) return dlock__forked_error(err);
    size_t n = text ? strnlen(text, sizeof copy) : 0;
    if (n > 0 && n < sizeof copy) memcpy(copy, text, n + 1);
    if (n == 0 || n == sizeof copy || !read_ticket(copy, &ticket))
        return dlock_fail(err, DLOCK_EINVAL,
                          "this is not a ticket of dlock acquire (dlock_export), or not a whole one");
    int rc = check_import(client, &ticket, err);
    if (rc == 0) rc = dlock__options_read(from, &options, err);
    if (rc == 0) rc = merge(&ticket, &options, err);
    dlock_lock *lock;
    if (rc == 0) rc = dlock_new(client, ticket.name + strlen(client->uri->prefix), &options, &lock, err);
    if (rc != 0) return rc;
    rc = dlock__lock_begin(lock, err);
    if (rc == 0) rc = dlock__lock_end(lock, take_over(lock, &ticket, err));
    if (rc == 0)
        *out = lock;
    else
        dlock_free(lock);
    return rc;
}
