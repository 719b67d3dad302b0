/* dlock's plugin ABI: everything that defines the backend of a lock server.
 *
 * SPDX-License-Identifier: MIT
 *
 * A backend is one constant `struct dlock_backend dlock_backend_<name>`, defined with DLOCK_BACKEND(name). The same
 * source can be linked into an application, which announces it with dlock_register, or become a module
 * `dlock-<name>.so` that the library loads for the scheme <name>. It includes this header and its client library, and
 * imports nothing from libdlock: the helpers are static inline.
 *
 * The core does for every backend: owners and re-entry, waiting, deadlines, renewal, retries, pooling, resolving host
 * names, callbacks, fork. A backend does one request at a time on one connection, within the time it is given.
 *
 * Rules for every operation:
 *   - A connection is `conn_size` bytes, allocated and zeroed by the core. One thread uses it at a time, so a backend
 *     needs no locks unless it is THREADSAFE. `disconnect` and `abandon` must also work on a half-built connection, and
 *     on one that is still all zeros because `connect` was not called: 0 has to mean "no descriptor".
 *   - Return within timeout_ms (from 1 to 3,600,000), whatever the server does: poll() with that deadline, never a
 *     blocking call. Never resolve a name: hosts come with numeric addresses, and dlock_peer.connect_again finds those
 *     of hosts that a server announces. Operations without a timeout_ms return at once. A call that does not return
 *     holds up its thread, which may be the application's, whatever the deadline of dlock_acquire or dlock_release;
 *     dlock_close, dlock_free and other clients do not wait for it.
 *   - The RETURN VALUE is about the connection. 0: each claim has its `result`. EUNAVAILABLE: dead, or no answer in
 *     time. EPROTO: an invalid answer. EAUTH, EINVAL and ENOTSUP: the server refuses. ENOMEM: no memory, descriptor or
 *     disk. Every other value is treated as EPROTO. After any error the core disconnects, and the outcome of every claim
 *     of the call is unknown, whatever its result says. dlock_batch says how the core continues.
 *   - Fill `err` whenever you return non-zero. For a batch, also when you return 0, for the first claim whose result is
 *     an error other than EBUSY, ENOTREADY and ELOST, or an EBUSY with an explanation, such as the holder
 *     (dlock_held_by()), which follows "is busy:". Never put a password into it. It may be NULL: use dlock_fail().
 *   - Every operation is idempotent by token, and may arrive more than once. The release of a token may run beside a
 *     renewal of it, on another connection or in another thread, and end first.
 *   - THREADSAFE: a client has one connection, on which any number of threads call operations at the same time.
 *   - SESSION, which has to be THREADSAFE: only the connection that a grant was made on renews and releases it. Where
 *     the server needs a session for each grant, the connection keeps many of them: see dlock/backend_sessions.h.
 *   - No SIGPIPE (MSG_NOSIGNAL), every descriptor close-on-exec (docs/servers/ names those that a client library
 *     makes otherwise), no output, no signal handlers, no state outside the connection. Where a client library has
 *     state, make it safe for threads and for fork, and document how.
 *   - Connections are opened again at any time: make a relative path absolute the first time you see it, since the
 *     process may chdir().
 *   - `each` callbacks may use other clients of the same backend: call them with no lock and no transaction held. The
 *     core sets the `size` of their argument.
 *   - The server's answers are hostile input: check lengths, types and ranges; answer EPROTO.
 *
 * The struct is append-only; each appended member raises DLOCK_ABI. */
#ifndef DLOCK_BACKEND_H
#define DLOCK_BACKEND_H

#include <dlock/backend_text.h>
#include <dlock/dlock.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of everything in this file. The library refuses a plugin that was built against a newer one (EABI). */
#define DLOCK_ABI 1

/* Longest name of a lock that a backend gets, in bytes, without the NUL: DLOCK_NAME_MAX and the URI's prefix. */
#define DLOCK_FULL_NAME_MAX 255

