/* Resolving on threads. The linker puts __wrap_getaddrinfo in place of getaddrinfo, so the name server is ours: it
 * counts, fails, changes its mind and hangs on command. */
#include "base/env.h"
#include "support/test.h"
#include "uri/resolve.h"
#include "uri/uri.h"

#include <netdb.h>
#include <stdlib.h>
#include <unistd.h>

#define MS INT64_C(1000)
/* For what must not wait at all, on a machine that is busy with other things. */
#define GENEROUS_US (5000 * MS)
#define LONG_US (60000 * MS)

/* ---- the name server --------------------------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    const char *answer[2]; /* what names resolve to; NULL: nothing more */
    int failure;           /* instead of an answer */
    bool hangs;
    unsigned asked, running;
    unsigned used; /* by threads that have not come to their end yet */
    /* The first thread that ends has "last.test" answered, and waits until this resolver knows. */
    struct dlock__resolver *last_of;
    bool last_goes;
} server = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* As in the real one, a thread that has asked keeps something until its very end. */
static pthread_key_t kept;

static void let_last_go(struct dlock__resolver *resolver) {
    for (size_t known = 0; known < 2; usleep(100)) {
        struct dlock__addresses *addresses;
        if (dlock__resolve(resolver, 0, false, &addresses, NULL) != DLOCK_OK) continue;
        known = addresses->n;
        free(addresses);
        pthread_mutex_lock(&server.mutex);
        server.last_goes = true;
        pthread_cond_broadcast(&server.changed);
        pthread_mutex_unlock(&server.mutex);
    }
}

static void give_back(void *arg) {
    pthread_mutex_lock(&server.mutex);
    struct dlock__resolver *last_of = server.last_of;
    server.last_of = NULL;
    pthread_mutex_unlock(&server.mutex);
    usleep(20000);
    if (last_of) let_last_go(last_of);
    pthread_mutex_lock(&server.mutex);
    server.used--;
    pthread_cond_broadcast(&server.changed);
    pthread_mutex_unlock(&server.mutex);
    free(arg);
}

static unsigned server_used(void) {
    pthread_mutex_lock(&server.mutex);
    unsigned used = server.used;
    pthread_mutex_unlock(&server.mutex);
    return used;
}

static void server_set(const char *first, const char *second, int failure, bool hangs) {
    pthread_mutex_lock(&server.mutex);
    server.answer[0] = first;
    server.answer[1] = second;
    server.failure = failure;
    server.hangs = hangs;
    pthread_cond_broadcast(&server.changed);
    pthread_mutex_unlock(&server.mutex);
}

static unsigned server_asked(void) {
    pthread_mutex_lock(&server.mutex);
    unsigned asked = server.asked;
    pthread_mutex_unlock(&server.mutex);
    return asked;
}

static void server_wait_for(unsigned asked, unsigned running) {
    pthread_mutex_lock(&server.mutex);
    while (server.asked < asked || server.running > running) pthread_cond_wait(&server.changed, &server.mutex);
    pthread_mutex_unlock(&server.mutex);
}

int __real_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **list);
int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **list);

/* Numeric hosts resolve normally; "fixed.test" always resolves; other names as the server says. */
int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **list) {
    struct addrinfo numeric = *hints;
    if (hints->ai_flags & AI_NUMERICHOST) return __real_getaddrinfo(host, service, hints, list);
    numeric.ai_flags |= AI_NUMERICHOST;
    if (strcmp(host, "fixed.test") == 0) return __real_getaddrinfo("192.0.2.99", service, &numeric, list);
    pthread_mutex_lock(&server.mutex);
    server.asked++;
    server.running++;
    server.used++;
    pthread_setspecific(kept, malloc(1));
    pthread_cond_broadcast(&server.changed);
    bool last = strcmp(host, "last.test") == 0;
    while (server.hangs || (last && !server.last_goes)) pthread_cond_wait(&server.changed, &server.mutex);
    int code = server.failure;
    struct addrinfo **end = list;
    for (size_t i = 0; code == 0 && i < 2 && server.answer[i]; i++) {
        code = __real_getaddrinfo(last ? "192.0.2.98" : server.answer[i], service, &numeric, end);
        end = &(*end)->ai_next;
    }
    server.running--;
    pthread_cond_broadcast(&server.changed);
    pthread_mutex_unlock(&server.mutex);
    return code;
}

