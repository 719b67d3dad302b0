/* dlock_export and dlock_import: a grant changes hands. */
#include "thread.h"

#include <stdio.h>
#include <string.h>

/* An exporting process's message to the case. */
struct hand_over {
    struct dlock_options options;
    char name[DLOCK_NAME_MAX + 1];
    char ticket[DLOCK_TICKET_MAX + 1];
    uint64_t fence;
};

static void expect_ticket(const char *ticket) {
    EXPECT(ticket[0] && memchr(ticket, '\0', DLOCK_TICKET_MAX + 1));
    for (const char *at = ticket; *at; at++)
        if (*at <= ' ' || *at > '~') FAIL("character %d stands in a ticket", *at);
}

/* Acquires and exports, so that it no longer holds the grant; then its process ends, and with it its client. */
static void exporting_process(void *arg) {
    struct hand_over *hand_over = arg;
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, hand_over->name, &hand_over->options);
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    hand_over->fence = dlock_fence(lock);
    EXPECT_CODE(0, dlock_export(lock, hand_over->ticket, sizeof hand_over->ticket, ERR));
    expect_ticket(hand_over->ticket);
    EXPECT(!dlock_held(lock) && dlock_remaining_ms(lock) == 0 && dlock_fence(lock) == 0);
    EXPECT_CODE(DLOCK_EOWNER, dlock_release(lock, ERR));
    if (hand_over->options.mode == DLOCK_EXCLUSIVE) EXPECT_CODE(DLOCK_EBUSY, dlock_acquire(lock, 0, ERR));
}

/* Runs an exporting process to its end; the grant is then in the ticket alone. */
static struct hand_over *take_ticket(const char *name, const struct dlock_options *options) {
    struct hand_over *hand_over = shared_memory(sizeof *hand_over);
    hand_over->options = *options;
    snprintf(hand_over->name, sizeof hand_over->name, "%s", name);
    join_process(start_process(exporting_process, hand_over, 0));
    return hand_over;
}

static dlock_lock *import(dlock_client *client, const char *ticket, const struct dlock_options *options) {
    dlock_lock *lock = NULL;
    EXPECT_CODE(0, dlock_import(client, ticket, options, &lock, ERR));
    EXPECT(lock && dlock_held(lock) && dlock_remaining_ms(lock) > 0);
    return lock;
}

/* The ticket outlives its process, and the importer's renewals keep the grant. */
void case_export_to_another_process(void) {
    struct dlock_options options = options_with(RENEWED_LEASE_MS, 0);
    struct hand_over *hand_over = take_ticket(suite.name, &options);
    SCOPED_CLIENT *client = open_client();
    dlock_lock *lock = import(client, hand_over->ticket, NULL);
    EXPECT(dlock_fence(lock) > hand_over->fence && dlock_fence(lock) >> 8 == hand_over->fence >> 8);
    EXPECT_TAKEN(suite.name);
    sleep_ms(RENEWED_LEASE_MS * 3 / 2);
    EXPECT(dlock_held(lock));
    EXPECT_TAKEN(suite.name);
    uint64_t fence = dlock_fence(lock);
    EXPECT_CODE(0, dlock_release(lock, ERR));
    EXPECT_FREE(suite.name);
    EXPECT_CODE(DLOCK_EOWNER, dlock_release(lock, ERR));
    EXPECT_CODE(0, dlock_acquire(lock, SLACK_MS, ERR)); /* as with any other handle */
    EXPECT(dlock_fence(lock) > fence);
    dlock_free(lock);
    EXPECT_FREE(suite.name);
}