/* ---- what the core passes to a backend --------------------------------------------------------------------------- */

/* One server address. A name that resolves to several addresses occurs once per address, in adjacent entries. */
struct dlock_host {
    const char *host; /* as in the URI, without brackets */
    /* Numeric, IPv4 or IPv6, without brackets; NULL for LOCAL backends. A host that begins with '/', the folder of a
     * Unix socket, is its own address. */
    const char *address;
    int port; /* 0 when the URI has none */
};

/* One key of the URI. */
struct dlock_param {
    const char *key;   /* percent-decoded; at most 64 of A-Z, a-z, 0-9, '_', '.' and '-' */
    const char *value; /* "" when the URI has none */
};

/* The keys that the core takes out of every URI. A backend's own keys must have other names. */
#define DLOCK_URI_KEYS(X) \
    X(lease) X(timeout) X(connections) X(prefix) X(linger) X(quarantine) X(guardian) X(password_file) X(label)

/* The connection string, split and percent-decoded. Absent parts are NULL. User, password, path and values may contain
 * control characters, newlines among them: check before you write them into a protocol of lines. Common keys (lease,
 * timeout, connections, prefix, linger, quarantine, guardian, password_file, label) are not among the params. Valid
 * during the call only: with password_file the password is read from the file for this one connection and wiped afterwards;
 * `accepts` gets a stand-in for it. */
struct dlock_uri {
    const char *scheme;               /* lower case */
    const char *user;                 /* before the hosts, without the '@' */
    const char *password;             /* from the URI, or from the file that it names */
    const char *path;                 /* with its leading '/', where it has one; "locks" for "file:locks" */
    const struct dlock_host *hosts;   /* in the order of the URI */
    size_t n_hosts;                   /* how many */
    const struct dlock_param *params; /* in the order of the URI */
    size_t n_params;                  /* how many */
};

struct dlock_backend;
struct dlock_peer;

/* A backend's `connect`. */
typedef int dlock_connect(void *conn, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                          struct dlock_error *err);

/* A server that a backend uses through another backend: see dlock_peer.open_member. */
struct dlock_member {
    const struct dlock_backend *backend; /* as the core uses it: members that its module lacks are 0 */
    void *opened;                        /* private to the core */
    const char *where;                   /* a text for messages: its hosts as in the URI, or its path */
    /* Looks up the hosts and has the backend connect. `conn` is conn_size zeroed bytes, allocated by the caller, which
     * passes it to the backend's operations, and to `disconnect` even if this fails. Never blocks beyond timeout_ms.
     * Any thread. Results: as the backend's connect. */
    int (*connect)(const struct dlock_member *member, void *conn, int timeout_ms, struct dlock_error *err);
    /* Ends the member, after the last of its connections. Does not block. */
    void (*close)(struct dlock_member *member);
};

/* The core's side of a connection. Valid as long as the connection. */
struct dlock_peer {
    uint32_t abi; /* the library's DLOCK_ABI */
    /* 24 hex characters that name this client; its tokens begin with them and a '.'. Renewals and releases may be of
     * other clients' tokens: of an imported grant, or of one that a dead process left to its guardian. */
    const char *client;
    /* VOLATILE backends: grant nothing (ENOTREADY) while the server has been up for less than this; 0: off. */
    int64_t quarantine_ms;
    void (*log)(const struct dlock_peer *peer, int level, const char *message); /* from any thread; never NULL */
    /* Opens a server that the connection uses through another backend, such as a member of a quorum. Loads that
     * backend's module, does not connect, and does not block otherwise. The caller closes *out, which may outlive the
     * connection. A URI without `quarantine` gets this peer's. Results: 0, EINVAL (the URI: a password must be in a
     * file, and keys that concern the client as a whole are not allowed), ENOBACKEND, EABI, ENOTSUP, ENOMEM. */
    int (*open_member)(const struct dlock_peer *peer, const char *uri, struct dlock_member *out,
                       struct dlock_error *err);
    const char *prefix; /* the beginning of all names of this client; "": none */
    /* Opens one more connection: calls `connect` with `conn`, which must be zeroed, as the core calls the backend's own,
     * with the password read anew, and the addresses of `host`, a name or an address that the server has announced,
     * looked up anew; NULL: those of the URI's hosts. Any thread, also within `connect`; the call must be over before
     * `disconnect` is. Blocks for timeout_ms at most. Results: as connect. The thread that renews waits for no name
     * server: for an announced host it gets the addresses that are known, or EUNAVAILABLE, and a later call finds the
     * others. A `connect` that only copies the hosts, and returns EUNAVAILABLE if they are those that do not answer,
     * follows servers that move: with timeout_ms 0 no call waits for a name server, and the next one has what a look-up
     * has found meanwhile. */
    int (*connect_again)(const struct dlock_peer *peer, const char *host, int port, dlock_connect *connect, void *conn,
                         int timeout_ms, struct dlock_error *err);
};