/* ---- helpers ----------------------------------------------------------------------------------------------------- */

static struct dlock__resolver *resolver_of(const char *text) {
    struct dlock__uri *uri = NULL;
    struct dlock__resolver *resolver = NULL;
    assert_int_equal(dlock__uri_parse(text, &uri, NULL), DLOCK_OK);
    assert_int_equal(dlock__resolver_new(&uri->parts, &resolver, NULL), DLOCK_OK);
    dlock__uri_free(uri);
    return resolver;
}

/* `host=address:port …` */
static void expect_within(struct dlock__resolver *resolver, int64_t within_us, bool lookup, const char *expected) {
    struct dlock__addresses *addresses = NULL;
    struct dlock_error err = {0};
    char text[512] = "";
    size_t used = 0;
    if (dlock__resolve(resolver, dlock__now_us() + within_us, lookup, &addresses, &err) != DLOCK_OK)
        fail_msg("%s instead of %s", err.message, expected);
    for (size_t i = 0; i < addresses->n; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s=%s:%d", i ? " " : "", addresses->hosts[i].host,
                                 addresses->hosts[i].address, addresses->hosts[i].port);
    free(addresses);
    assert_string_equal(text, expected);
    assert_string_equal(err.message, "");
}

static void expect(struct dlock__resolver *resolver, const char *expected) {
    expect_within(resolver, LONG_US, true, expected);
}

static void refuse(struct dlock__resolver *resolver, int64_t within_us, bool lookup, const char *word) {
    struct dlock__addresses *untouched = (struct dlock__addresses *)&untouched, *addresses = untouched;
    struct dlock_error err = {0};
    assert_int_equal(dlock__resolve(resolver, dlock__now_us() + within_us, lookup, &addresses, &err),
                     DLOCK_EUNAVAILABLE);
    assert_ptr_equal(addresses, untouched);
    if (!strstr(err.message, word)) fail_msg("no \"%s\" in: %s", word, err.message);
    assert_int_equal(dlock__resolve(resolver, 0, false, &addresses, NULL), DLOCK_EUNAVAILABLE);
}

static int reset(void **state) {
    (void)state;
    server_set(NULL, NULL, 0, false);
    server_wait_for(0, 0);
    pthread_mutex_lock(&server.mutex);
    while (server.used > 0) pthread_cond_wait(&server.changed, &server.mutex);
    server.asked = 0;
    pthread_mutex_unlock(&server.mutex);
    return 0;
}

/* ---- without a look-up ------------------------------------------------------------------------------------------- */

TEST(no_hosts_have_no_addresses) {
    struct dlock__resolver *resolver = resolver_of("file:locks");
    expect(resolver, "");
    expect_within(resolver, 0, false, "");
    dlock__resolver_stale(resolver);
    expect(resolver, "");
    dlock__resolver_free(resolver);
    dlock__resolver_free(NULL);
}

TEST(numeric_hosts_are_not_looked_up) {
    struct dlock__resolver *resolver =
        resolver_of("x://192.0.2.1:7,[::1],[2001:db8:0::0:9]:8,192.0.2.1:7,192.0.2.1,%2Frun%2Fx");
    const char *expected = "192.0.2.1=192.0.2.1:7 ::1=::1:0 2001:db8:0::0:9=2001:db8::9:8 192.0.2.1=192.0.2.1:0 "
                           "/run/x=/run/x:0";
    expect_within(resolver, 0, false, expected);
    dlock__resolver_stale(resolver);
    expect_within(resolver, 0, true, expected);
    assert_int_equal(server_asked(), 0);
    dlock__resolver_free(resolver);
}

