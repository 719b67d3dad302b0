/* What the parts of a client offer each other: part of client.h, which says whose structures these are and who may
 * touch them. Functions expect the client's mutex unless they say otherwise. */
#ifndef DLOCK_CORE_PARTS_H
#define DLOCK_CORE_PARTS_H

/* ---- fork.c ---- */

/* True in a process forked after the client was opened. No mutex needed. */
bool dlock__forked(const struct dlock_client *client);
int dlock__forked_error(struct dlock_error *err);
/* Notes, and forgets, a client whose connections a forked child must abandon. Without the mutex. */
int dlock__fork_watch(struct dlock_client *client, struct dlock_error *err);
void dlock__fork_unwatch(struct dlock_client *client);

/* ---- name.c ---- */

/* The entry for a full name, made if need be, with one more reference; NULL: out of memory. */
struct dlock__name *dlock__name_get(struct dlock_client *client, const char *text);
void dlock__name_put(struct dlock__name *name);
/* The entry if there is one, without a reference. */
struct dlock__name *dlock__name_find(struct dlock_client *client, const char *text);
/* `name` without the client's prefix. */
const char *dlock__name_shown(const struct dlock__name *name);
/* 0, or EINVAL with a message. No mutex needed. */
int dlock__name_check(const char *name, struct dlock_error *err);
void dlock__name_append(struct dlock__name *name, struct dlock__waiter *waiter);
/* Back to the front of the line, but behind the head if that one is asking: name->asking is always the head's. */
void dlock__name_return(struct dlock__name *name, struct dlock__waiter *waiter);
void dlock__name_remove(struct dlock__name *name, struct dlock__waiter *waiter);
/* Notes what an answered question for it says of the server: `result`, and for how long that grants nothing. */
void dlock__name_heard(struct dlock__name *name, int result, int64_t ready_ms);
/* Nobody holds it, and the server, as it said last, grants nothing yet: ENOTREADY with a message if that is so now,
 * else 0; and ENOTREADY if it was so when it answered. */
int dlock__name_ready(const struct dlock__name *name, struct dlock_error *err);
int dlock__name_not_ready(const struct dlock__name *name, struct dlock_error *err);
/* Wakes the waiter at the head, who looks around again. */
void dlock__name_signal(struct dlock__name *name);
/* Adds to, and removes from, name->held; the reference goes along. False: it was not there. */
void dlock__name_hold(struct dlock__name *name, struct dlock__claim *claim);
bool dlock__name_unhold(struct dlock__name *name, struct dlock__claim *claim);
/* The exclusive claim that is HELD or RELEASING, or NULL: while there is one nobody of this process asks the server. */
struct dlock__claim *dlock__name_exclusive(const struct dlock__name *name);

/* ---- token.c ---- */

/* Bytes that a token of this client needs at most. */
size_t dlock__token_room(const struct dlock_client *client);

/* Gives the claim a new token, for its mode and limit: "<client>.<16 hex digits>@host:pid", with "-s" behind the digits
 * for a reader, "-p<limit>" for a permit: enough to release what this client has forgotten. */
void dlock__token_write(struct dlock__claim *claim);

/* Sets the mode, and the limit, to what stands in the claim's token. */
void dlock__token_read(struct dlock__claim *claim);

/* ---- claim.c ---- */

/* A claim with a new token for what `lock` wants, in phase ASKING; NULL: out of memory. */
struct dlock__claim *dlock__claim_new(struct dlock_lock *lock);
/* The same for a token that was made before (a wake for nobody, a ticket), with the mode that it tells. */
struct dlock__claim *dlock__claim_for_token(struct dlock__name *name, const char *token);
void dlock__claim_put(struct dlock__claim *claim);
/* Lets a waiting claim ask then, and one that is asking once more after the answer. */
void dlock__claim_ask_again(struct dlock__claim *claim, int64_t at_us);

