/* Beginning a session: the URI's parameters, credentials and rights, and the effects on the process. */
#include "harness.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int try_uri(const struct uri *uri, struct dlock_error *err) {
    struct link link;
    memset(err, 0, sizeof *err);
    int rc = link_try(&link, &uri->parts, 'a', 0, TIMEOUT_MS, err);
    link_end(&link);
    return rc;
}

/* ---- the URI ----------------------------------------------------------------------------------------------------- */

TEST(nonsense_is_refused) {
    static const struct {
        const char *key, *value, *path;
    } wrong[] = {
        {"session", "soon", BASE},      {"session", "0", BASE},      {"session", "", BASE},
        {"session", "10x", BASE},       {"session", "2h", BASE},     {"session", ".", BASE},
        {"curator", "semaphore", BASE}, {"acl", "everybody", BASE},  {"acl", "creator", BASE},
        {"auth", "hunter2", BASE},      {"auth", ":hunter2", BASE},  {"session", "1s", "/a//b"},
        {"session", "1s", "/a/../b"},   {"session", "1s", "/a/./b"}, {"session", "1s", "/\xc3\xa9"},
    };
    struct dlock_error err;
    struct uri uri;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        uri_session(&uri, shared_port(), "1s");
        uri.param[0] = (struct dlock_param){wrong[i].key, wrong[i].value};
        uri.parts.path = wrong[i].path;
        assert_int_equal(try_uri(&uri, &err), DLOCK_EINVAL);
        assert_int_equal(err.code, DLOCK_EINVAL);
        assert_null(strstr(err.message, "hunter2"));
        uri.host[0].address = NULL; /* not looked up yet */
        assert_int_equal(backend->accepts(&uri.parts, &err), DLOCK_EINVAL);
    }
}

TEST(durations_are_read_as_everywhere) {
    static const char *const right[] = {"500ms", "1", "1.5", "1.5s", "0.05m", "1s", "0.001h"};
    struct dlock_error err;
    struct uri uri;
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        uri_session(&uri, shared_port(), right[i]);
        assert_int_equal(try_uri(&uri, &err), 0);
    }
}

TEST(paths_are_curators) {
    static const char *const paths[] = {NULL, "/", "/dlock-path", "/dlock-path/", "/dlock-path/deep/er"};
    static const char *const nodes[] = {"/dlock-x", "/dlock-x", "/dlock-path/dlock-x", "/dlock-path/dlock-x",
                                        "/dlock-path/deep/er/dlock-x"};
    struct link link;
    struct held held;
    struct uri uri;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        uri_session(&uri, shared_port(), "10s");
        uri.parts.path = paths[i];
        assert_int_equal(link_try(&link, &uri.parts, 'a', 0, CONNECTS_MS, NULL), 0);
        claim_init(&held, "dlock-x", 'a', 1);
        assert_int_equal(acquire(&link, &held), 0);
        assert_int_equal(plain_count(nodes[i]), 1);
        assert_int_equal(release(&link, &held), 0);
        claim_init(&held, "zookeeper", 'a', 2); /* no place for locks, where the server keeps its own */
        assert_int_equal(acquire(&link, &held), 0);
        assert_int_equal(release(&link, &held), 0);
        link_end(&link);
    }
    assert_int_equal(zoo_exists(plain(), "/%7Aookeeper", 0, NULL), ZOK);
}

/* A list of servers, of which not all are there. */
TEST(dead_servers_are_passed_over) {
    struct dlock_error err;
    struct uri uri;
    struct proxy *gone = proxy_new(shared_port());
    int closed = proxy_port(gone);
    proxy_end(gone);
    uri_session(&uri, closed, "2s");
    uri.parts.n_hosts = 3;
    uri.host[1] = (struct dlock_host){"::1", "::1", closed};
    uri.host[2] = (struct dlock_host){"localhost", "127.0.0.1", shared_port()};
    for (int i = 0; i < 6; i++) assert_int_equal(try_uri(&uri, &err), 0);
    uri.param[uri.parts.n_params++] = (struct dlock_param){"auth", "digest:me:secret"};
    for (int i = 0; i < 12; i++) assert_int_equal(try_uri(&uri, &err), 0);
    uri.parts.n_hosts = 2;
    struct link link;
    int64_t begun = now_ms();
    link_try(&link, &uri.parts, 'a', 0, 1000, &err);
    link_end(&link);
    assert_int_equal(err.code, DLOCK_EUNAVAILABLE);
    assert_in_range(now_ms() - begun, 900, 1000 + 2000);
}

TEST(negotiated_session_counts) {
    LINK(link, shared_port(), "3600", 'a'); /* the server gives it 60 s */
    CLAIM_INIT(held, "negotiated", 'a', 1);
    held.claim.lease_ms = 3600000;
    assert_int_equal(acquire(&link, &held), 0);
    assert_in_range(held.claim.kept_ms, 50000, 60000);
    assert_int_equal(release(&link, &held), 0);
}

/* ---- credentials and rights -------------------------------------------------------------------------------------- */

static void link_as(struct link *link, const char *auth, const char *acl) {
    struct dlock_error err = {0};
    struct uri uri;
    uri_session(&uri, shared_port(), "10s");
    uri.parts.path = "/dlock-rights";
    if (auth) uri.param[uri.parts.n_params++] = (struct dlock_param){"auth", auth};
    if (acl) uri.param[uri.parts.n_params++] = (struct dlock_param){"acl", acl};
    if (link_try(link, &uri.parts, 'a', 0, CONNECTS_MS, &err) != 0) fail_msg("%s", err.message);
}