TEST(the_renewal_path_never_waits) {
    server_set("192.0.2.1", NULL, 0, false);
    struct dlock__resolver *resolver = resolver_of("x://a.test");
    refuse(resolver, LONG_US, false, "\"a.test\" is known yet");
    assert_int_equal(server_asked(), 0);
    expect(resolver, "a.test=192.0.2.1:0");
    server_set("192.0.2.2", NULL, 0, true);
    dlock__resolver_stale(resolver);
    for (int i = 0; i < 3; i++) expect_within(resolver, LONG_US, false, "a.test=192.0.2.1:0");
    server_wait_for(2, 1);
    assert_int_equal(server_asked(), 2);
    dlock__resolver_free(resolver);
}

/* No other caller asks; each look-up finds something new, and the previous result stays in use for a moment. */
TEST(the_renewal_path_alone_follows_a_name) {
    static const char *const places[] = {"192.0.2.2", "192.0.2.3", "192.0.2.4"};
    struct dlock__addresses *addresses = NULL;
    server_set("192.0.2.1", NULL, 0, false);
    struct dlock__resolver *resolver = resolver_of("x://a.test");
    expect(resolver, "a.test=192.0.2.1:0");
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        bool there = false;
        server_set(places[i], NULL, 0, false);
        for (int64_t until = dlock__now_us() + LONG_US; !there; usleep(1000)) {
            assert_true(dlock__now_us() < until);
            dlock__resolver_stale(resolver);
            assert_int_equal(dlock__resolve(resolver, 0, false, &addresses, NULL), DLOCK_OK);
            there = strcmp(addresses->hosts[0].address, places[i]) == 0;
            free(addresses);
        }
    }
    dlock__resolver_free(resolver);
}

/* ---- with one ---------------------------------------------------------------------------------------------------- */

TEST(all_addresses_of_a_name_are_listed_and_remembered) {
    server_set("::1", "127.0.0.1", 0, false);
    struct dlock__resolver *resolver = resolver_of("x://a.test:5");
    expect(resolver, "a.test=::1:5 a.test=127.0.0.1:5");
    server_set("192.0.2.1", NULL, 0, false);
    expect(resolver, "a.test=::1:5 a.test=127.0.0.1:5");
    assert_int_equal(server_asked(), 1);
    dlock__resolver_free(resolver);
}

TEST(names_are_looked_up_beside_numeric_hosts) {
    server_set("192.0.2.1", "192.0.2.3", 0, false);
    struct dlock__resolver *resolver = resolver_of("x://192.0.2.2,a.test,192.0.2.3,b.test:4");
    expect(resolver, "192.0.2.2=192.0.2.2:0 a.test=192.0.2.1:0 a.test=192.0.2.3:0 b.test=192.0.2.1:4 "
                     "b.test=192.0.2.3:4");
    assert_int_equal(server_asked(), 2);
    dlock__resolver_free(resolver);
}

TEST(what_did_not_work_is_looked_up_again) {
    server_set("192.0.2.1", NULL, 0, false);
    struct dlock__resolver *resolver = resolver_of("x://a.test");
    expect(resolver, "a.test=192.0.2.1:0");
    server_set("192.0.2.2", NULL, 0, false);
    dlock__resolver_stale(resolver);
    expect(resolver, "a.test=192.0.2.2:0");
    expect(resolver, "a.test=192.0.2.2:0");
    assert_int_equal(server_asked(), 2);
    dlock__resolver_free(resolver);
}

TEST(a_failed_look_up_names_the_host_and_is_repeated) {
    server_set(NULL, NULL, EAI_NONAME, false);
    struct dlock__resolver *resolver = resolver_of("x://a.test");
    refuse(resolver, LONG_US, true, "\"a.test\" was not found");
    server_set("192.0.2.1", NULL, 0, false);
    expect(resolver, "a.test=192.0.2.1:0");
    assert_int_equal(server_asked(), 2);
    dlock__resolver_free(resolver);
}