/* Takes a claim out of its client's list; puts it to the end of that. */
void dlock__claim_unlink(struct dlock__claim *claim);
void dlock__claim_append(struct dlock__claim *claim);
/* Gives a claim that merely waited what it needs for a request, or to be held. False: out of memory. */
bool dlock__claim_equip(struct dlock__claim *claim);
/* It merely waits from here on: lets others have that. */
void dlock__claim_strip(struct dlock__claim *claim);
/* Its request is on the way, or waits for a connection: the claim belongs to the pool until that is over. */
bool dlock__claim_in_request(const struct dlock__claim *claim);
/* The claim's hold through this handle, made if `make` is set; NULL: none, or out of memory. */
struct dlock__hold *dlock__claim_hold(struct dlock__claim *claim, struct dlock_lock *handle, bool make);
/* Forgets who holds it. */
void dlock__claim_disown(struct dlock__claim *claim);
/* The live claim with this token, or NULL. */
struct dlock__claim *dlock__claim_find(struct dlock_client *client, const char *token);
/* Orders pointers to claims by name, for qsort: the order in which every batch is sent. */
int dlock__claim_by_name(const void *a, const void *b);
uint64_t dlock__claim_fence(const struct dlock__claim *claim);
/* Takes over an answered acquire (op.result == 0): 0 = HELD; EUNAVAILABLE = the answer came too late to be of use, ask
 * again; EPROTO = it makes no sense. */
int dlock__claim_granted(struct dlock__claim *claim, struct dlock_error *err);
/* Takes over the answered renewal of a grant that another process had: as dlock__claim_granted. */
int dlock__claim_imported(struct dlock__claim *claim, uint64_t fence, unsigned ordinal, struct dlock_error *err);
/* Takes over an answered renewal; false when it makes no sense, and then counts as not answered. */
bool dlock__claim_renewed(struct dlock__claim *claim, int64_t sent_us, int64_t kept_ms);
/* Takes over a GRANTED wake: HELD, or CONFIRMING with a renewal due at once, or nothing when the wake makes no sense.
 */
void dlock__claim_woken(struct dlock__claim *claim, uint64_t fence, int64_t server_us, int64_t kept_ms,
                        int64_t received_us);
/* An answer with the server's clock arrived: remember it for wakes. */
void dlock__pair_learn(struct dlock_client *client, int64_t sent_us, int64_t server_us);
/* The waiter at the head of the line has this HELD claim, whose owner is done with it, once the server has confirmed
 * it.
 */
void dlock__claim_confirm(struct dlock__claim *claim);
/* Whether this process has the grant, or was about to hand it over: its end is a loss then. */
static inline bool dlock__claim_had(const struct dlock__claim *claim) {
    return claim->phase == DLOCK__HELD || (claim->phase == DLOCK__CONFIRMING && claim->ordinal > 0);
}
/* Whether a connection that has ended took everything about this claim along. */
bool dlock__claim_outlived(const struct dlock__claim *claim);
/* Whether the server or the backend may still keep something for a claim that is not granted. */
bool dlock__claim_may_remain(const struct dlock__claim *claim);

/* ---- conn.c: without the mutex, by the thread that has the connection ---- */

/* A new, unconnected connection, listed in the client. NULL: out of memory. With the mutex. */
struct dlock__conn *dlock__conn_new(struct dlock_client *client);
int dlock__conn_open(struct dlock__conn *conn, int64_t deadline_us, bool lookup, struct dlock_error *err);
void dlock__conn_close(struct dlock__conn *conn);
/* The backend's batch operation of this kind. */
dlock_batch *dlock__conn_batch(struct dlock_client *client, enum dlock__op_kind kind);
/* Opens it unless it is connected; closes it, and forgets what died with it. With the mutex, which they leave
 * meanwhile. */
int dlock__conn_ready(struct dlock__conn *conn, int64_t deadline_us, struct dlock_error *err);
void dlock__conn_drop(struct dlock__conn *conn);

