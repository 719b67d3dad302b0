/* Requirements of a backend, and the list of them. Modules on the disk: tests/package/abi. */
#include "plugin/plugin.h"
#include "support/test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- backends ---------------------------------------------------------------------------------------------------- */

static int toy_connect(void *conn, const struct dlock_uri *uri, const struct dlock_peer *peer, int timeout_ms,
                       struct dlock_error *err) {
    (void)conn, (void)uri, (void)peer, (void)timeout_ms, (void)err;
    return DLOCK_OK;
}

static void toy_disconnect(void *conn) {
    (void)conn;
}

static int toy_batch(void *conn, struct dlock_claim *const *claims, size_t n, int timeout_ms, struct dlock_error *err) {
    (void)conn, (void)claims, (void)n, (void)timeout_ms, (void)err;
    return DLOCK_OK;
}

static int toy_listen(void *conn, int *fd, int timeout_ms, struct dlock_error *err) {
    (void)conn, (void)fd, (void)timeout_ms, (void)err;
    return DLOCK_OK;
}

static int toy_wake(void *conn, struct dlock_wake *out, struct dlock_error *err) {
    (void)conn, (void)out, (void)err;
    return 0;
}

static int toy_inspect(void *conn, const char *name, dlock_each each, void *arg, int timeout_ms,
                       struct dlock_error *err) {
    (void)conn, (void)name, (void)each, (void)arg, (void)timeout_ms, (void)err;
    return DLOCK_OK;
}

static int toy_list(void *conn, const char *prefix, char cursor[256], dlock_each each, void *arg, int timeout_ms,
                    struct dlock_error *err) {
    (void)conn, (void)prefix, (void)cursor, (void)each, (void)arg, (void)timeout_ms, (void)err;
    return DLOCK_OK;
}

static int toy_break(void *conn, const char *name, int timeout_ms, struct dlock_error *err) {
    (void)conn, (void)name, (void)timeout_ms, (void)err;
    return DLOCK_OK;
}

static const char *const toy_schemes[] = {"toy", "toy+tls", NULL};

/* Complete: every operation, every capability that can be had together. */
static struct dlock_backend toy(void) {
    return (struct dlock_backend){
        .abi = DLOCK_ABI,
        .size = sizeof(struct dlock_backend),
        .name = "toy",
        .schemes = toy_schemes,
        .caps = DLOCK_CAP_FENCE | DLOCK_CAP_QUEUE | DLOCK_CAP_WAKE | DLOCK_CAP_SHARED | DLOCK_CAP_PERMIT |
                DLOCK_CAP_INSPECT | DLOCK_CAP_LIST | DLOCK_CAP_BREAK | DLOCK_CAP_EXPORT | DLOCK_CAP_THREADSAFE |
                DLOCK_CAP_VOLATILE,
        .conn_size = 8,
        .connect = toy_connect,
        .disconnect = toy_disconnect,
        .acquire = toy_batch,
        .renew = toy_batch,
        .release = toy_batch,
        .abandon = toy_disconnect,
        .listen = toy_listen,
        .wake = toy_wake,
        .inspect = toy_inspect,
        .list = toy_list,
        .break_lock = toy_break,
    };
}

/* ---- the check --------------------------------------------------------------------------------------------------- */

static void refuse(const struct dlock_backend *backend, const char *name, int code, const char *word) {
    struct dlock_backend copy, before;
    struct dlock_error err = {0};
    memset(&copy, 0x5a, sizeof copy);
    before = copy;
    int rc = dlock__backend_check(backend, name, "the place", &copy, &err);
    if (rc != code) fail_msg("%d instead of %d for: %s", rc, code, word);
    assert_int_equal(err.code, code);
    assert_memory_equal(&copy, &before, sizeof copy);
    if (!strstr(err.message, word)) fail_msg("no \"%s\" in: %s", word, err.message);
    assert_ptr_equal(strstr(err.message, "the place: "), err.message);
    assert_int_equal(dlock__backend_check(backend, name, "the place", &copy, NULL), code);
}