TEST(a_failed_look_up_falls_back_to_what_is_remembered) {
    server_set("192.0.2.1", NULL, 0, false);
    struct dlock__resolver *resolver = resolver_of("x://a.test,fixed.test");
    expect(resolver, "a.test=192.0.2.1:0 fixed.test=192.0.2.99:0");
    server_set(NULL, NULL, EAI_AGAIN, false);
    dlock__resolver_stale(resolver);
    expect(resolver, "a.test=192.0.2.1:0 fixed.test=192.0.2.99:0");
    assert_int_equal(server_asked(), 2);
    dlock__resolver_free(resolver);
}

TEST(one_host_of_several_is_enough) {
    server_set(NULL, NULL, EAI_NONAME, false);
    struct dlock__resolver *resolver = resolver_of("x://a.test,fixed.test:3");
    expect(resolver, "fixed.test=192.0.2.99:3");
    server_set("192.0.2.1", NULL, 0, false);
    dlock__resolver_stale(resolver);
    expect(resolver, "a.test=192.0.2.1:0 fixed.test=192.0.2.99:3");
    dlock__resolver_free(resolver);
}

TEST(addresses_outlive_what_they_came_from) {
    struct dlock__addresses *before = NULL, *after = NULL;
    server_set("192.0.2.1", NULL, 0, false);
    struct dlock__resolver *resolver = resolver_of("x://a.test");
    assert_int_equal(dlock__resolve(resolver, dlock__now_us() + LONG_US, true, &before, NULL), DLOCK_OK);
    server_set("192.0.2.2", NULL, 0, false);
    dlock__resolver_stale(resolver);
    assert_int_equal(dlock__resolve(resolver, dlock__now_us() + LONG_US, true, &after, NULL), DLOCK_OK);
    dlock__resolver_free(resolver);
    assert_string_equal(before->hosts[0].address, "192.0.2.1");
    assert_string_equal(after->hosts[0].address, "192.0.2.2");
    assert_string_equal(after->hosts[0].host, "a.test");
    free(before);
    free(after);
}

/* Memory that a thread still has at its end must not look like a leak at the end of the process. */
TEST(nothing_is_left_of_a_look_up) {
    server_set(NULL, NULL, EAI_NONAME, false);
    struct dlock__resolver *resolver = resolver_of("x://a.test,b.test");
    refuse(resolver, LONG_US, true, "was not found");
    dlock__resolver_free(resolver);
    assert_int_equal(server_used(), 0);
}

static void assert_late_answer_leaves_nothing(struct dlock__resolver *resolver) {
    struct dlock__addresses *addresses;
    server_set("192.0.2.1", NULL, 0, false);
    while (dlock__resolve(resolver, 0, false, &addresses, NULL) != DLOCK_OK) usleep(100);
    free(addresses);
    dlock__resolver_free(resolver);
    assert_int_equal(server_used(), 0);
}

/* A look-up that took too long, but ended. */
TEST(nothing_is_left_of_a_late_look_up) {
    server_set("192.0.2.1", NULL, 0, true);
    struct dlock__resolver *resolver = resolver_of("x://a.test");
    refuse(resolver, 1 * MS, true, "takes too long");
    assert_late_answer_leaves_nothing(resolver);
}

/* Nor of one that ends while another one is joined. */
TEST(nothing_is_left_of_the_last_look_up) {
    server_set("192.0.2.1", NULL, 0, true);
    struct dlock__resolver *resolver = resolver_of("x://last.test,a.test");
    refuse(resolver, 1 * MS, true, "takes too long");
    pthread_mutex_lock(&server.mutex);
    server.last_of = resolver;
    pthread_mutex_unlock(&server.mutex);
    assert_late_answer_leaves_nothing(resolver);
}

/* ---- that hangs -------------------------------------------------------------------------------------------------- */