/* ---- session.c: connections that carry one claim each ---- */

/* The claim lives in this connection from now on; and no longer. */
void dlock__session_begin(struct dlock__conn *conn, struct dlock__claim *claim);
void dlock__session_end(struct dlock__conn *conn);
/* Runs the claim's operation, on its own connection. Leaves the mutex meanwhile. */
void dlock__session_run(struct dlock__claim *claim);
/* Its connection has broken: what it took along is lost, who waited asks again. Leaves the mutex meanwhile. */
void dlock__session_broke(struct dlock__conn *conn);
/* Sends one renewal, by the keeper; returns its result. Leaves the mutex meanwhile. */
int dlock__session_renew(struct dlock__claim *claim, struct dlock_claim **arg, int64_t deadline_us,
                         struct dlock_error *err);

/* When the first of the idle connections is to be told to rest; then one of those that are due is. */
int64_t dlock__session_rest_at(const struct dlock_client *client);
void dlock__session_rest(struct dlock_client *client, int64_t now, int64_t deadline_us);

/* ---- watch.c: PENDING ---- */

int dlock__watch_open(struct dlock_client *client, struct dlock_error *err);
/* A connection that was just opened: `listen`. Without the mutex, by the thread that has the connection. */
int dlock__watch_begin(struct dlock__conn *conn, int64_t deadline_us, struct dlock_error *err);
/* It is about to be closed. No mutex needed. */
void dlock__watch_end(struct dlock__conn *conn);
/* Whether the keeper is to read what comes. */
void dlock__watch(struct dlock__conn *conn, bool on);
/* Within a moment: the keeper then watches whatever is held. */
void dlock__watch_soon(struct dlock__conn *conn);
/* Reads, once each, and acts on it. With the mutex, which it leaves meanwhile. */
void dlock__watch_read(struct dlock_client *client);

/* Whether an acquire that was answered like that may be answered otherwise later. */
static inline bool dlock__asks_again(int result) {
    return result == DLOCK_EBUSY || result == DLOCK_ENOTREADY || result == DLOCK_EUNAVAILABLE;
}

/* What a backend finds in a claim that it is asked about, behind the question. */
static inline void dlock__preset(struct dlock_claim *arg) {
    arg->result = DLOCK_EPROTO;
    arg->fence = 0;
    arg->server_us = 0;
    arg->kept_ms = arg->lease_ms;
    arg->retry_ms = -1;
    arg->hints = 0;
    arg->ready_ms = -1;
}

/* ---- pool.c ---- */

/* A connection broke: what is known of the server's clock, and of grants that lived in it, died with it. */
void dlock__pool_broke(struct dlock_client *client);
/* A connection that nobody uses, connected or not; NULL: all are busy, or out of memory. */
struct dlock__conn *dlock__pool_pick(struct dlock_client *client);
/* A connection that carried a claim is free. Leaves the mutex meanwhile. */
void dlock__pool_take_back(struct dlock__conn *conn);

/* Describes a request about the claim, which is equipped for it, to be answered until deadline_us at the latest (the
 * URI's `timeout` bounds it too). `err` is the sender's, and may be NULL. */
void dlock__op_prepare(struct dlock__claim *claim, enum dlock__op_kind kind, uint32_t flags, int64_t deadline_us,
                       struct dlock_error *err);
/* Sends what was prepared for n claims (at most DLOCK__BATCH) of one client, of one kind, no name twice, as one request
 * and waits for the answers. Leaves the mutex meanwhile. Every claim's op.result tells what became of it; op.unsent
 * whether nothing was sent. EUNAVAILABLE while op.status is still RUNNING: the answer may come later, the claim belongs
 * to the pool until then. */
void dlock__op_send(struct dlock__claim *const *claims, size_t n);
/* Both for one claim; returns op.result. */
int dlock__op_run(struct dlock__claim *claim, enum dlock__op_kind kind, uint32_t flags, int64_t deadline_us,
                  struct dlock_error *err);