TEST(a_complete_backend_is_copied) {
    struct dlock_backend backend = toy(), copy;
    assert_int_equal(dlock__backend_check(&backend, "toy", "", &copy, NULL), DLOCK_OK);
    assert_memory_equal(&copy, &backend, sizeof copy);
    assert_int_equal(dlock__backend_check(&backend, NULL, "", &copy, NULL), DLOCK_OK);
    assert_true(dlock__backend_serves(&copy, "toy+tls"));
    assert_false(dlock__backend_serves(&copy, "toy+"));
}

TEST(the_abi_must_fit) {
    struct dlock_backend backend = toy(), copy;
    backend.abi = 0;
    refuse(&backend, NULL, DLOCK_EABI, "abi is 0");
    backend.abi = DLOCK_ABI + 1;
    refuse(&backend, NULL, DLOCK_EABI, "update the library");
    backend.abi = UINT32_MAX;
    refuse(&backend, NULL, DLOCK_EABI, "update the library");
    backend = toy();
    backend.size = 0;
    refuse(&backend, NULL, DLOCK_EABI, "size is 0");
    backend.size = sizeof backend - 1;
    refuse(&backend, NULL, DLOCK_EABI, "size is");
    const struct {
        struct dlock_backend backend;
        char more[64];
    } longer = {.backend = toy()};
    backend = longer.backend;
    backend.size += 64;
    assert_int_equal(dlock__backend_check(&backend, NULL, "", &copy, NULL), DLOCK_OK);
}

TEST(mandatory_operations_are_named) {
#define WITHOUT(operation)                                                           \
    do {                                                                             \
        struct dlock_backend backend = toy();                                        \
        backend.operation = NULL;                                                    \
        refuse(&backend, NULL, DLOCK_EINVAL, "operation " #operation " is missing"); \
    } while (0)
    WITHOUT(connect);
    WITHOUT(disconnect);
    WITHOUT(acquire);
    WITHOUT(renew);
    WITHOUT(release);
#undef WITHOUT
}

TEST(capabilities_need_their_operations) {
#define WITHOUT(operation, text)                    \
    do {                                            \
        struct dlock_backend backend = toy();       \
        backend.operation = NULL;                   \
        refuse(&backend, NULL, DLOCK_EINVAL, text); \
    } while (0)
    WITHOUT(listen, "WAKE without");
    WITHOUT(wake, "WAKE without");
    WITHOUT(inspect, "INSPECT without inspect");
    WITHOUT(list, "LIST without list");
    WITHOUT(break_lock, "BREAK without break_lock");
#undef WITHOUT
    struct dlock_backend backend = toy(), copy;
    backend.caps = DLOCK_CAP_QUEUE;
    refuse(&backend, NULL, DLOCK_EINVAL, "QUEUE without WAKE");
    backend.caps = DLOCK_CAP_WANTED;
    refuse(&backend, NULL, DLOCK_EINVAL, "WANTED without WAKE");
    backend.caps = DLOCK_CAP_SESSION;
    refuse(&backend, NULL, DLOCK_EINVAL, "SESSION without THREADSAFE: see dlock/backend_sessions.h");
    backend.caps |= DLOCK_CAP_THREADSAFE;
    assert_int_equal(dlock__backend_check(&backend, NULL, "", &copy, NULL), DLOCK_OK);
    backend.caps |= DLOCK_CAP_EXPORT;
    refuse(&backend, NULL, DLOCK_EINVAL, "EXPORT together with SESSION");
    backend.caps = DLOCK_CAP_PRIVATE;
    refuse(&backend, NULL, DLOCK_EINVAL, "PRIVATE without LOCAL");
    backend.caps = 1U << 31;
    refuse(&backend, NULL, DLOCK_EINVAL, "0x80000000");
    backend = toy();
    backend.caps = 0;
    backend.abandon = NULL;
    backend.listen = NULL;
    backend.wake = NULL;
    backend.inspect = NULL;
    backend.list = NULL;
    backend.break_lock = NULL;
    assert_int_equal(dlock__backend_check(&backend, NULL, "", &copy, NULL), DLOCK_OK);
}

TEST(names_and_sizes_are_checked) {
    static const char *const names[] = {"",     "Toy",
                                        "to-y", "t/y",
                                        "t.y",  "a2345678901234567890123456789012345678901234567890123456789012345"};
    static const char *const empty[] = {NULL};
    static const char *const wrong[][3] = {
        {"toy", "", NULL}, {"Toy", NULL}, {"a_b", NULL}, {"a/b", NULL}, {"a:", NULL}};
    struct dlock_backend backend = toy(), copy;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        backend.name = names[i];
        refuse(&backend, NULL, DLOCK_EINVAL, "name must be");
    }
    backend.name = NULL;
    refuse(&backend, NULL, DLOCK_EINVAL, "name must be");
    backend = toy();
    refuse(&backend, "toys", DLOCK_EABI, "name is \"toy\", but file and symbol say \"toys\"");
    backend.schemes = NULL;
    refuse(&backend, NULL, DLOCK_EINVAL, "schemes is empty");
    backend.schemes = empty;
    refuse(&backend, NULL, DLOCK_EINVAL, "schemes is empty");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        backend.schemes = wrong[i];
        refuse(&backend, NULL, DLOCK_EINVAL, "scheme \"");
    }
    backend = toy();
    backend.conn_size = 0;
    refuse(&backend, NULL, DLOCK_EINVAL, "conn_size is 0");
    backend.conn_size = 1024 * 1024 + 1;
    refuse(&backend, NULL, DLOCK_EINVAL, "conn_size is 1048577");
    backend.conn_size--;
    assert_int_equal(dlock__backend_check(&backend, NULL, "", &copy, NULL), DLOCK_OK);
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

