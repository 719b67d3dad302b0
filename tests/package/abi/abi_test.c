/* Modules of all kinds, as an application may find them: faulty, linked, missing. */
#include "support/test.h"

#include <dlock/backend.h>

#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUILT MODULE_DIR "/dlock-"

/* Opens a client without connecting. */
static dlock_client *open_uri(const char *uri) {
    struct dlock_client_options options = DLOCK_CLIENT_OPTIONS_INIT;
    struct dlock_error err;
    dlock_client *client = NULL;
    options.flags = DLOCK_CLIENT_LAZY;
    if (dlock_open(uri, &options, &client, &err) != DLOCK_OK) fail_msg("%s: %s", uri, err.message);
    return client;
}

/* The backend's description stays valid after the client's end. */
static const struct dlock_backend_info *backend_of(const char *uri) {
    dlock_client *client = open_uri(uri);
    const struct dlock_backend_info *info = dlock_client_backend(client);
    dlock_close(client);
    assert_null(info->error);
    return info;
}

static void refuse(const char *uri, int code, const char *word) {
    dlock_client *untouched = (dlock_client *)&untouched, *client = untouched;
    struct dlock_error err = {0};
    int rc = dlock_open(uri, NULL, &client, &err);
    if (rc != code) fail_msg("%s: %d instead of %d: %s", uri, rc, code, err.message);
    assert_int_equal(err.code, code);
    assert_ptr_equal(client, untouched);
    if (!strstr(err.message, word)) fail_msg("%s: no \"%s\" in: %s", uri, word, err.message);
}

/* A lock on it can be acquired and released. */
static void use(const char *uri) {
    dlock_client *client = open_uri(uri);
    dlock_lock *lock = NULL;
    struct dlock_error err = {0};
    assert_int_equal(dlock_new(client, "name", NULL, &lock, &err), DLOCK_OK);
    if (dlock_acquire(lock, 10000, &err) != DLOCK_OK) fail_msg("%s: %s", uri, err.message);
    assert_true(dlock_fence(lock) > 0);
    assert_int_equal(dlock_release(lock, &err), DLOCK_OK);
    dlock_free(lock);
    dlock_close(client);
}

/* ---- at once, while nothing is loaded ---------------------------------------------------------------------------- */

static void *open_and_tell(void *arg) {
    *(const struct dlock_backend_info **)arg = backend_of("concurrent:");
    return NULL;
}

TEST(threads_get_the_same_module) {
    enum { N = 8 };
    pthread_t threads[N];
    const struct dlock_backend_info *info[N];
    for (int i = 0; i < N; i++) assert_int_equal(pthread_create(&threads[i], NULL, open_and_tell, &info[i]), 0);
    for (int i = 0; i < N; i++) pthread_join(threads[i], NULL);
    for (int i = 1; i < N; i++) assert_ptr_equal(info[i], info[0]);
}

/* ---- that fit ---------------------------------------------------------------------------------------------------- */

TEST(a_module_is_loaded_and_used) {
    const struct dlock_backend_info *info = backend_of("toy:");
    assert_string_equal(info->name, "toy");
    assert_string_equal(info->schemes[0], "toy");
    assert_string_equal(info->path, BUILT "toy.so");
    assert_ptr_equal(backend_of("TOY:"), info);
    use("toy:?key=1");
    refuse("toy:?other=1", DLOCK_EINVAL, "\"other\"; it takes key");
}

TEST(the_same_source_works_in_cxx) {
    assert_string_equal(backend_of("cxx:")->path, BUILT "cxx.so");
    use("cxx:");
}

TEST(an_alias_is_the_module_it_links_to) {
    const struct dlock_backend_info *alias = backend_of("alias:");
    assert_string_equal(alias->name, "aliased");
    assert_string_equal(alias->path, BUILT "aliased.so");
    assert_ptr_equal(backend_of("aliased:"), alias);
    use("alias:");
}

TEST(schemes_become_file_names) {
    const struct dlock_backend_info *info = backend_of("two-words:");
    assert_string_equal(info->name, "two_words");
    assert_ptr_equal(backend_of("two.words+tls:"), info);
    assert_string_equal(backend_of("two-words+own:")->name, "two_words_own"); /* a separate module comes first */
    refuse("two-words+udp:", DLOCK_ENOBACKEND,
           "no backend for the scheme \"two-words+udp\"; there are: two-words, two.words+tls");
}

TEST(a_versioned_file_may_stand_behind_the_link) {
    assert_string_equal(backend_of("versioned:")->path, BUILT "versioned.so.1");
}

/* ---- that do not ------------------------------------------------------------------------------------------------- */

TEST(without_a_descriptor_no_module_is_blamed) {
    struct rlimit before, none;
    getrlimit(RLIMIT_NOFILE, &before);
    none = before;
    none.rlim_cur = 0;
    setrlimit(RLIMIT_NOFILE, &none);
    refuse("unread:", DLOCK_ENOMEM, "raise the limit (ulimit -n)");
    setrlimit(RLIMIT_NOFILE, &before);
    use("unread:");
}

TEST(what_does_not_fit_is_named) {
    refuse("newer:", DLOCK_EABI, BUILT "newer.so: made for plugin ABI");
    refuse("noabi:", DLOCK_EABI, "abi is 0");
    refuse("norenew:", DLOCK_EINVAL, BUILT "norenew.so: the mandatory operation renew is missing");
    refuse("misnamed:", DLOCK_EABI, BUILT "misnamed.so: it has no symbol dlock_backend_misnamed");
    refuse("liar:", DLOCK_EABI, "name is \"honest\", but file and symbol say \"liar\"");
    refuse("notserved:", DLOCK_ENOBACKEND, "no backend for the scheme \"notserved\"; there are: toy");
    refuse("notelf:", DLOCK_EABI, BUILT "notelf.so");
    refuse("dangling:", DLOCK_EABI, BUILT "dangling.so: the file cannot be reached");
    refuse("renamed:", DLOCK_EABI, "/plugin.so: a module's file must be called dlock-<name>.so");
    refuse("needy:", DLOCK_EABI, "libdlock-abi-gone.so");
    refuse("nowhere:", DLOCK_ENOBACKEND, "dlock-nowhere.so is not in " MODULE_DIR);
}

