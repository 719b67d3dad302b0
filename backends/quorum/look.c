/* What the members show of their locks, and what a majority of them say together. */
#include "quorum.h"

#include <stdlib.h>

/* ---- at a member ------------------------------------------------------------------------------------------------- */

void quorum_forget(struct quorum_look *look) {
    for (struct quorum_seen *seen = look->first, *next; seen; seen = next) {
        next = seen->next;
        free(seen);
    }
    look->first = NULL;
    look->n = 0;
    look->full = false;
}

static int see(const struct dlock_info *info, void *arg) {
    struct quorum_look *look = arg;
    const size_t name = strlen(info->name) + 1, token = strlen(info->token) + 1;
    struct quorum_seen *seen = malloc(sizeof *seen + name + token);
    look->full = !seen;
    if (!seen) return 1;
    char *texts = (char *)(seen + 1);
    seen->info = *info;
    seen->info.name = memcpy(texts, info->name, name);
    seen->info.token = memcpy(texts + name, info->token, token);
    seen->member = look->member;
    seen->next = look->first;
    look->first = seen;
    look->n++;
    return 0;
}

int quorum_look(struct quorum_member *member, struct quorum_part *part, int timeout_ms, struct dlock_error *err) {
    const struct dlock_backend *backend = member->server.backend;
    struct quorum_look *look = part->look;
    const char *name = part->claims[0].name;
    int rc;
    quorum_forget(look);
    if (part->round->verb == QUORUM_LIST)
        rc = backend->list(member->conn, name, look->cursor, see, look, timeout_ms, err);
    else if (part->round->verb == QUORUM_INSPECT)
        rc = backend->inspect(member->conn, name, see, look, timeout_ms, err);
    else
        rc = backend->break_lock(member->conn, name, timeout_ms, err);
    look->more = rc == 1 && part->round->verb == QUORUM_LIST;
    if (look->more) rc = 0;
    if (rc >= 0 && look->full) rc = dlock_fail(err, DLOCK_ENOMEM, "out of memory for the holders of locks");
    part->claims[0].result = rc;
    return rc > 0 || rc == DLOCK_EUNAVAILABLE || rc == DLOCK_EPROTO ? rc : 0;
}

/* ---- together ---------------------------------------------------------------------------------------------------- */

void quorum_gather(struct quorum_look *from, struct quorum_look *to) {
    struct quorum_seen **end = &from->first;
    while (*end) end = &(*end)->next;
    *end = to->first;
    to->first = from->first;
    to->n += from->n;
    from->first = NULL;
    from->n = 0;
}

/* Returns the length of the part of a token that names its acquisition: in dlock's own, that before "@host:pid" and the
 * number of the try. */
static size_t identity(const char *token) {
    const bool ours = strspn(token, "0123456789abcdef") == 24 && token[24] == '.';
    return ours ? strcspn(token, "@") : strlen(token);
}

static int by_token(const struct quorum_seen *a, const struct quorum_seen *b) {
    const size_t n = identity(a->info.token), m = identity(b->info.token);
    const int order = memcmp(a->info.token, b->info.token, n < m ? n : m);
    return order ? order : (n > m) - (n < m);
}

static int in_order(const void *left, const void *right) {
    const struct quorum_seen *a = *(struct quorum_seen *const *)left, *b = *(struct quorum_seen *const *)right;
    int order = strcmp(a->info.name, b->info.name);
    if (order == 0) order = by_token(a, b);
    return order ? order : (a->member > b->member) - (a->member < b->member);
}

int64_t quorum_kth(int64_t *numbers, size_t n, size_t k) {
    for (size_t i = 1; i < n; i++)
        for (size_t j = i; j > 0 && numbers[j - 1] > numbers[j]; j--) {
            int64_t swapped = numbers[j];
            numbers[j] = numbers[j - 1];
            numbers[j - 1] = swapped;
        }
    return numbers[k];
}

/* What the members show of one grant: n entries, of `votes` members. */
struct grant {
    size_t n;
    unsigned votes;
    struct dlock_info info; /* what a majority of the members says, with the token that one of them shows */
};