TEST(a_registered_backend_is_found) {
    struct dlock_backend backend = toy();
    const struct dlock__module *module = NULL, *same = NULL;
    assert_int_equal(dlock_register(&backend, NULL), DLOCK_OK);
    memset(&backend, 0, sizeof backend); /* it was copied */
    assert_int_equal(dlock__registry_find("toy", &module, NULL), DLOCK_OK);
    assert_int_equal(dlock__registry_find("toy+tls", &same, NULL), DLOCK_OK);
    assert_ptr_equal(module, same);
    assert_ptr_equal(module->ops.acquire, toy_batch);
    assert_string_equal(module->info.name, "toy");
    assert_ptr_equal(module->info.schemes, toy_schemes);
    assert_int_equal(module->info.caps, toy().caps);
    assert_null(module->info.path);
    assert_null(module->info.error);
}

static void register_as(const char *name, const char *const *schemes, int code, const char *word) {
    struct dlock_backend backend = toy();
    struct dlock_error err = {0};
    backend.name = name;
    backend.schemes = schemes;
    assert_int_equal(dlock_register(&backend, &err), code);
    assert_int_equal(dlock_register(&backend, NULL), code ? code : DLOCK_EINVAL); /* then its own registration has taken
                                                                                     the name */
    if (!strstr(err.message, word)) fail_msg("no \"%s\" in: %s", word, err.message);
}

TEST(names_and_schemes_are_taken_once) {
    static const char *const first[] = {"first", "first+tls", NULL}, *const other[] = {"other", NULL};
    static const char *const tls[] = {"third", "first+tls", NULL};
    register_as("first", first, DLOCK_OK, "");
    register_as("first", other, DLOCK_EINVAL, "taken by the backend \"first\"");
    register_as("third", tls, DLOCK_EINVAL, "taken by the backend \"first\"");
    register_as("third", NULL, DLOCK_EINVAL, "schemes is empty");
    register_as("other", other, DLOCK_OK, "");
    struct dlock_error err;
    assert_int_equal(dlock_register(NULL, &err), DLOCK_EINVAL);
}

