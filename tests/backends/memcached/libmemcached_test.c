/* Why the backend has its own client: the behaviour of the installed libmemcached where a lock depends on it.
 *
 * Each test shows one thing for which <dlock/backend.h> has no room, and fails when the library does it no more: then
 * read the head of backends/memcached/memcached.h again, and reconsider the decision. As found in 1.1.4, which is the
 * library of Debian 12 and 13; the version that is installed is printed. */
#include "library.h"
#include "support/fake.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* A client that goes by time as far as it can be told to. */
static memcached_st *bounded(int port, int timeout_ms) {
    memcached_st *library = library_new(port);
    memcached_behavior_set(library, MEMCACHED_BEHAVIOR_CONNECT_TIMEOUT, (uint64_t)timeout_ms);
    memcached_behavior_set(library, MEMCACHED_BEHAVIOR_POLL_TIMEOUT, (uint64_t)timeout_ms);
    memcached_behavior_set(library, MEMCACHED_BEHAVIOR_RCV_TIMEOUT, (uint64_t)timeout_ms * 1000);
    memcached_behavior_set(library, MEMCACHED_BEHAVIOR_SND_TIMEOUT, (uint64_t)timeout_ms * 1000);
    return library;
}

static int print_version(void **state) {
    print_message("libmemcached %s\n", memcached_lib_version());
    return backend_load(state);
}

#define NO_MORE(what)                                                                                             \
    fail_msg("libmemcached %s " what ": read the head of backends/memcached/memcached.h again, and decide again", \
             memcached_lib_version())

/* ---- what it was not told to expect ------------------------------------------------------------------------------ */

/* The signal that ends a process which adds an item and is told `answer`; 0: none. */
static int add_and_hear(const char *answer) {
    struct fake fake = {.greeting = {answer}, .answers = FAKE_SAYS(answer)};
    int status = 0;
    fake_start(&fake);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGABRT, SIG_DFL);
        signal(SIGSEGV, SIG_DFL);
        fclose(stderr);
        memcached_st *client = bounded(fake.port, TIMEOUT_MS);
        memcached_add(client, "lock", 4, "token", 5, 10, 0);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    fake_stop(&fake);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

/* A server that is none, or an answer that comes one request too late, ends the application. */
TEST(an_answer_may_end_the_program) {
    static const char *const answers[] = {"220 mail.example ESMTP\r\n",
                                          "OK\r\n",
                                          "VERSION\r\n",
                                          "VERSION 1.6.18\r\n",
                                          "ITEM\r\n",
                                          "TOUCHED\r\n",
                                          "5\r\n",
                                          "STAT a b\r\n",
                                          "DELETED\r\n",
                                          "END\r\n",
                                          "HD\r\n",
                                          "NOT_FOUND\r\n"};
    const int n = sizeof answers / sizeof *answers;
    int ended = 0;
    for (int i = 0; i < n; i++) {
        const int by = add_and_hear(answers[i]);
        if (by)
            print_message("  to an add the server says \"%.*s\": %s\n", (int)strcspn(answers[i], "\r"), answers[i],
                          strsignal(by));
        if (by) ended++;
    }
    print_message("  %d of %d answers end the program\n", ended, n);
    if (ended == 0) NO_MORE("survives the answers that ended the program");
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

/* A byte at a time, each of them in time. The server's pauses alone are three times as long as what the client was
 * given, so if the answer is read to its end there was no deadline for it. */
TEST(a_time_out_begins_anew_with_each_byte) {
    static const char answer[] = "VALUE lock 0 20 5\r\n01234567890123456789\r\nEND\r\n";
    enum { GIVEN_MS = 1500, PAUSE_MS = 3 * GIVEN_MS / ((int)sizeof answer - 1) + 1 };
    struct fake fake = {.greeting = {answer}, .drip_ms = PAUSE_MS, .drip_greeting = true};
    memcached_return_t rc;
    uint32_t flags;
    size_t length;
    fake_start(&fake);
    memcached_st *client = bounded(fake.port, GIVEN_MS);
    int64_t begin = now_ms();
    char *value = memcached_get(client, "lock", 4, &length, &flags, &rc);
    print_message("  a get that may take %d ms ended after %lld ms: %s\n", GIVEN_MS, (long long)(now_ms() - begin),
                  memcached_strerror(client, rc));
    free(value);
    memcached_free(client);
    fake_stop(&fake);
    if (rc != MEMCACHED_SUCCESS) NO_MORE("has a deadline for a whole answer");
}

/* ---- connections ------------------------------------------------------------------------------------------------- */

static memcached_return_t keep(memcached_st *library, const char *token, uint64_t id) {
    return memcached_cas(library, "lock", 4, token, strlen(token), 100, 0, id);
}

/* Takes the lock and renews it; returns its id. */
static uint64_t take(memcached_st *library, const char *token) {
    assert_int_equal(memcached_add(library, "lock", 4, token, strlen(token), 100, 0), MEMCACHED_SUCCESS);
    assert_int_equal(keep(library, token, library_id(library, "lock", token)), MEMCACHED_SUCCESS);
    return library_id(library, "lock", token);
}

/* The server is restarted between two renewals, and another client takes the lock; ids start again, so it gets the same
 * one. Nothing tells the first holder that its connection is a new one. */
TEST(a_silent_reconnect_overwrites_another_lock) {
    enum { TRIES = 5 };
    struct server server;
    memcached_return_t rc = MEMCACHED_FAILURE;
    server_start(&server, NULL);
    memcached_st *first = bounded(server.port, TIMEOUT_MS), *second = bounded(server.port, TIMEOUT_MS);
    uint64_t id = take(first, "first");
    server_kill(&server);
    server_again(&server, NULL);
    assert_true(take(second, "second") == id); /* the trap is set */
    for (int i = 1; i <= TRIES && rc != MEMCACHED_SUCCESS && rc != MEMCACHED_DATA_EXISTS; i++) {
        rc = keep(first, "first", id);
        print_message("  renewal %d after the restart: %s\n", i, memcached_strerror(first, rc));
    }
    const bool overwritten = strstr(ask(&server, "get lock"), "\r\nfirst\r\n") != NULL;
    memcached_free(first);
    memcached_free(second);
    server_stop(&server);
    if (!overwritten) NO_MORE("does not reconnect by itself");
}

TESTS(NULL, NULL, print_version, NULL)