/* dlock_claim.flags */
enum dlock_claim_flag {
    /* Acquire: if busy, keep this token in the server's queue (once) and send a wake-up when it is granted. Only sent
     * where QUEUE is offered, or WAKE without SESSION (a backend whose waiters leave something at a server, but are
     * served in no guaranteed order), and once a connection of this client listens. Without this flag an acquire that
     * is not granted leaves nothing at the server but marks that soon expire, and a single such acquire leaves none;
     * but a token that is in the queue already stays there. */
    DLOCK_CLAIM_QUEUE = 1,
    /* Acquire: this client may keep the grant for some time after its owner has released it. Send it WANTED when this
     * grant makes an acquire of another client EBUSY; once for a grant is enough. Only sent where WANTED is offered,
     * and once a connection of this client listens. */
    DLOCK_CLAIM_LINGER = 2,
    /* Release: the process that made this claim is dead. SESSION: free it by name and token, whatever connection it
     * lives in; ENOTSUP where that is not possible, 0 where the death of its process has freed it anyway. */
    DLOCK_CLAIM_DEAD = 4
};

/* dlock_claim.hints */
enum dlock_claim_hint {
    /* Acquire, EBUSY, with QUEUE: no connection of this client listens at this server, so the server could not wake it.
     * The core reconnects its listener. */
    DLOCK_HINT_UNHEARD = 1,
    /* Acquire, granted, or renew, with WAKE: the grant may end earlier than promised, and LOST or BROKEN reports it. The
     * core listens at once, even without a waiter. */
    DLOCK_HINT_LISTEN = 2,
    /* Any operation, with SESSION a release only: the call sent the request again after an earlier one had no answer.
     * The server may execute the earlier one before or after the one that is answered here. The core releases the claim
     * again, uses the shorter lease of both, and treats ELOST of a release as success. */
    DLOCK_HINT_RESENT = 4
};