TEST(creators_keep_others_out) {
    struct dlock_error err = {0};
    struct link mine, again, others;
    char name[32];
    snprintf(name, sizeof name, "mine-%lld", (long long)now_ms());
    plain_make("/dlock-rights/open", "", 0, NULL, 0);
    link_as(&mine, "digest:me:secret", "creator");
    link_as(&again, "digest:me:secret", "creator");
    link_as(&others, NULL, NULL);
    CLAIM_INIT(held, name, 'a', 1);
    assert_int_equal(acquire(&mine, &held), 0);
    CLAIM_INIT(next, name, 'a', 2);
    assert_int_equal(acquire(&again, &next), DLOCK_EBUSY);
    claim_init(&next, name, 'a', 3);
    assert_int_equal(held_run(backend->acquire, &others, &next, 0, TIMEOUT_MS, &err), 0);
    assert_int_equal(next.claim.result, DLOCK_EAUTH);
    assert_int_equal(err.code, DLOCK_EAUTH);
    assert_int_equal(backend->break_lock(others.conn, name, TIMEOUT_MS, &err), DLOCK_EAUTH);
    assert_int_equal(release(&mine, &held), 0);
    claim_init(&next, name, 'a', 4);
    assert_int_equal(acquire(&again, &next), 0);
    assert_int_equal(release(&again, &next), 0);
    link_end(&mine);
    link_end(&again);
    link_end(&others);
    plain_delete("/dlock-rights/open");
}

/* Neither the parent nor what is missing below it can be made. */
TEST(closed_parents_are_told) {
    static struct ACL readers[] = {{0x01, {(char *)"world", (char *)"anyone"}}};
    static const struct ACL_vector only_read = {1, readers};
    static const char *const paths[] = {"/dlock-closed", "/dlock-closed/a", "/dlock-closed/a/b"};
    struct dlock_error err = {0};
    struct link link;
    struct held held;
    struct uri uri;
    int rc = zoo_create(plain(), "/dlock-closed", "", 0, &only_read, 0, NULL, 0);
    assert_true(rc == ZOK || rc == ZNODEEXISTS);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        uri_session(&uri, shared_port(), "10s");
        uri.parts.path = paths[i];
        assert_int_equal(link_try(&link, &uri.parts, 'a', 0, CONNECTS_MS, NULL), 0);
        claim_init(&held, "closed", 'a', 1);
        assert_int_equal(held_run(backend->acquire, &link, &held, 0, TIMEOUT_MS, &err), 0);
        assert_int_equal(held.claim.result, DLOCK_EAUTH);
        assert_non_null(strstr(err.message, "an ACL has to grant it create, read and delete"));
        link_end(&link);
    }
}

TEST(user_and_password_are_a_digest) {
    SCOPED_LINK mine;
    struct uri uri;
    char path[512], name[32];
    struct ACL_vector acl = {0, NULL};
    snprintf(name, sizeof name, "user-%lld", (long long)now_ms());
    uri_session(&uri, shared_port(), "10s");
    uri.parts.user = "me";
    uri.parts.password = "secret";
    uri.param[uri.parts.n_params++] = (struct dlock_param){"acl", "read"};
    assert_int_equal(link_try(&mine, &uri.parts, 'a', 0, CONNECTS_MS, NULL), 0);
    CLAIM_INIT(held, name, 'a', 1);
    assert_int_equal(acquire(&mine, &held), 0);
    snprintf(path, sizeof path, BASE "/%s", name);
    assert_int_equal(plain_count(path), 1); /* world-readable */
    struct Stat stat;
    assert_int_equal(zoo_get_acl(plain(), path, &acl, &stat), ZOK);
    assert_int_equal(acl.count, 2);
    assert_string_equal(acl.data[0].id.scheme, "digest");
    assert_memory_equal(acl.data[0].id.id, "me:", 3);
    assert_int_equal(acl.data[0].perms, ZOO_PERM_ALL);
    assert_string_equal(acl.data[1].id.scheme, "world");
    assert_int_equal(acl.data[1].perms, ZOO_PERM_READ);
    deallocate_ACL_vector(&acl);
    assert_int_equal(release(&mine, &held), 0);
}

TEST(refused_credentials_are_eauth) {
    struct dlock_error err;
    struct uri uri;
    uri_session(&uri, shared_port(), "10s");
    uri.param[uri.parts.n_params++] = (struct dlock_param){"auth", "nosuchscheme:hunter2"};
    assert_int_equal(try_uri(&uri, &err), DLOCK_EAUTH);
    assert_null(strstr(err.message, "hunter2"));
}

/* ---- the process ------------------------------------------------------------------------------------------------- */

static int count_descriptors(void) {
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

/* The session's thread has the last word, and may be a moment behind. */
TEST(descriptors_are_closed) {
    struct link link;
    int before = count_descriptors();
    link_new(&link, shared_port(), "10s", 'a');
    assert_true(count_descriptors() > before);
    link_end(&link);
    for (int64_t until = now_ms() + 10000; count_descriptors() != before; sleep_ms(10)) assert_true(now_ms() < until);
}

/* The library would log to it. */
TEST(standard_error_is_left_alone) {
    char line[256];
    struct link link;
    struct uri uri;
    FILE *file = tmpfile();
    int saved = dup(2);
    assert_non_null(file);
    fflush(stderr);
    assert_int_equal(dup2(fileno(file), 2), 2);
    link_new(&link, shared_port(), "10s", 'a');
    link_end(&link);
    uri_session(&uri, 1, "200ms"); /* no server there */
    link_try(&link, &uri.parts, 'a', 0, 1000, NULL);
    link_end(&link);
    assert_int_equal(dup2(saved, 2), 2);
    close(saved);
    rewind(file);
    if (fgets(line, sizeof line, file)) fail_msg("on standard error: %s", line);
    fclose(file);
}

TESTS(NULL, NULL, backend_load, NULL)