/* A grant changes hands repeatedly, with growing fences; each process has it alone. */
void case_export_from_hand_to_hand(void) {
    enum { HANDS = 6 };
    struct dlock_options options = options_with(LONG_LEASE_MS, 0), by_handle = DLOCK_OPTIONS_INIT;
    by_handle.owner = DLOCK_OWNER_HANDLE;
    char name[DLOCK_NAME_MAX + 1], ticket[DLOCK_TICKET_MAX + 1];
    tagged_name(name, "a \"b\" %41+\xc3\xa4/\\");
    memset(name + strlen(name), '+', DLOCK_NAME_MAX - strlen(name)); /* as long as a name may be */
    name[DLOCK_NAME_MAX] = '\0';
    dlock_client *clients[2] = {open_client(), open_client()};
    dlock_lock *lock = new_lock(clients[0], name, &options);
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    for (int i = 1; i <= HANDS; i++) {
        uint64_t fence = dlock_fence(lock);
        EXPECT_CODE(0, dlock_export(lock, ticket, sizeof ticket, ERR));
        expect_ticket(ticket);
        dlock_lock *next = import(clients[i % 2], ticket, i % 3 == 0 ? &by_handle : NULL);
        EXPECT(dlock_fence(next) > fence && !dlock_held(lock));
        EXPECT_CODE(DLOCK_EOWNER, dlock_release(lock, ERR));
        dlock_free(lock);
        EXPECT_TAKEN(name);
        EXPECT_CODE(i % 3 == 0 ? 0 : DLOCK_EOWNER, in_thread(release_here, next, 0).code);
        if (i % 3 == 0) EXPECT_CODE(0, dlock_acquire(next, SLACK_MS, ERR));
        lock = next;
    }
    EXPECT_CODE(0, dlock_release(lock, ERR));
    EXPECT_FREE(name);
    dlock_free(lock);
    for (int i = 0; i < 2; i++) dlock_close(clients[i]);
}

/* The exporter's threads that wait for the lock keep waiting until the importer releases it. */
void case_export_in_front_of_waiters(void) {
    struct dlock_options options = options_with(LONG_LEASE_MS, 0);
    SCOPED_CLIENT *client = open_client(), *other = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, &options);
    char ticket[DLOCK_TICKET_MAX + 1];
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    struct call call = {.lock = lock, .timeout_ms = PATIENCE_MS, .code = 1};
    pthread_t thread = start_thread(acquire_here, &call);
    sleep_ms(200);
    EXPECT_CODE(0, dlock_export(lock, ticket, sizeof ticket, ERR));
    SCOPED_LOCK *imported = import(other, ticket, NULL);
    sleep_ms(300);
    EXPECT(dlock_held(imported));
    uint64_t fence = dlock_fence(imported);
    int64_t released_us = now_us();
    EXPECT_CODE(0, dlock_release(imported, ERR));
    pthread_join(thread, NULL);
    EXPECT_CODE(0, call.code);
    EXPECT(call.fence > fence);
    EXPECT_BETWEEN(0, SLACK_MS, (call.at_us - released_us) / 1000);
}

/* A ticket is not renewed: the grant ends with its lease, and after that the ticket is invalid. */
void case_ticket_ends_with_its_lease(void) {
    struct dlock_options options = options_with(LEASE_MS, 0), longer = options_with(LONG_LEASE_MS, 0);
    char name[DLOCK_NAME_MAX + 1];
    tagged_name(name, "used");
    struct hand_over *used = take_ticket(name, &longer);
    int64_t begun = now_ms();
    struct hand_over *hand_over = take_ticket(suite.name, &options);
    SCOPED_CLIENT *client = open_client();
    dlock_lock *lock = new_lock(client, suite.name, NULL), *imported = NULL;
    EXPECT_CODE(0, dlock_acquire(lock, PATIENCE_MS, ERR));
    EXPECT_BETWEEN(LEASE_MS / 2, LEASE_MS + SLACK_MS, now_ms() - begun);
    EXPECT(dlock_fence(lock) > hand_over->fence);
    EXPECT_CODE(DLOCK_ELOST, dlock_import(client, hand_over->ticket, NULL, &imported, ERR));
    EXPECT(!imported && dlock_held(lock));
    EXPECT_CODE(0, dlock_release(lock, ERR));
    EXPECT_CODE(DLOCK_ELOST, dlock_import(client, hand_over->ticket, NULL, &imported, ERR));
    /* A ticket that was imported, and whose grant was released. */
    imported = import(client, used->ticket, NULL);
    EXPECT_CODE(0, dlock_release(imported, ERR));
    dlock_free(imported);
    imported = NULL;
    EXPECT_CODE(DLOCK_ELOST, dlock_import(client, used->ticket, NULL, &imported, ERR));
    EXPECT(!imported);
    EXPECT_FREE(suite.name);
    EXPECT_FREE(name);
    dlock_free(lock);
}

static void count_loss(dlock_lock *lock, const struct dlock_error *err, void *arg) {
    (void)lock;
    EXPECT(err && err->code == DLOCK_ELOST);
    __atomic_add_fetch((int *)arg, 1, __ATOMIC_SEQ_CST);
}