/* One acquisition. Owned by the core, valid during the call only. */
struct dlock_claim {
    /* in */
    const char *name;     /* with the prefix, see DLOCK_FULL_NAME_MAX; any bytes except NUL and control characters */
    const char *token;    /* of this acquisition, see DLOCK_TOKEN_MAX */
    enum dlock_mode mode; /* the mode of the grant */
    uint32_t limit;       /* permits; 0 otherwise */
    uint32_t flags;       /* DLOCK_CLAIM_… */
    int64_t lease_ms;     /* how long the server keeps it from now: 1 to DLOCK_LEASE_MAX_MS */
    /* out */
    int result; /* 0 or a code; preset to DLOCK_EPROTO */
    /* acquire: > 0, below 2^55, greater than that of every earlier grant of this name. EBUSY: the fence of the
     * exclusive holder, if the answer tells it at no extra cost, or any number that changes with each grant of the
     * name: waiters that poll learn from it when to send the next request. 0 (preset): unknown. */
    uint64_t fence;
    int64_t server_us; /* the server's clock when it handled this claim; 0 if unknown */
    /* How long the server keeps the grant without a renewal. Preset to lease_ms; more than that is cut. DLOCK_FOREVER,
     * of SESSION backends only: as long as its connection lives. */
    int64_t kept_ms;
    /* EBUSY, ENOTREADY: the time until the core sends the next request, at most an hour. It sends one earlier after a
     * wake-up, near the end of the wait, or, with WAKE, if no connection listens. -1 (preset): it polls, every 1 to 50
     * ms, or when the holder is likely to be done (`fence`). DLOCK_FOREVER: a wake-up will come. Without WAKE leave -1
     * unless nothing can change earlier, since a release would not be noticed. With WAKE and without QUEUE: how long a
     * LOOK may be missing. With a place in the server's queue: the result of dlock_queue_retry_ms(); the core adds at
     * most 1 % and at most 10 ms.
     *
     * Release, with WAKE and without QUEUE: 0 when the server had no waiter to wake. This client's own waiters then
     * leave the lock to others, which can only be polling, for about as long as this client had it, at most 50 ms; else
     * for up to 5 ms, which is enough for a waiter that was woken. */
    int64_t retry_ms;
    /* in and out: the backend's plain data. Zeroed before the first acquire, kept until the release, passed to every
     * operation on the claim, and taken along to another process by an export. Never a pointer. Data written by a call
     * is kept if the call returns 0 and, in a renewal, the claim's result is 0; a request that is sent again may see it
     * in any case. */
    uint64_t state[4];
    uint32_t hints; /* out; preset to 0: DLOCK_HINT_… */
    /* out; ENOTREADY: how long the server still grants nothing; -1 (preset): unknown. If retry_ms is left at -1 the
     * core sends the next request after this time. */
    int64_t ready_ms;
    /* in; renew of EXCLUSIVE and SHARED, where FLOOR is offered. If the token has the grant, the server raises the name's
     * last fence to this value in the same step, if it is less, and a shared grant has this fence from then on. 0: none.
     * A server that cannot continue from there answers EINVAL. A backend that offers FLOOR keeps nothing in `state`, and
     * its fences of joint grants are multiples of DLOCK_JOINT_STEP. */
    uint64_t floor;
};

/* The kinds of messages that a server sends unasked. */
enum dlock_wake_kind {
    /* Something changed for `name` (NULL: for any): waiters should send a request now. The core ignores it for a name
     * for which no claim of this client waits. */
    DLOCK_WAKE_LOOK = 1,
    DLOCK_WAKE_GRANTED = 2, /* `token` was granted `name`: with fence, server_us and kept_ms, as by acquire */
    DLOCK_WAKE_LOST = 3,    /* `token` lost its grant of `name`; both NULL: every grant of this connection */
    DLOCK_WAKE_WANTED = 4,  /* another client waits for `name` */
    DLOCK_WAKE_HEARD = 5,   /* the server's answer to `probe` */
    /* Somebody may have broken the grant of `name` that `token` has (NULL: any grant of the name): the core renews it
     * now. For servers where others could forge such a message, or where it says less than a renewal. */
    DLOCK_WAKE_BROKEN = 6
};

/* One message from a listening connection. Its strings are valid until the next wake or disconnect of that connection.
 * All of it is preset to 0. A GRANTED without a fence only says that the token has probably been granted the name, and
 * the core sends a request; one with a fence and without a kept_ms is ignored. */
struct dlock_wake {
    enum dlock_wake_kind kind; /* tells which of the following members are set */
    const char *name;          /* as in the claim */
    const char *token;         /* as in the claim */
    uint64_t fence;            /* GRANTED */
    int64_t server_us;         /* GRANTED */
    int64_t kept_ms;           /* GRANTED */
};

