/* The memory that a client shares with its guardian. */
#include "state/guard_table.h"

#include "support/clock.h"
#include "support/test.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static char *const environment[] = {(char *)"HOME=/nowhere", (char *)"EMPTY=", NULL};

static struct dlock__guard_table *make(int *fd) {
    struct dlock__guard_table *table = dlock__guard_table_new("redis://:secret@h", environment, fd);
    assert_non_null(table);
    return table;
}

/* A new entry in the order that the client keeps. */
static uint32_t add(struct dlock__guard_table *table, const char *name) {
    uint32_t number = dlock__guard_table_grow(table);
    if (number == 0) return 0;
    struct dlock__guard_entry *entry = dlock__guard_entry(table, number);
    snprintf(entry->name, sizeof entry->name, "%s", name);
    atomic_store(&entry->used, 1);
    return number;
}

TEST(both_sides_see_the_same) {
    int fd;
    struct dlock__guard_table *table = make(&fd), *other = dlock__guard_table_map(fd);
    assert_non_null(other);
    assert_string_equal(other->texts, "redis://:secret@h");
    assert_string_equal(other->texts + sizeof "redis://:secret@h", "HOME=/nowhere");
    assert_int_equal(add(table, "first"), 1);
    assert_string_equal(dlock__guard_entry(other, 1)->name, "first");
    assert_int_equal(atomic_load(&other->n_entries), 1);
    dlock__guard_table_free(other);
    dlock__guard_table_free(table);
    close(fd);
}

TEST(it_grows_to_its_end_and_no_further) {
    int fd;
    struct dlock__guard_table *table = make(&fd);
    uint32_t last = 0;
    for (uint32_t number; (number = add(table, "x")) != 0; last = number) assert_int_equal(number, last + 1);
    assert_int_equal(last, table->capacity);
    assert_true(last >= 100000);
    assert_string_equal(dlock__guard_entry(table, last)->name, "x");
    dlock__guard_table_free(table);
    close(fd);
}

/* Memory is taken as entries are used: a client with one lock pays for one. */
TEST(unused_room_costs_nothing) {
    char line[256];
    long shared = -1, kb;
    int fd;
    struct dlock__guard_table *table = make(&fd);
    add(table, "x");
    FILE *status = fopen("/proc/self/status", "re");
    assert_non_null(status);
    while (fgets(line, sizeof line, status))
        if (sscanf(line, "RssShmem: %ld", &kb) == 1) shared = kb;
    fclose(status);
    assert_in_range(shared, 0, 256);
    dlock__guard_table_free(table);
    close(fd);
}

TEST(a_copy_has_everything_but_the_old_helper) {
    int fd, second_fd;
    struct dlock__guard_table *table = make(&fd);
    for (int i = 0; i < 1000; i++) add(table, "x");
    atomic_store(&table->group.number, 42);
    atomic_store(&dlock__guard_entry(table, 7)->group.number, 43);
    atomic_store(&table->helper, 1);
    atomic_store(&table->closed, 1);
    struct dlock__guard_table *copy = dlock__guard_table_copy(table, &second_fd);
    assert_non_null(copy);
    dlock__guard_table_free(table);
    assert_string_equal(copy->texts, "redis://:secret@h");
    assert_string_equal(dlock__guard_entry(copy, 1000)->name, "x");
    assert_int_equal(add(copy, "y"), 1001);
    assert_int_equal(atomic_load(&copy->group.number), 42);
    assert_int_equal(atomic_load(&dlock__guard_entry(copy, 7)->group.number), 43);
    assert_int_equal(atomic_load(&copy->helper), 0);
    assert_int_equal(atomic_load(&copy->closed), 0);
    dlock__guard_table_free(copy);
    close(fd);
    close(second_fd);
}

TEST(what_is_no_table_is_refused) {
    char zeros[4096] = "";
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_null(dlock__guard_table_map(fileno(file)));
    assert_int_equal(fwrite(zeros, sizeof zeros, 1, file), 1);
    fflush(file);
    assert_null(dlock__guard_table_map(fileno(file)));
    assert_null(dlock__guard_table_map(-1));
    fclose(file);
}

/* Under limits a table is smaller, and the kernel's SIGXFSZ does not end the process. Returns a child's status. */
static int under_limit(int resource, rlim_t limit, bool expected) {
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit limits = {limit, limit};
        int fd;
        if (setrlimit(resource, &limits) != 0) _exit(2);
        struct dlock__guard_table *table = dlock__guard_table_new("file:", environment, &fd);
        if (!table) _exit(expected ? 3 : 0);
        _exit(expected && add(table, "x") == 1 ? 0 : 4);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

TEST(limits_make_it_smaller) {
    assert_int_equal(under_limit(RLIMIT_FSIZE, 1 << 20, true), 0);
    assert_int_equal(under_limit(RLIMIT_FSIZE, 4096, false), 0);
    assert_int_equal(under_limit(RLIMIT_NOFILE, 0, false), 0);
}

/* A forked child has nothing of it: neither to touch nor to keep alive. */
TEST(a_forked_child_does_not_have_it) {
    int fd, status;
    struct dlock__guard_table *table = make(&fd);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        FILE *maps = fopen("/proc/self/maps", "re");
        char line[512];
        while (maps && fgets(line, sizeof line, maps))
            if (strstr(line, "memfd:dlock-guardian")) _exit(1);
        _exit(maps ? 0 : 2);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    dlock__guard_table_free(table);
    close(fd);
}

TESTS(NULL, NULL, NULL, NULL)