/* A guardian is another program, which has no backend of this one. */
TEST(a_registered_backend_has_no_guardian) {
    static const char *const schemes[] = {"unguarded", NULL};
    dlock_client *client = NULL;
    struct dlock_error err;
    register_as("unguarded", schemes, DLOCK_OK, "");
    assert_int_equal(dlock_open("unguarded:?guardian=on", NULL, &client, &err), DLOCK_ENOTSUP);
    assert_non_null(strstr(err.message, "part of this program"));
    assert_null(client);
}

struct racer {
    struct dlock_backend backend;
    atomic_uint *waiting;
    int rc;
};

static void *race(void *arg) {
    struct racer *racer = arg;
    atomic_fetch_sub(racer->waiting, 1);
    while (atomic_load(racer->waiting) > 0) sched_yield();
    racer->rc = dlock_register(&racer->backend, NULL);
    return NULL;
}

TEST(of_threads_that_register_the_same_one_wins) {
    enum { N = 8 };
    static const char *const schemes[] = {"raced", NULL};
    struct racer racers[N];
    pthread_t threads[N];
    atomic_uint waiting = N;
    int won = 0;
    for (int i = 0; i < N; i++) {
        racers[i] = (struct racer){toy(), &waiting, 1};
        racers[i].backend.name = "raced";
        racers[i].backend.schemes = schemes;
        assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
    }
    for (int i = 0; i < N; i++) {
        pthread_join(threads[i], NULL);
        if (racers[i].rc == DLOCK_OK)
            won++;
        else
            assert_int_equal(racers[i].rc, DLOCK_EINVAL);
    }
    assert_int_equal(won, 1);
}

static void find_fails(const char *scheme, int code, const char *word) {
    const struct dlock__module *untouched = (const struct dlock__module *)&untouched, *module = untouched;
    struct dlock_error err = {0};
    assert_int_equal(dlock__registry_find(scheme, &module, &err), code);
    assert_ptr_equal(module, untouched);
    if (!strstr(err.message, word)) fail_msg("no \"%s\" in: %s", word, err.message);
    assert_int_equal(dlock__registry_find(scheme, &module, NULL), code);
}

TEST(a_missing_backend_says_where_it_was_looked_for) {
    setenv("DLOCK_PLUGIN_PATH", ":/nowhere/first::/nowhere/second:", 1);
    find_fails("gone", DLOCK_ENOBACKEND, "(dlock-gone.so is not in /nowhere/first, /nowhere/second, /");
    find_fails("gone", DLOCK_ENOBACKEND, "no backend for the scheme \"gone\"; there are: ");
    find_fails("no-such.one+tls", DLOCK_ENOBACKEND, "(dlock-no_such_one.so");
    find_fails("no-such.one+tls", DLOCK_ENOBACKEND, "the scheme \"no-such.one+tls\"; there are: ");
    find_fails("gone", DLOCK_ENOBACKEND, "DLOCK_PLUGIN_PATH");
    unsetenv("DLOCK_PLUGIN_PATH");
    find_fails("gone", DLOCK_ENOBACKEND, "/dlock/0.1, /");
    find_fails("gone", DLOCK_ENOBACKEND, "/dlock; install it");
}

/* Its file is called after the scheme, in which a '+' stands for the '_'. */
TEST(a_missing_backend_names_the_similar_scheme) {
    char folder[] = "/tmp/dlock-registry-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/dlock-dummy_tls.so", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    setenv("DLOCK_PLUGIN_PATH", folder, 1);
    find_fails("dumy+tls", DLOCK_ENOBACKEND, "; did you mean \"dummy+tls\"?");
    unsetenv("DLOCK_PLUGIN_PATH");
    unlink(path);
    rmdir(folder);
}