/* An operation on n claims (1 <= n <= 256), sorted by name (strcmp).
 *
 * No name occurs twice, except in renew with SHARED and PERMIT (one entry for each grant of this client) and in release
 * (one entry for each token). A simple backend loops; a fast one sends all requests and then reads all answers: n
 * claims should cost one round trip.
 *
 * Beside the results that each operation lists, a claim may have every code that a call may return. After EUNAVAILABLE
 * the core sends the request again, on a new connection if the call returned it. Any other code ends an acquire's wait,
 * and the core releases what the acquire may have got. A renewal is tried again until the lease ends, and so is a
 * release, unless the code is EINVAL or ENOTSUP. */
typedef int dlock_batch(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms,
                        struct dlock_error *err);

/* The operations that can be begun. */
enum dlock_operation { DLOCK_ACQUIRE = 1, DLOCK_RENEW = 2, DLOCK_RELEASE = 3 };

/* ---- what defines a backend -------------------------------------------------------------------------------------- */

struct dlock_backend {
    uint32_t abi;               /* DLOCK_ABI */
    uint32_t size;              /* sizeof(struct dlock_backend) */
    const char *name;           /* [a-z0-9_]+, at most 64, the same as in the symbol and in the module's file name */
    const char *const *schemes; /* NULL-terminated; [a-z0-9+.-]+, at most 64; at least one, also of a variant */
    /* The URI keys that it takes, NULL-terminated; a trailing '*' means that the key may occur several times; the entry
     * "*" takes any key. NULL: none. Other keys are EINVAL before connect. */
    const char *const *keys;
    /* DLOCK_CAP_…. Refused beside those without their operations: QUEUE or WANTED without WAKE, SESSION without
     * THREADSAFE or with EXPORT, PRIVATE without LOCAL. */
    uint32_t caps;
    size_t conn_size; /* size of a connection: 1 to 1 MiB */

    /* Connects, authenticates and checks that the server can do what `caps` promises.
     *
     * `conn` is zeroed; `peer` is valid as long as the connection.
     *
     * Results:
     *   - 0, EUNAVAILABLE, EAUTH, EPROTO, ENOMEM
     *   - EINVAL: the URI asks for something invalid; final
     *   - ENOTSUP: the server lacks something; final */
    dlock_connect *connect;

    /* Frees everything in the connection, also after a failed connect.
     *
     * Must not wait for the server. Closes by reset (SO_LINGER 0) when a request is unanswered, so that it cannot
     * arrive late. THREADSAFE: no other call is in progress. Never fails. */
    void (*disconnect)(void *conn);

    /* Requests a grant.
     *
     * EXCLUSIVE is granted when the name has no holder, SHARED when it has no exclusive one, PERMIT while fewer than
     * `limit` permits are held; and, where there is a queue, only to the first in it: a reader that comes after a
     * queued writer waits behind it. Every grant has a different fence.
     *
     * The end of a lease is not reported. The next request about the name, from any client, hands the name to the first
     * waiter that is alive, as a release would. After a hand-over that was not confirmed in time, waiters that have
     * sent no request for DLOCK_HAND_OVER_MS are treated as dead: any number of them in a row costs one hand-over in
     * all.
     *
     * Results per claim:
     *   - 0: granted, or granted to this token before: then with the same fence and a restarted lease
     *   - EBUSY: retry_ms says when to send the next request, not later than the answer may change
     *   - ENOTREADY: no holder is known, and the server grants nothing at all for ready_ms, because it was started
     *     recently; otherwise as EBUSY, including the place in the queue. Until then what this token was granted before
     *     need not be looked for, and its lease is not restarted where a renewal would be ELOST
     *   - EINVAL: final. The server cannot take the claim; or a name in use as permits is requested as a lock, or the
     *     reverse, or permits with another limit than those that are held: explain it in `err`
     *   - ENOTSUP: the mode
     *   - EUNAVAILABLE: THREADSAFE only: outcome unknown; the core sends the request again */
    dlock_batch *acquire;