/* ---- where they are looked for ----------------------------------------------------------------------------------- */

static char folder[] = "/tmp/dlock-abi-XXXXXX";

static void write_broken(const char *path) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("no module\n", file);
    assert_int_equal(fclose(file), 0);
}

static void search(const char *path) {
    assert_int_equal(setenv("DLOCK_PLUGIN_PATH", path, 1), 0);
}

static int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    const char *const names[] = {"dlock-later.so", "dlock-shadowed.so"};
    char path[64];
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    search(MODULE_DIR);
    return rmdir(folder);
}

TEST(what_is_installed_later_is_found) {
    char path[64];
    snprintf(path, sizeof path, "%s/dlock-later.so", folder);
    search(folder);
    refuse("later:", DLOCK_ENOBACKEND, folder);
    write_broken(path);
    refuse("later:", DLOCK_EABI, path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(BUILT "later.so", path), 0);
    const struct dlock_backend_info *info = backend_of("later:");
    assert_string_equal(info->path, BUILT "later.so");
    assert_int_equal(unlink(path), 0);
    assert_ptr_equal(backend_of("later:"), info); /* what was loaded stays */
    search(MODULE_DIR);
}

static int find_shadowed(const struct dlock_backend_info *info, void *arg) {
    if (strcmp(info->name, "shadowed") == 0) *(const struct dlock_backend_info **)arg = info;
    return *(const struct dlock_backend_info **)arg != NULL;
}

TEST(the_first_folder_wins) {
    char path[64], both[512];
    const struct dlock_backend_info *shown = NULL;
    snprintf(path, sizeof path, "%s/dlock-shadowed.so", folder);
    write_broken(path);
    snprintf(both, sizeof both, "%s:%s", folder, MODULE_DIR);
    search(both);
    refuse("shadowed:", DLOCK_EABI, path);
    assert_int_equal(dlock_backends(find_shadowed, &shown, NULL), DLOCK_OK);
    assert_string_equal(shown->path, path);
    assert_non_null(shown->error);
    snprintf(both, sizeof both, ":%s::%s:", MODULE_DIR, folder);
    search(both);
    assert_string_equal(backend_of("shadowed:")->path, BUILT "shadowed.so");
    search(MODULE_DIR);
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

enum { SHOWN_MAX = 64 };
struct shown {
    size_t n;
    const struct dlock_backend_info *info[SHOWN_MAX];
};

/* The modules of our folder; the build's own are beside the library. */
static int remember(const struct dlock_backend_info *info, void *arg) {
    struct shown *shown = arg;
    if (!info->path || strncmp(info->path, MODULE_DIR "/", strlen(MODULE_DIR "/")) != 0) return 0;
    assert_true(shown->n < SHOWN_MAX);
    shown->info[shown->n++] = info;
    return 0;
}

TEST(every_module_is_shown_once) {
    static const struct {
        const char *name, *error;
    } expected[] = {{"aliased", NULL},
                    {"concurrent", NULL},
                    {"cxx", NULL},
                    {"dangling", "cannot be reached"},
                    {"later", NULL},
                    {"liar", "\"honest\""},
                    {"misnamed", "dlock_backend_misnamed"},
                    {"needy", "libdlock-abi-gone.so"},
                    {"newer", "update the library"},
                    {"noabi", "abi is 0"},
                    {"norenew", "renew is missing"},
                    {"notelf", "notelf.so"},
                    {"toy", NULL},                /* by its first alias in the alphabet, notserved */
                    {"plugin", "must be called"}, /* what renamed links to */
                    {"shadowed", NULL},
                    {"two_words", NULL},
                    {"two_words_own", NULL},
                    {"unread", NULL},
                    {"versioned", NULL}};
    struct shown first = {0}, second = {0};
    assert_int_equal(dlock_backends(remember, &first, NULL), DLOCK_OK);
    for (size_t i = 0; i < first.n; i++) {
        const struct dlock_backend_info *info = first.info[i];
        if (i >= sizeof expected / sizeof *expected) fail_msg("%s is one too many", info->name);
        assert_string_equal(info->name, expected[i].name);
        assert_int_equal(info->error == NULL, expected[i].error == NULL);
        if (info->error && !strstr(info->error, expected[i].error)) fail_msg("%s: %s", info->name, info->error);
        assert_int_equal(info->schemes == NULL, info->error != NULL);
    }
    assert_int_equal(first.n, sizeof expected / sizeof *expected);
    assert_int_equal(dlock_backends(remember, &second, NULL), DLOCK_OK);
    assert_memory_equal(&first, &second, sizeof first); /* static, and no new ones each time */
}

/* ---- linked in --------------------------------------------------------------------------------------------------- */

extern const struct dlock_backend dlock_backend_toy;

TEST(a_registered_backend_wins_over_its_module) {
    assert_non_null(backend_of("toy:")->path);
    assert_int_equal(dlock_register(&dlock_backend_toy, NULL), DLOCK_OK);
    assert_null(backend_of("toy:")->path);
    use("toy:");
}

int main(int argc, char **argv) {
    search(MODULE_DIR);
    return tests_run(argc, argv, NULL, NULL, make_folder, remove_folder);
}