/* A fixed lease is not renewed after its export either. */
void case_export_of_a_fixed_lease(void) {
    const int64_t lease_ms = 3 * LEASE_MS; /* two processes begin within it */
    struct dlock_options options = options_with(lease_ms, DLOCK_FIXED_LEASE), with_word = DLOCK_OPTIONS_INIT;
    int losses = 0;
    with_word.on_lost = count_loss;
    with_word.on_lost_arg = &losses;
    struct hand_over *hand_over = take_ticket(suite.name, &options);
    dlock_client *client = open_client();
    int64_t begun = now_ms();
    dlock_lock *lock = import(client, hand_over->ticket, &with_word), *next = new_lock(client, suite.name, NULL);
    EXPECT_TAKEN(suite.name);
    struct call call = in_thread(acquire_here, next, PATIENCE_MS);
    EXPECT_CODE(0, call.code);
    EXPECT_BETWEEN(lease_ms / 2, lease_ms + SLACK_MS, now_ms() - begun);
    EXPECT(call.fence > hand_over->fence);
    for (int64_t until = now_ms() + SLACK_MS; __atomic_load_n(&losses, __ATOMIC_SEQ_CST) == 0; sleep_ms(2))
        if (now_ms() > until) FAIL("on_lost does not come");
    EXPECT(!dlock_held(lock));
    EXPECT_CODE(DLOCK_ELOST, dlock_release(lock, ERR));
    dlock_free(lock);
    dlock_free(next);
    dlock_close(client);
    EXPECT(losses == 1);
}

void case_export_of_a_reader(void) {
    struct dlock_options shared = options_for(DLOCK_SHARED, 0, LONG_LEASE_MS);
    struct hand_over *hand_over = take_ticket(suite.name, &shared);
    SCOPED_CLIENT *client = open_client(), *other = open_client();
    SCOPED_LOCK *lock = import(client, hand_over->ticket, NULL), *reader = new_lock(other, suite.name, &shared);
    EXPECT_CODE(0, dlock_acquire(reader, 0, ERR));
    EXPECT_TAKEN(suite.name);
    EXPECT_CODE(DLOCK_EINVAL, dlock_downgrade(lock, ERR)); /* it is a reader's already */
    EXPECT_CODE(0, dlock_release(reader, ERR));
    EXPECT_TAKEN(suite.name);
    EXPECT_CODE(0, dlock_release(lock, ERR));
    EXPECT_FREE(suite.name);
    /* A writer's grant that was downgraded is a reader's. */
    char ticket[DLOCK_TICKET_MAX + 1];
    struct dlock_options exclusive = options_with(LONG_LEASE_MS, 0);
    SCOPED_LOCK *writer = new_lock(client, suite.name, &exclusive);
    EXPECT_CODE(0, dlock_acquire(writer, 0, ERR));
    EXPECT_CODE(0, dlock_downgrade(writer, ERR));
    EXPECT_CODE(0, dlock_export(writer, ticket, sizeof ticket, ERR));
    SCOPED_LOCK *imported = import(other, ticket, &shared);
    EXPECT_CODE(0, in_thread(acquire_here, reader, 0).code);
    EXPECT_TAKEN(suite.name);
    EXPECT_CODE(0, dlock_release(imported, ERR));
    EXPECT_FREE(suite.name);
}

void case_export_of_a_permit(void) {
    struct dlock_options permits = options_for(DLOCK_PERMIT, 2, LONG_LEASE_MS);
    struct dlock_options more = options_for(DLOCK_PERMIT, 3, LONG_LEASE_MS);
    struct hand_over *hand_over = take_ticket(suite.name, &permits);
    SCOPED_CLIENT *client = open_client(), *other = open_client();
    SCOPED_LOCK *lock = NULL, *permit = new_lock(other, suite.name, &permits),
                *misfit = new_lock(other, suite.name, &more);
    EXPECT_CODE(DLOCK_EINVAL, dlock_import(client, hand_over->ticket, &more, &lock, ERR));
    lock = import(client, hand_over->ticket, &permits);
    EXPECT_CODE(DLOCK_EINVAL, dlock_acquire(misfit, 0, ERR));
    EXPECT_CODE(0, dlock_acquire(permit, 0, ERR));
    EXPECT_CODE(DLOCK_EBUSY, dlock_acquire(permit, 0, ERR));
    EXPECT_CODE(DLOCK_EBUSY, dlock_acquire(lock, 0, ERR)); /* a second one, through the imported handle */
    EXPECT_CODE(0, dlock_release(permit, ERR));
    EXPECT_CODE(0, dlock_acquire(lock, SLACK_MS, ERR));
    EXPECT_CODE(0, dlock_release(lock, ERR));
    EXPECT_CODE(0, dlock_release(lock, ERR));
    EXPECT_CODE(DLOCK_EOWNER, dlock_release(lock, ERR));
    EXPECT_FREE(suite.name);
}