    /* Restarts the lease with lease_ms from now, if the token still has the grant.
     *
     * With mode SHARED on an exclusive grant: an atomic downgrade that keeps the fence, and also grants the readers
     * that are first in the queue. Never creates anything. In the quarantine a lease that is about to end may be ELOST.
     * A joint holder whose lease has ended may be renewed if no other client has asked for the name since, as on a
     * server that knows the end of the last lease only.
     *
     * Results per claim: 0 (kept_ms, server_us), ELOST. */
    dlock_batch *renew;

    /* Ends the grant if the token has it; or takes the token out of the queue.
     *
     * Hands the grant to the next waiter where there is a queue: all adjacent readers at its head are granted. With
     * mode SHARED the grant may still be an exclusive one, if the answer to its downgrade was lost.
     *
     * Results per claim:
     *   - 0: it had a grant
     *   - ELOST: it had none, and is out of the queue if it was in it; the core knows whether that is an error */
    dlock_batch *release;

    /* ---- optional from here: NULL: not supported ---- */

    /* In a forked child: close(2) every descriptor of the connection and nothing else; no message, no free, no lock.
     *
     * Where the client library hides them, leave it NULL if an inherited copy does no harm. A child may open another
     * connection to the same server: nothing inherited may confuse that one. Another thread may have been in the middle
     * of `connect` or `disconnect`: these must forget a descriptor before they close it, since its number may belong to
     * another file right after. A fork between open() and the line that stores its number leaves a copy in the child,
     * which keeps a lock alive that belongs to the open file (flock, OFD locks). */
    void (*abandon)(void *conn);

    /* Makes this connection the listener, which gets this client's wake-ups, and stores a descriptor that polls
     * readable when there may be one.
     *
     * A descriptor that stays readable without a wake-up is read every 20 ms only. Returns once the server has
     * confirmed. Afterwards the core calls only `wake`, `probe` and `disconnect` on it (THREADSAFE: everything).
     *
     * Results: as connect; ENOTSUP: this server never wakes a client, all waiters poll. */
    int (*listen)(void *conn, int *fd, int timeout_ms, struct dlock_error *err);

    /* Reads one wake-up without blocking.
     *
     * Results:
     *   - 1: `out` is filled
     *   - 0: no further wake-up
     *   - EUNAVAILABLE, EPROTO: the connection is dead */
    int (*wake)(void *conn, struct dlock_wake *out, struct dlock_error *err);

    /* Calls `each` for every holder of `name` (info.name as given here, info.fence as from acquire, info.held_ms 0 for
     * unknown: see dlock_held_ms(); host, pid and label are the core's).
     *
     * In this operation and those below, `check` included, the core drops the connection for EUNAVAILABLE and EPROTO
     * only (THREADSAFE: only while no claim depends on it); any other code is just passed on.
     *
     * Results: 0, EUNAVAILABLE, EAUTH, EPROTO. */
    int (*inspect)(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err);

    /* Calls `each` for the holders of one page of the held names that begin with `prefix`.
     *
     * `cursor` is "" for the first page, then the text that the backend wrote into it: write it last, since a page that
     * failed is requested again with it. Stops early, with 0, when `each` returns non-zero.
     *
     * Results:
     *   - 1: there are more pages (the same cursor again is EPROTO)
     *   - 0: that was the last
     *   - EUNAVAILABLE, EAUTH, EPROTO */
    int (*list)(void *conn, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
                struct dlock_error *err);

    /* Ends every grant of `name`, and hands the name to the next waiter. The fence must not go back.
     *
     * Results: 0, ELOST (it had no holder), EUNAVAILABLE, EAUTH, EPROTO. */
    int (*break_lock)(void *conn, const char *name, int timeout_ms, struct dlock_error *err);