TEST(a_look_up_that_hangs_ends_at_the_deadline_and_is_joined) {
    server_set("192.0.2.1", NULL, 0, true);
    struct dlock__resolver *resolver = resolver_of("x://a.test");
    for (int i = 0; i < 2; i++) {
        int64_t began_us = dlock__now_us();
        refuse(resolver, 50 * MS, true, "\"a.test\" takes too long");
        int64_t took_us = dlock__now_us() - began_us;
        assert_true(took_us >= 50 * MS);
        assert_true(took_us < GENEROUS_US);
    }
    server_set("192.0.2.1", NULL, 0, false);
    expect(resolver, "a.test=192.0.2.1:0");
    assert_int_equal(server_asked(), 1);
    dlock__resolver_free(resolver);
}

TEST(while_it_hangs_what_is_remembered_is_used_in_time) {
    server_set("192.0.2.1", NULL, 0, false);
    struct dlock__resolver *resolver = resolver_of("x://a.test");
    expect(resolver, "a.test=192.0.2.1:0");
    server_set("192.0.2.2", NULL, 0, true);
    dlock__resolver_stale(resolver);

    int64_t began_us = dlock__now_us();
    expect_within(resolver, 4000 * MS, true, "a.test=192.0.2.1:0");
    int64_t took_us = dlock__now_us() - began_us;
    assert_true(took_us >= 2000 * MS && took_us < 4000 * MS); /* half of the time */
    began_us = dlock__now_us();
    expect_within(resolver, LONG_US, true, "a.test=192.0.2.1:0"); /* not again, until that fails */
    assert_true(dlock__now_us() - began_us < GENEROUS_US);

    dlock__resolver_stale(resolver);
    server_set("192.0.2.2", NULL, 0, false);
    expect(resolver, "a.test=192.0.2.2:0");
    assert_int_equal(server_asked(), 2);
    dlock__resolver_free(resolver);
}

TEST(one_that_hangs_does_not_keep_the_others) {
    server_set("192.0.2.1", NULL, 0, true);
    struct dlock__resolver *resolver = resolver_of("x://a.test,fixed.test");
    expect_within(resolver, 2000 * MS, true, "fixed.test=192.0.2.99:0");
    dlock__resolver_free(resolver);
}

TEST(a_resolver_is_freed_without_waiting) {
    server_set("192.0.2.1", NULL, 0, true);
    struct dlock__resolver *resolver = resolver_of("x://a.test");
    refuse(resolver, 1 * MS, true, "a.test");
    server_wait_for(1, 1);
    int64_t began_us = dlock__now_us();
    dlock__resolver_free(resolver);
    assert_true(dlock__now_us() - began_us < GENEROUS_US);
    server_set("192.0.2.1", NULL, 0, false);
    server_wait_for(1, 0);
}

struct caller {
    struct dlock__resolver *resolver;
    struct dlock__addresses *addresses;
    int rc;
};

static void *call(void *arg) {
    struct caller *caller = arg;
    caller->rc = dlock__resolve(caller->resolver, dlock__now_us() + LONG_US, true, &caller->addresses, NULL);
    return NULL;
}

TEST(callers_at_once_share_one_look_up) {
    enum { N = 8 };
    struct caller callers[N];
    pthread_t threads[N];
    server_set("192.0.2.1", "::1", 0, true);
    struct dlock__resolver *resolver = resolver_of("x://a.test");
    for (int i = 0; i < N; i++) {
        callers[i] = (struct caller){.resolver = resolver, .rc = 1};
        assert_int_equal(pthread_create(&threads[i], NULL, call, &callers[i]), 0);
    }
    server_wait_for(1, 1);
    usleep(20000);
    server_set("192.0.2.1", "::1", 0, false);
    for (int i = 0; i < N; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(callers[i].rc, DLOCK_OK);
        assert_int_equal(callers[i].addresses->n, 2);
        free(callers[i].addresses);
    }
    assert_int_equal(server_asked(), 1);
    dlock__resolver_free(resolver);
}