/* Takes a connection for something other than a claim, connected; give it back with dlock__pool_give, `rc` being what
 * the backend returned. Leaves the mutex meanwhile. */
int dlock__pool_take(struct dlock_client *client, int64_t deadline_us, struct dlock__conn **conn,
                     struct dlock_error *err);
void dlock__pool_give(struct dlock__conn *conn, int rc);

/* ---- listener.c ---- */

/* Brings up the connection that gets wake-ups, or waits for whoever does. Leaves the mutex meanwhile. True: it is up.
 */
bool dlock__listener_ensure(struct dlock_client *client, int64_t deadline_us);
/* The keeper saw it die. Leaves the mutex meanwhile. */
void dlock__listener_lost(struct dlock_client *client, const struct dlock_error *why);
/* Somebody waits for a wake-up from now on. */
void dlock__listener_awaited(struct dlock_client *client);
/* A wake-up did not come that should have: whether the listener is alive is asked now. */
void dlock__listener_doubted(struct dlock_client *client);
/* The server, asked at sent_us, knows of no listener of ours. */
void dlock__listener_unheard(struct dlock_client *client, int64_t sent_us);
/* It brought something. */
void dlock__listener_alive(struct dlock_client *client);
/* The keeper's: when it has to look after the listener, and that. Leaves the mutex meanwhile. */
int64_t dlock__listener_due(const struct dlock_client *client);
void dlock__listener_look(struct dlock_client *client);

/* ---- ticket.c ---- */

/* Whether the token's grant has left this client with a ticket a while ago: a wake-up may still tell of it. */
bool dlock__exported(const struct dlock_client *client, const char *token);
void dlock__exported_free(struct dlock_client *client);

/* ---- keeper.c ---- */

/* Starts it if need be. 0 or ENOMEM. */
int dlock__keeper_start(struct dlock_client *client, struct dlock_error *err);
/* Something has to happen at at_us: makes sure that the keeper is awake then. Wakes nobody. */
void dlock__keeper_arm(struct dlock_client *client, int64_t at_us);
/* The set of descriptors changed. */
void dlock__keeper_kick(struct dlock_client *client);
/* Ends the thread and closes its connection. Without the mutex. */
void dlock__keeper_stop(struct dlock_client *client);

/* ---- wake.c ---- */

/* Reads and acts on every wake-up that is there; with the mutex, which it leaves meanwhile. 0, or the listener is dead.
 */
int dlock__wakes_read(struct dlock_client *client, struct dlock_error *err);

/* A GRANTED for a claim that was asking or waiting when it was sent. */
void dlock__wake_granted(struct dlock__claim *claim, const struct dlock_wake *wake, int64_t received_us);

/* ---- callback.c ---- */

/* Starts the thread if need be. 0 or ENOMEM. */
int dlock__callback_start(struct dlock_client *client, struct dlock_error *err);
/* A grant with an on_lost ends at at_us at the latest: makes sure that the thread is awake then. Wakes it only if it
 * would sleep longer. */
void dlock__callback_arm(struct dlock_client *client, int64_t at_us);
/* Makes the client a MANUAL one. Without the mutex. */
int dlock__callback_manual(struct dlock_client *client, struct dlock_error *err);
/* Queues the on_lost of the handles that hold the claim. */
void dlock__callback_lost(struct dlock__claim *claim);
/* The lost claim has been released as often as it was acquired. An on_lost that does so is told, though it runs. */
void dlock__callback_released(struct dlock__claim *claim);
/* Queues the end of an asynchronous operation. */
void dlock__callback_async(struct dlock__async *async);
/* Looks at the deadlines of asynchronous waits, at_us being the first, as long as async.busy. */
void dlock__callback_watch(struct dlock_client *client, int64_t at_us);
/* Forgets queued on_losts of the handle, calls the ends of its asynchronous operations, and waits for a running
 * callback, unless called from it. Leaves the mutex meanwhile. */