    /* Calls `each` for everything about this server that strengthens or weakens locks.
     *
     * Version, persistence, replication, eviction, rights, timeouts, …: both good settings and bad ones, with advice.
     * Changes nothing. Stops early, with 0, when `each` returns non-zero.
     *
     * Results: as inspect, or EBUSY (another thread is checking, and takes too long). */
    int (*check)(void *conn, dlock_each_finding each, void *arg, int timeout_ms, struct dlock_error *err);

    /* The script that an administrator runs on the server before its first use, as text; NULL: none. */
    const char *schema;

    /* Stores the descriptors that grants of this connection live in, at most `max`, and returns how many there are.
     *
     * SESSION. A process with copies of them keeps those grants alive after the process that made them, until it closes
     * them; `release` ends the grants whatever copies there are. */
    size_t (*descriptors)(void *conn, int *fds, size_t max);

    /* Checks whether the URI is valid for this backend.
     *
     * Called once, before any name is looked up: hosts are as in the URI, addresses NULL. Does not block. Results: 0,
     * EINVAL, ENOTSUP. */
    int (*accepts)(const struct dlock_uri *uri, struct dlock_error *err);

    /* Returns another constant backend of the same name that serves this URI in place of this one, with other
     * operations and capabilities; NULL: this one serves it.
     *
     * Called before anything else is done with the URI, whose keys may still be wrong; the other backend's `accepts`
     * judges them, and its `variant` is not called. Does not block. */
    const struct dlock_backend *(*variant)(const struct dlock_uri *uri);

    /* Requests a sign of life from the server over a listening connection, without blocking.
     *
     * WAKE without THREADSAFE. The answer is a wake-up of kind HEARD. While a waiter relies on wake-ups the core calls
     * this a few times per lease, and treats a connection that brings nothing as dead, although TCP or a proxy keeps it
     * open. Not called again before the connection has brought something. Results: 0; EUNAVAILABLE, EPROTO: the
     * connection is dead. */
    int (*probe)(void *conn, struct dlock_error *err);

    /* Sends the request of an operation on one claim without waiting for anything, and sets *fd to a descriptor that is
     * readable when the answer is there.
     *
     * The next call on the connection is that operation with the same claim, perhaps from another thread; it reads the
     * answer, within its own timeout_ms, and everything is as if it had been called alone at the time of `begin`. So
     * one thread can have requests at several servers at the same time, as a quorum does. *fd = -1: nothing was sent,
     * since the operation takes more than one request and one answer this time; it is called as usual. Results: 0;
     * EUNAVAILABLE: the connection is dead, and the operation will report it. */
    int (*begin)(void *conn, enum dlock_operation operation, struct dlock_claim *claim, int *fd,
                 struct dlock_error *err);

    /* Calls `each` for every waiter in the queue of `name`, in its order.
     *
     * As inspect, with these differences: info.held_ms is how long it waits (dlock_held_ms()), fence and remaining_ms
     * are 0. Results: as inspect. */
    int (*waiters)(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms, struct dlock_error *err);
};

/* Declares and begins the definition of a backend: DLOCK_BACKEND(toy) = { DLOCK_ABI, sizeof(struct dlock_backend), …
 * }; */
#ifdef __cplusplus
#define DLOCK_BACKEND(name)                                                  \
    extern "C" DLOCK_EXPORT const struct dlock_backend dlock_backend_##name; \
    const struct dlock_backend dlock_backend_##name
#else
#define DLOCK_BACKEND(name)                                              \
    extern DLOCK_EXPORT const struct dlock_backend dlock_backend_##name; \
    const struct dlock_backend dlock_backend_##name
#endif

/* ---- helpers ----------------------------------------------------------------------------------------------------- */

/* FLOOR: the fence of a joint grant is a multiple of this, and at least this much greater than the name's last one. So a
 * quorum can make as many different fences of it, one for each of its members: joint grants that begin at the same time
 * may have the same greatest fence at different members. */
#define DLOCK_JOINT_STEP 16

/* Returns dlock_info.held_ms as `inspect` and `list` give it, of a grant at `since_us` by the same clock as `now_us`, such
 * as that of a fence that follows the clock; 0, unknown, if that time is yet to come: the clock was set back. */