/* ---- hosts that servers announce --------------------------------------------------------------------------------- */

static void expect_announced(struct dlock__resolver *resolver, const char *host, bool lookup, const char *expected) {
    struct dlock__addresses *addresses = NULL;
    struct dlock_error err = {0};
    if (dlock__resolve_announced(resolver, host, 7, dlock__now_us() + LONG_US, lookup, &addresses, &err) != DLOCK_OK)
        fail_msg("%s instead of %s", err.message, expected);
    assert_int_equal(addresses->n, 1);
    assert_string_equal(addresses->hosts[0].host, host);
    assert_string_equal(addresses->hosts[0].address, expected);
    assert_int_equal(addresses->hosts[0].port, 7);
    free(addresses);
}

/* Each time, since a server that was restarted may have the same name and another address. */
TEST(an_announced_name_is_looked_up_each_time) {
    struct dlock__resolver *resolver = resolver_of("x://192.0.2.9");
    server_set("192.0.2.1", NULL, 0, false);
    expect_announced(resolver, "a.test", true, "192.0.2.1");
    server_set("192.0.2.2", NULL, 0, false);
    expect_announced(resolver, "a.test", true, "192.0.2.2");
    expect_announced(resolver, "192.0.2.3", true, "192.0.2.3");
    assert_int_equal(server_asked(), 2);
    server_set(NULL, NULL, EAI_AGAIN, false);
    expect_announced(resolver, "a.test", true, "192.0.2.2");
    expect(resolver, "192.0.2.9=192.0.2.9:0");
    dlock__resolver_free(resolver);
}

/* It begins the look-up itself, since no other thread may ever need the name. */
TEST(the_renewal_path_never_waits_for_an_announced_name) {
    struct dlock__resolver *resolver = resolver_of("x://192.0.2.9");
    struct dlock__addresses *addresses = NULL;
    struct dlock_error err = {0};
    server_set("192.0.2.1", NULL, 0, true);
    const int64_t began_us = dlock__now_us(), until_us = began_us + LONG_US;
    assert_int_equal(dlock__resolve_announced(resolver, "a.test", 7, until_us, false, &addresses, &err),
                     DLOCK_EUNAVAILABLE);
    assert_non_null(strstr(err.message, "\"a.test\""));
    assert_true(dlock__now_us() - began_us < GENEROUS_US);
    server_set("192.0.2.1", NULL, 0, false);
    server_wait_for(1, 0);
    while (dlock__resolve_announced(resolver, "a.test", 7, until_us, false, &addresses, &err) != DLOCK_OK) usleep(100);
    free(addresses);
    server_set("192.0.2.2", NULL, 0, true);
    expect_announced(resolver, "a.test", false, "192.0.2.1");
    server_set("192.0.2.2", NULL, 0, false);
    dlock__resolver_free(resolver);
}

/* However many names a server announces. */
TEST(old_announced_names_are_forgotten) {
    struct dlock__resolver *resolver = resolver_of("x://192.0.2.9");
    struct dlock__addresses *addresses = NULL;
    server_set("192.0.2.1", NULL, 0, false);
    expect_announced(resolver, "first.test", true, "192.0.2.1");
    server_set(NULL, NULL, EAI_AGAIN, false);
    for (int i = 0; i < 300; i++) {
        char host[24];
        snprintf(host, sizeof host, "192.0.2.%d", i % 250);
        assert_int_equal(dlock__resolve_announced(resolver, host, i + 1, 0, true, &addresses, NULL), DLOCK_OK);
        free(addresses);
        if (i == 100) expect_announced(resolver, "first.test", true, "192.0.2.1");
    }
    assert_int_equal(dlock__resolve_announced(resolver, "first.test", 7, 0, false, &addresses, NULL),
                     DLOCK_EUNAVAILABLE);
    dlock__resolver_free(resolver);
}

static int begin(void **state) {
    (void)state;
    return pthread_key_create(&kept, give_back);
}

TESTS(reset, reset, begin, NULL)
