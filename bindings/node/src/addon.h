/* Shared by the files of the Node addon. index.js is its only caller, and checks the types of all arguments.
 *
 *     addon.c    the module, clients: open, dispatch in the event loop, close
 *     lock.c     handles: acquire and release, each with a promise; the state of a grant
 *     work.c     calls of the library that block, in a thread of libuv's pool
 *
 * A result is the value, or an object {errno, message}, which index.js throws as an error. Everything runs in the event
 * loop's thread, except execute() in work.c. */
#ifndef DLOCK_NODE_ADDON_H
#define DLOCK_NODE_ADDON_H

#define NAPI_VERSION 8
#include <dlock/dlock.h>
#include <math.h>
#include <node_api.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

struct handle;

/* A client, until it is closed and JavaScript's value for it is collected. */
struct client {
    napi_env env;
    dlock_client *dlock; /* NULL: closed */
    uv_poll_t poll;      /* watches dlock_client_fd(); keeps the process alive while `active` is not 0 */
    napi_async_context context;
    napi_async_cleanup_hook_handle hook; /* the environment waits for our end */
    napi_ref on_lost;
    napi_deferred closed;   /* of close(); NULL when the environment ends */
    struct handle *handles; /* those with a lock */
    unsigned refs;          /* one of the open client, one of JavaScript's value, one of each work */
    unsigned active;        /* handles that wait for a lock, hold or release it */
    unsigned works;         /* calls in libuv's pool */
    bool dispatching;       /* inside dlock_client_dispatch() */
    bool ending;            /* no more calls into JavaScript, and no new work */
};

/* A lock for one acquisition, until its release. */
struct handle {
    struct client *client;
    struct handle *prev, *next;
    dlock_lock *lock; /* NULL: released, or the client is closed */
    napi_deferred acquiring, releasing;
    uint32_t id;    /* how on_lost names it */
    unsigned refs;  /* one of the lock, one of JavaScript's value */
    unsigned works; /* calls on it in libuv's pool */
    bool active;
    bool over; /* to be freed after these calls */
};

/* ---- addon.c ---- */

/* Reads exactly n arguments. */
bool arguments(napi_env env, napi_callback_info info, size_t n, napi_value *values);
/* What napi_create_external() was given; NULL, with an exception pending, if `value` is something else. */
void *external(napi_env env, napi_value value);
/* A string as UTF-8, which the caller frees; NULL if there is no memory or `value` is something else. */
char *text(napi_env env, napi_value value);
/* Sets a property of an object that was made here. */
void set(napi_env env, napi_value object, const char *name, napi_value value);
void set_number(napi_env env, napi_value object, const char *name, double number);
void set_text(napi_env env, napi_value object, const char *name, const char *value);
/* {errno, message}; `message` may be NULL. */
napi_value failure(napi_env env, int code, const char *message);
/* Resolves and forgets a promise, with `undefined` or a failure, unless JavaScript must not be called any more. */
void settle(struct client *client, napi_deferred *deferred, const struct dlock_error *err);
void client_put(struct client *client);
/* Begins to close the client, or continues where that has waited for the last work. */
void client_end(struct client *client);
/* Its library's client is closed: frees the handles, and lets go of the environment. */
void client_closed(struct client *client);

/* ---- lock.c ---- */

napi_value lock_new(napi_env env, napi_callback_info info);
napi_value lock_acquire(napi_env env, napi_callback_info info);
napi_value lock_release(napi_env env, napi_callback_info info);
napi_value lock_cancel(napi_env env, napi_callback_info info);
napi_value lock_state(napi_env env, napi_callback_info info);
/* The handle's lock is not needed any more: frees it, which does not block as it is not held. */
void handle_over(struct handle *handle);
void handle_put(struct handle *handle);

/* ---- work.c ---- */

enum job { EXTEND, DOWNGRADE, INSPECT, LIST, BREAK, CLOSE };

/* The functions of JavaScript that begin a job and return a promise; the job is their data. */
napi_value by_handle(napi_env env, napi_callback_info info);
napi_value by_name(napi_env env, napi_callback_info info);
/* Closes the library's client, and then calls client_closed(). */
void work_close(struct client *client);

#endif