static inline int64_t dlock_held_ms(int64_t now_us, int64_t since_us) {
    return since_us > 0 && now_us >= since_us ? (now_us - since_us) / 1000 + 1 : 0;
}

/* QUEUE: how long the receiver of a hand-over may take to confirm it, by a renewal or another acquire; its lease, if
 * that is shorter. */
#define DLOCK_HAND_OVER_MS 3000

/* Returns dlock_claim.retry_ms for a waiter in the server's queue. `place` is 0 for the first; the first of the leases
 * that block it ends in `left_ms` (-1: unknown); `lease_ms` is the waiter's own. All waiters send a request when that
 * lease has ended, each a little later than the one before it, so that the first that is alive notices the end, and few
 * others send one without effect. They also send one before a hand-over could have come and gone unnoticed, which shows
 * that they are alive. */
static inline int64_t dlock_queue_retry_ms(int64_t place, int64_t left_ms, int64_t lease_ms) {
    int64_t most = place == 0 && lease_ms < DLOCK_HAND_OVER_MS ? lease_ms : DLOCK_HAND_OVER_MS;
    most -= most / 4;
    if (left_ms < 0 || left_ms >= most || place >= most) return most;
    return left_ms + 1 + place * 5 < most ? left_ms + 1 + place * 5 : most;
}

/* Returns the first value of a URI key, or NULL. */
static inline const char *dlock_uri_get(const struct dlock_uri *uri, const char *key) {
    for (size_t i = 0; i < uri->n_params; i++)
        if (strcmp(uri->params[i].key, key) == 0) return uri->params[i].value;
    return NULL;
}

/* Refuses a path without a leading '/', since the "//" before the hosts was forgotten: for the backend of a server that
 * has hosts. The path is quoted only if it looks like a host, with or without a port and a path: else it may have a
 * password in it. Returns 0 or EINVAL. */
static inline int dlock_check_slashes(const struct dlock_uri *uri, struct dlock_error *err) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.";
    const char *path = uri->path;
    if (!path || *path == '/') return 0;
    size_t length = strspn(path, letters);
    bool plain = length > 0;
    if (path[length] == ':') {
        size_t digits = strspn(path + length + 1, "0123456789");
        plain = plain && digits > 0;
        length += 1 + digits;
    }
    if (path[length] == '/') length += 1 + strspn(path + length + 1, letters);
    if (plain && !path[length])
        return dlock_fail(err, DLOCK_EINVAL, "URI: \"//\" is missing; did you mean %s://%.200s?", uri->scheme, path);
    return dlock_fail(err, DLOCK_EINVAL, "URI: \"//\" is missing before the hosts: write %s://HOST", uri->scheme);
}

/* The state with which a `check` operation calls dlock_find(). */
struct dlock_report {
    dlock_each_finding each; /* gets the findings */
    void *arg;               /* … with this argument */
    bool ended;              /* `each` has ended the walk: nothing more is passed on */
};

/* Reports one finding: DLOCK_FINE if `advice` is NULL, else DLOCK_WEAK. */
DLOCK_PRINTF(3, 4)
static inline void dlock_find(struct dlock_report *report, const char *advice, const char *format, ...) {
    char what[512];
    struct dlock_finding finding = {sizeof(struct dlock_finding), advice ? DLOCK_WEAK : DLOCK_FINE, what, advice};
    va_list args;
    if (report->ended) return;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    dlock_one_line(what);
    report->ended = report->each(&finding, report->arg) != 0;
}

/* Reports that the server grants nothing yet. */
static inline void dlock_find_not_ready(struct dlock_report *report, int64_t left_ms) {
    char text[64];
    dlock_find(report, "wait: a server that was restarted may have lost grants", "%s: quarantine after a restart",
               dlock_not_ready_text(text, left_ms));
}

#ifdef __cplusplus
}
#endif
#endif