TEST(a_scheme_is_never_a_path) {
    find_fails("", DLOCK_EINVAL, "a scheme consists of");
    find_fails("../toy", DLOCK_EINVAL, "a scheme consists of");
    find_fails("TOY", DLOCK_EINVAL, "a scheme consists of");
    find_fails("a2345678901234567890123456789012345678901234567890123456789012345", DLOCK_EINVAL, "at most 64");
    find_fails("..", DLOCK_ENOBACKEND, "dlock-__.so");
    find_fails("+", DLOCK_ENOBACKEND, "dlock-.so");
}

static int collect(const struct dlock_backend_info *info, void *arg) {
    char *names = arg;
    if (info->path) return 0; /* of the build */
    strcat(names, info->name);
    strcat(names, info->error ? "! " : " ");
    return strcmp(info->name, "walk2") == 0;
}

static struct dlock_backend varied_by_session;

static const struct dlock_backend *varied_variant(const struct dlock_uri *uri) {
    const char *mode = dlock_uri_get(uri, "mode");
    return mode && strcmp(mode, "session") == 0 ? &varied_by_session : NULL;
}

/* With one name, and each with its own capabilities; a variant is checked like any other. */
TEST(a_uri_may_choose_a_variant) {
    static const char *const schemes[] = {"varied", NULL};
    const struct dlock_param param = {"mode", "session"};
    const struct dlock_uri plain = {.scheme = "varied"}, chosen = {.params = &param, .n_params = 1};
    const struct dlock__module *base, *module, *again;
    struct dlock_error err;
    struct dlock_backend varied = toy();
    varied.name = "varied";
    varied.schemes = schemes;
    varied.variant = varied_variant;
    varied_by_session = varied;
    varied_by_session.caps = DLOCK_CAP_SESSION | DLOCK_CAP_THREADSAFE;
    varied_by_session.name = "other";
    assert_int_equal(dlock_register(&varied, NULL), DLOCK_OK);
    assert_int_equal(dlock__registry_find("varied", &base, NULL), DLOCK_OK);
    module = base;
    assert_int_equal(dlock__registry_variant(&module, &plain, NULL), DLOCK_OK);
    assert_ptr_equal(module, base);
    assert_int_equal(dlock__registry_variant(&module, &chosen, &err), DLOCK_EABI);
    assert_non_null(strstr(err.message, "other"));
    assert_ptr_equal(module, base);
    varied_by_session.name = "varied";
    assert_int_equal(dlock__registry_variant(&module, &chosen, NULL), DLOCK_OK);
    assert_int_equal(module->info.caps, DLOCK_CAP_SESSION | DLOCK_CAP_THREADSAFE);
    assert_int_equal(base->info.caps, varied.caps);
    again = base;
    assert_int_equal(dlock__registry_variant(&again, &chosen, NULL), DLOCK_OK);
    assert_ptr_equal(again, module);
}

TEST(the_walk_shows_registered_backends_and_can_end) {
    static const char *const schemes[][2] = {{"walk1", NULL}, {"walk2", NULL}, {"walk3", NULL}};
    char names[256] = "";
    for (size_t i = 0; i < 3; i++) register_as(schemes[i][0], schemes[i], DLOCK_OK, "");
    assert_int_equal(dlock_backends(collect, names, NULL), DLOCK_OK);
    const char *found = strstr(names, "walk1 ");
    assert_non_null(found);
    assert_string_equal(found, "walk1 walk2 "); /* the third comes after the end */
}

/* The loader would block until a writer opens it. */
TEST(a_pipe_is_no_module) {
    char folder[] = "/tmp/dlock-registry-XXXXXX", path[64];
    struct dlock__module_file file;
    struct dlock_error err;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/dlock-x.so", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    int rc = dlock__module_identify(path, &file, &err);
    unlink(path);
    rmdir(folder);
    assert_int_equal(rc, DLOCK_EABI);
    assert_non_null(strstr(err.message, "regular file"));
}

TESTS(NULL, NULL, NULL, NULL)