void dlock__callback_forget(struct dlock_lock *lock);
/* Calls what is queued for asynchronous operations, and ends the thread. Without the mutex. */
void dlock__callback_stop(struct dlock_client *client);

/* ---- async.c ---- */

/* The waiter without a thread has a turn. */
void dlock__async_wake(struct dlock__waiter *waiter);
/* Ends the waits whose deadline passed while their request hangs; the next time to look, at the earliest. */
int64_t dlock__async_expire(struct dlock_client *client);
/* Ends what is left, and the thread. Without the mutex. */
void dlock__async_stop(struct dlock_client *client);

/* ---- janitor.c ---- */

/* Nobody wants this claim any more, but the server may keep it: release it until that is certain. Not before its
 * on_losts have returned: the release may give it to somebody else. */
void dlock__orphan(struct dlock__claim *claim);
/* Ends the thread; what is left is released once, until deadline_us. Without the mutex. */
void dlock__janitor_stop(struct dlock_client *client, int64_t deadline_us);

/* ---- lock.c ---- */

/* The way into and out of every call on a handle: 0 and the mutex, or why not. */
int dlock__lock_begin(struct dlock_lock *lock, struct dlock_error *err);
int dlock__lock_end(struct dlock_lock *lock, int rc);
/* The same for calls on clients. */
int dlock__client_begin(struct dlock_client *client, struct dlock_error *err);
int dlock__client_end(struct dlock_client *client, int rc);
/* 0: the caller has to acquire; 1: re-entered; or why neither is possible. */
int dlock__enter_again(struct dlock_lock *lock, struct dlock_error *err);
/* Takes one acquisition back. 1: it was the last, and *claim has to be released at the server; 0: done. */
int dlock__release_one(struct dlock_lock *lock, struct dlock__claim **claim, struct dlock_error *err);
/* The caller's grant, held or lost; NULL: none. Of several permits the youngest, of this handle if there is one. */
struct dlock__claim *dlock__owned(struct dlock_lock *lock);
/* EOWNER. */
int dlock__not_owned(const struct dlock_lock *lock, struct dlock_error *err);
/* Copies what the caller knows of the struct; what this library does not know has to be zero. No mutex needed. */
int dlock__options_read(const struct dlock_options *from, struct dlock_options *options, struct dlock_error *err);
/* Frees the memory of a handle that nothing refers to any more. */
void dlock__lock_destroy(struct dlock_lock *lock);

/* ---- acquire.c ---- */

enum dlock__turn {
    DLOCK__TURN_ASK,   /* its claim's request is prepared: send it, and tell the answer with dlock__waiter_answered */
    DLOCK__TURN_SLEEP, /* nothing to do until *until_us, or until it is woken */
    DLOCK__TURN_OVER   /* waiter->result, with words in waiter->why */
};

/* When an acquire with this timeout ends: a try has the URI's `timeout`. */
int64_t dlock__deadline(struct dlock_client *client, int64_t timeout_ms);
/* Puts a new waiter into the line, unless it is a try that stands no chance (then it is over). */
void dlock__waiter_enter(struct dlock__waiter *waiter, struct dlock_lock *lock, int64_t timeout_ms);
/* What it does next; looks at everything that happened meanwhile. Leaves the mutex when it gives up a claim. */
enum dlock__turn dlock__waiter_turn(struct dlock__waiter *waiter, int64_t *until_us);
/* Takes over the answer to its claim's request. Leaves the mutex when it gives up the claim, or brings up the listener.
 */