void case_export_refused(void) {
    struct dlock_options brief = options_with(LEASE_MS / 2, DLOCK_FIXED_LEASE);
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = new_lock(client, suite.name, NULL), *ends = new_lock(client, suite.name, &brief);
    char ticket[DLOCK_TICKET_MAX + 1] = "untouched";
    EXPECT_CODE(DLOCK_EOWNER, dlock_export(lock, ticket, sizeof ticket, ERR));
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR));
    EXPECT_CODE(DLOCK_EINVAL, dlock_export(lock, ticket, 10, ERR));
    EXPECT_CODE(DLOCK_EINVAL, dlock_export(lock, ticket, sizeof ticket - 1, ERR));
    EXPECT_CODE(0, dlock_acquire(lock, 0, ERR)); /* 2 */
    EXPECT_CODE(DLOCK_EINVAL, dlock_export(lock, ticket, sizeof ticket, ERR));
    EXPECT_CODE(0, dlock_release(lock, ERR)); /* 1 */
    EXPECT(dlock_held(lock));
    EXPECT_TAKEN(suite.name);
    EXPECT_CODE(0, dlock_release(lock, ERR)); /* 0 */
    EXPECT_CODE(0, dlock_acquire(ends, 0, ERR));
    sleep_ms(LEASE_MS);
    EXPECT_CODE(DLOCK_ELOST, dlock_export(ends, ticket, sizeof ticket, ERR));
    EXPECT(strcmp(ticket, "untouched") == 0);
    EXPECT_CODE(DLOCK_ELOST, dlock_release(ends, ERR));
    if (suite.caps & DLOCK_CAP_BREAK) {
        EXPECT_CODE(0, dlock_acquire(lock, SLACK_MS, ERR));
        EXPECT_CODE(0, dlock_break(client, suite.name, ERR));
        EXPECT_CODE(DLOCK_ELOST, dlock_export(lock, ticket, sizeof ticket, ERR));
        EXPECT(!dlock_held(lock) && strcmp(ticket, "untouched") == 0);
        EXPECT_CODE(DLOCK_ELOST, dlock_release(lock, ERR));
    }
}

/* A ticket is untrusted input. */
void case_import_refused(void) {
    struct dlock_options options = options_with(LONG_LEASE_MS, 0), other_lease = options_with(LONG_LEASE_MS * 2, 0);
    struct hand_over *hand_over = take_ticket(suite.name, &options);
    SCOPED_CLIENT *client = open_client();
    SCOPED_LOCK *lock = NULL;
    static const char *const garbage[] = {"", " ", "ticket", "dlock1", "dlock1+", "+++++++++++++++", "%", "\xff\xfe"};
    for (size_t i = 0; i < sizeof garbage / sizeof garbage[0]; i++)
        EXPECT_CODE(DLOCK_EINVAL, dlock_import(client, garbage[i], NULL, &lock, ERR));
    static char endless[DLOCK_TICKET_MAX * 3];
    memset(endless, 'a', sizeof endless - 1);
    EXPECT_CODE(DLOCK_EINVAL, dlock_import(client, endless, NULL, &lock, ERR));
    char changed[DLOCK_TICKET_MAX + 2];
    size_t length = strlen(hand_over->ticket);
    for (size_t i = 0; i < length; i++) { /* cut short, one character changed, one more */
        snprintf(changed, sizeof changed, "%.*s", (int)i, hand_over->ticket);
        EXPECT_CODE(DLOCK_EINVAL, dlock_import(client, changed, NULL, &lock, ERR));
        snprintf(changed, sizeof changed, "%s", hand_over->ticket);
        changed[i] = changed[i] == '1' ? '2' : '1';
        EXPECT_CODE(DLOCK_EINVAL, dlock_import(client, changed, NULL, &lock, ERR));
    }
    snprintf(changed, sizeof changed, "%s0", hand_over->ticket);
    EXPECT_CODE(DLOCK_EINVAL, dlock_import(client, changed, NULL, &lock, ERR));
    EXPECT_CODE(DLOCK_EINVAL, dlock_import(client, hand_over->ticket, &other_lease, &lock, ERR));
    EXPECT(lock == NULL);
    EXPECT_TAKEN(suite.name);
    lock = import(client, hand_over->ticket, &options); /* none of that has harmed it */
    EXPECT_CODE(0, dlock_release(lock, ERR));
}
