/* Beside clients that know nothing of dlock: libmemcached's add and cas, and a shell with nothing but a socket. */
#include "library.h"
#include "support/group.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static memcached_st *library(bool binary) {
    memcached_st *library = library_new(server.port);
    memcached_behavior_set(library, MEMCACHED_BEHAVIOR_BINARY_PROTOCOL, binary);
    return library;
}

static memcached_return_t add(memcached_st *library, const char *name) {
    return memcached_add(library, name, strlen(name), "library", 7, 30, 0);
}

/* ---- libmemcached ------------------------------------------------------------------------------------------------ */

TEST(the_library_and_dlock_exclude_each_other) {
    for (int binary = 0; binary <= 1; binary++) {
        memcached_st *other = library(binary);
        struct held mine;
        struct link link;
        link_to(&link, server.port, 'a');
        claim_init(&mine, binary ? "both.binary" : "both.text", 'a', 1);
        assert_int_equal(acquire(&link, &mine), 0);
        assert_int_equal(add(other, mine.claim.name), binary ? MEMCACHED_DATA_EXISTS : MEMCACHED_NOTSTORED);
        assert_true(library_id(other, mine.claim.name, mine.token) == mine.claim.state[0]);
        assert_int_equal(release(&link, &mine), 0);
        assert_int_equal(add(other, mine.claim.name), MEMCACHED_SUCCESS);
        assert_int_equal(acquire(&link, &mine), DLOCK_EBUSY);
        assert_int_equal(renew(&link, &mine), DLOCK_ELOST);
        assert_int_equal(release(&link, &mine), DLOCK_ELOST);
        assert_int_equal(memcached_cas(other, mine.claim.name, strlen(mine.claim.name), "", 0, 2592001, 0,
                                       library_id(other, mine.claim.name, "library")),
                         MEMCACHED_SUCCESS);
        assert_int_equal(acquire(&link, &mine), 0);
        link_end(&link);
        memcached_free(other);
    }
}

/* An old id must not renew, release or take over anything. */
TEST(the_librarys_old_id_does_nothing) {
    memcached_st *other = library(false);
    struct held mine;
    struct link link;
    uint64_t id;
    link_to(&link, server.port, 'a');
    claim_init(&mine, "old.id", 'a', 1);
    assert_int_equal(acquire(&link, &mine), 0);
    id = library_id(other, "old.id", mine.token);
    assert_int_equal(renew(&link, &mine), 0);
    assert_int_equal(memcached_cas(other, "old.id", 6, "thief", 5, 30, 0, id), MEMCACHED_DATA_EXISTS);
    assert_int_equal(renew(&link, &mine), 0);
    link_end(&link);
    memcached_free(other);
}

/* ---- contention -------------------------------------------------------------------------------------------------- */

enum { ROUNDS = 60 };

static char counter[80];

static long read_counter(void) {
    long number = -1;
    FILE *in = fopen(counter, "r");
    assert_non_null(in);
    assert_int_equal(fscanf(in, "%ld", &number), 1);
    fclose(in);
    return number;
}

static void write_counter(long number) {
    FILE *out = fopen(counter, "w");
    assert_non_null(out);
    fprintf(out, "%ld\n", number);
    fclose(out);
}

static void *by_dlock(void *arg) {
    struct held held;
    struct link link;
    uint64_t last = 0;
    link_to(&link, server.port, 'a');
    claim_init(&held, arg, 'a', 1);
    for (int i = 0; i < ROUNDS; i++) {
        while (acquire(&link, &held) == DLOCK_EBUSY) sleep_ms(1 + i % 7);
        assert_int_equal(held.claim.result, 0);
        assert_true(held.claim.fence > last);
        last = held.claim.fence;
        write_counter(read_counter() + 1);
        if (i % 3 == 0) assert_int_equal(renew(&link, &held), 0);
        assert_int_equal(release(&link, &held), 0);
        sleep_ms(1);
    }
    link_end(&link);
    return NULL;
}

static void *by_library(void *arg) {
    memcached_st *other = library(false);
    const char *name = arg;
    for (int i = 0; i < ROUNDS; i++) {
        memcached_return_t rc;
        while ((rc = add(other, name)) == MEMCACHED_NOTSTORED) sleep_ms(1 + i % 7);
        assert_int_equal(rc, MEMCACHED_SUCCESS);
        write_counter(read_counter() + 1);
        assert_int_equal(memcached_cas(other, name, strlen(name), "", 0, 2592001, 0,
                                       library_id(other, name, "library")),
                         MEMCACHED_SUCCESS);
        sleep_ms(1);
    }
    memcached_free(other);
    return NULL;
}

TEST(dlock_library_and_shell_never_overlap) {
    char name[] = "contended", port[16], rounds[16];
    pthread_t dlock, other;
    int status = -1;
    pid_t shell;
    snprintf(counter, sizeof counter, "%s/counter", server.folder);
    snprintf(port, sizeof port, "%d", server.port);
    snprintf(rounds, sizeof rounds, "%d", ROUNDS);
    write_counter(0);
    shell = fork();
    if (shell == 0) {
        execlp("bash", "bash", DLOCK_SHELL_LOCK, port, name, rounds, counter, (char *)NULL);
        _exit(127);
    }
    assert_int_equal(pthread_create(&dlock, NULL, by_dlock, name), 0);
    assert_int_equal(pthread_create(&other, NULL, by_library, name), 0);
    pthread_join(dlock, NULL);
    pthread_join(other, NULL);
    assert_int_equal(waitpid(shell, &status, 0), shell);
    assert_int_equal(status, 0);
    assert_int_equal(read_counter(), 3 * ROUNDS);
}

TESTS(NULL, NULL, group_begin, group_end)