/* Returns the number that a majority of the members reach, or all of a minority. */
static int64_t reached(int64_t *numbers, const struct grant *grant, size_t majority) {
    return quorum_kth(numbers, grant->votes, grant->votes > majority ? grant->votes - majority : 0);
}

/* Gathers what the members show of the first grant of these n entries. */
static void read_grant(struct quorum_seen *const *seen, size_t n, size_t majority, struct grant *grant) {
    int64_t fences[QUORUM_MOST], left_ms[QUORUM_MOST], held_ms[QUORUM_MOST];
    unsigned exclusive = 0;
    *grant = (struct grant){.info = seen[0]->info};
    for (; grant->n < n && by_token(seen[0], seen[grant->n]) == 0; grant->n++) {
        const struct quorum_seen *next = seen[grant->n];
        if (grant->n > 0 && next->member == seen[grant->n - 1]->member) continue; /* two pages have shown it */
        fences[grant->votes] = (int64_t)next->info.fence;
        held_ms[grant->votes] = next->info.held_ms;
        left_ms[grant->votes++] = next->info.remaining_ms;
        exclusive += next->info.mode == DLOCK_EXCLUSIVE;
        if (next->info.mode != DLOCK_EXCLUSIVE) grant->info = next->info;
    }
    /* A downgrade counts if so many members have heard of it that the others are no majority. */
    if (exclusive >= majority) grant->info.mode = DLOCK_EXCLUSIVE;
    grant->info.fence = (uint64_t)reached(fences, grant, majority);
    grant->info.remaining_ms = reached(left_ms, grant, majority);
    grant->info.held_ms = reached(held_ms, grant, majority);
}

/* Shows a grant with the token of its claim: that of its first try. */
static bool show(struct grant *grant, dlock_each each, void *arg) {
    char token[DLOCK_TOKEN_MAX + 1];
    snprintf(token, sizeof token, "%s", grant->info.token);
    char *tail = token[identity(token)] ? strchr(token + identity(token), ':') : NULL;
    if (tail && (tail = strchr(tail + 1, ':'))) *tail = '\0';
    grant->info.token = token;
    return each(&grant->info, arg) == 0;
}

/* Shows the grants of one name that may be in force, of which there are n entries. False: `each` ends the walk. */
static bool show_name(struct quorum_seen *const *seen, size_t n, size_t majority, unsigned away, dlock_each each,
                      void *arg) {
    unsigned most = 0, most_exclusive = 0;
    uint32_t waiters = 0;
    struct grant grant;
    for (size_t i = 0; i < n; i++)
        if (seen[i]->info.waiters > waiters) waiters = seen[i]->info.waiters;
    for (size_t i = 0; i < n; i += grant.n) {
        read_grant(seen + i, n - i, majority, &grant);
        if (grant.votes > most) most = grant.votes;
        if (grant.info.mode == DLOCK_EXCLUSIVE && grant.votes > most_exclusive) most_exclusive = grant.votes;
    }
    for (size_t i = 0; i < n; i += grant.n) {
        read_grant(seen + i, n - i, majority, &grant);
        grant.info.waiters = waiters;
        const unsigned rival = grant.info.mode == DLOCK_EXCLUSIVE ? most : most_exclusive;
        if (grant.votes + away >= majority && grant.votes >= rival && !show(&grant, each, arg)) return false;
    }
    return true;
}

int quorum_show(const struct quorum_look *look, size_t majority, unsigned away, dlock_each each, void *arg,
                struct dlock_error *err) {
    struct quorum_seen **seen = malloc((look->n + 1) * sizeof *seen);
    size_t n = 0, end;
    if (!seen) return dlock_fail(err, DLOCK_ENOMEM, "out of memory for the holders of locks");
    for (struct quorum_seen *one = look->first; one; one = one->next) seen[n++] = one;
    qsort(seen, n, sizeof *seen, in_order);
    for (size_t i = 0; i < n; i = end) {
        for (end = i + 1; end < n && strcmp(seen[i]->info.name, seen[end]->info.name) == 0;) end++;
        if (!show_name(seen + i, end - i, majority, away, each, arg)) break;
    }
    free(seen);
    return 0;
}