void dlock__waiter_answered(struct dlock__waiter *waiter);
/* Its deadline passed while its request hangs. */
void dlock__waiter_leave(struct dlock__waiter *waiter);
/* Ends a wait with ECANCELED. */
void dlock__waiter_cancel(struct dlock__waiter *waiter);
/* It has a turn now. */
void dlock__waiter_wake(struct dlock__waiter *waiter);
/* The calling thread, or the handle, holds a claim of name->held that nobody held. */
void dlock__own(struct dlock__claim *claim, struct dlock_lock *lock);
/* A grant came by wake-up or hand-over for the waiter at the head of the line, who was not cancelled: it owns the
 * claim, which is then among name->held, and leaves the line. */
void dlock__deliver(struct dlock__claim *claim);

/* ---- drive.c ---- */

/* Waits in line and asks the server, for an owner who holds nothing. 0: the grant is the waiter's. */
int dlock__acquire(struct dlock_lock *lock, int64_t timeout_ms, struct dlock_error *err);
/* All turns of a waiter with a thread: this one. Leaves the mutex meanwhile. */
void dlock__waiter_drive(struct dlock__waiter *waiter);

/* ---- linger.c ---- */

static inline bool dlock__lingers(const struct dlock__claim *claim) {
    return claim->linger_until_us != DLOCK__NEVER;
}

/* Whether a grant for this handle should be one that may linger. */
bool dlock__linger_wanted(const struct dlock_lock *lock);
/* Instead of the release of a HELD claim; false: it has to be released. */
bool dlock__linger_begin(struct dlock__claim *claim);
/* Instead of a release that is about to be sent, while threads of this process take turns: the next one is likely to be
 * back for the lock before that could have reached the server. True: it was, or the grant has ended otherwise. Leaves
 * the mutex meanwhile. */
bool dlock__linger_briefly(struct dlock__claim *claim);
/* Lets the server have it. */
void dlock__linger_end(struct dlock__claim *claim);
/* The lingering claim of this name, for a new owner; NULL: there is none, or none that fits, and then it has ended. */
struct dlock__claim *dlock__linger_take(struct dlock_lock *lock);
/* Releases a lingering claim that does not fit, so that not even a try finds our own grant in its way. Leaves the mutex
 * meanwhile. */
void dlock__linger_clear(struct dlock_lock *lock, int64_t deadline_us);
/* It must not linger, or no longer. */
void dlock__linger_not(struct dlock__claim *claim);

/* ---- release.c ---- */

/* Whether the grant may go on in this process after its release: other processes have not had to wait for too long. */
bool dlock__may_stay(const struct dlock__claim *claim);
/* Another thread of this process has it from now on. */
void dlock__next_turn(struct dlock__claim *claim);
/* Whether the claim is what this handle would ask for. */
bool dlock__same_wish(const struct dlock__claim *claim, const struct dlock_lock *lock);

/* The owner's last release: hands over locally, or releases at the server. */
int dlock__give_back(struct dlock__claim *claim, struct dlock_error *err);
/* What the answer to a release means: of one that was sent before, "not found" is what success left behind. */
int dlock__release_result(const struct dlock__claim *claim);
/* Whether a release that was sent at sent_us and got no answer is worth another request: not when the only connection
 * that could tell was closed since it kept silent. */
bool dlock__release_again(const struct dlock__claim *claim, int64_t sent_us);
/* Sends the release until it is answered, for one `timeout`. */
int dlock__give_back_send(struct dlock__claim *claim, struct dlock_error *why);
/* The same in parts: the first decides, true = it was handed over locally, and that was all. Then its release is sent.
 * The last takes over the answer; `why` is what the server said, and may be NULL. */
bool dlock__give_back_begin(struct dlock__claim *claim);
int dlock__give_back_end(struct dlock__claim *claim, int rc, const struct dlock_error *why, struct dlock_error *err);
/* What dlock__claim_had ends before its release: owner told, waiters may ask. */
void dlock__lose(struct dlock__claim *claim);
/* Takes a lost claim off its name's list; the caller gets that list's reference. */
void dlock__lost_remove(struct dlock__claim *claim);
/* dlock__lose, if its time is over. */
void dlock__settle(struct dlock__claim *claim);

#endif
