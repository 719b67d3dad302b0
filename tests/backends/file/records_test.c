/* Contents of lock files, ours and others'. */
#include "fixture.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TITLE "dlock lock, format 1\n"

static uint64_t clock_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Puts the bytes into the file and takes the lock: the result, with the fence of a grant. */
static int take_with(const void *data, size_t size, uint64_t *fence) {
    struct dlock_claim claim = claim_of("job");
    file_put(path_of("job"), data, size);
    int result = acquire(world->conn, &claim);
    if (result != 0) return result;
    *fence = claim.fence;
    assert_int_equal(release(world->conn, &claim), 0);
    return 0;
}

/* Damaged, but ours or without an owner: the lock works, and fences follow the clock. */
TEST(damaged) {
#define CASE(text) \
    { text, sizeof text - 1 }
    static const struct {
        const char *data;
        size_t size;
    } cases[] = {
        CASE(""),
        CASE("\n"),
        CASE(" \n \n"),
        CASE("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
        CASE("dlock lock, f"),
        CASE(TITLE),
        CASE(TITLE "fence"),
        CASE(TITLE "fence 12"),
        CASE(TITLE "fence \ntoken \nname  \n"),
        CASE(TITLE "fence 12x\ntoken t\nname  job\n"),
        CASE(TITLE "fence -5\ntoken t\nname  job\n"),
        CASE(TITLE "fence 36028797018963968\ntoken t\nname  job\n"), /* 2^55 */
        CASE(TITLE "fence 18446744073709551615\ntoken t\nname  job\n"),
        CASE(TITLE "fence 99999999999999999999999999999999\ntoken t\nname  job\n"),
        CASE(TITLE "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
        CASE(TITLE "something else\nof several lines\n\n\n\n"),
        CASE(TITLE "token t\nfence 5\nname  job\n"),
        CASE(TITLE "fence 5\ntoken \x01\x02\xff\x7f\nname  \x1b[31mred\n"),
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t fence = 0, before = clock_us();
        assert_int_equal(take_with(cases[i].data, cases[i].size, &fence), 0);
        assert_true(fence >= before && fence <= clock_us());
    }
}

TEST(very_long_lines) {
    static char text[100000];
    uint64_t fence = 0, before = clock_us();
    memset(text, '7', sizeof text);
    memcpy(text, TITLE "fence ", strlen(TITLE "fence "));
    assert_int_equal(take_with(text, sizeof text, &fence), 0);
    assert_true(fence >= before && fence <= clock_us());
}

/* The fence continues from the file's, whatever the clock says. */
TEST(ahead_of_the_clock) {
    char text[200];
    uint64_t fence = 0, ahead = clock_us() + UINT64_C(3600000000);
    snprintf(text, sizeof text, TITLE "fence %llu\ntoken \nname  job\n", (unsigned long long)ahead);
    assert_int_equal(take_with(text, strlen(text), &fence), 0);
    assert_true(fence == ahead + 1);
    struct dlock_claim claim = claim_of("job");
    assert_int_equal(acquire(world->conn, &claim), 0);
    assert_true(claim.fence == ahead + 2);
    assert_int_equal(release(world->conn, &claim), 0);
}

TEST(last_fence) {
    static const char text[] = TITLE "fence 36028797018963966\ntoken \nname  job\n"; /* 2^55 - 2 */
    struct dlock_claim claim = claim_of("job");
    uint64_t fence = 0;
    assert_int_equal(take_with(text, sizeof text - 1, &fence), 0);
    assert_true(fence == (UINT64_C(1) << 55) - 1);
    assert_int_equal(acquire(world->conn, &claim), DLOCK_EINVAL);
    assert_false(claim.state[0]);
}

static void try_foreign(const char *data, size_t size) {
    static char text[10000];
    struct dlock_error err = {0, ""};
    struct dlock_claim claim = claim_of("job"), *one = &claim;
    file_put(path_of("job"), data, size);
    assert_int_equal(FILE_BACKEND->acquire(world->conn, &one, 1, 1000, &err), 0);
    assert_int_equal(claim.result, DLOCK_EINVAL);
    assert_int_equal(err.code, DLOCK_EINVAL);
    assert_non_null(strstr(err.message, path_of("job")));
    assert_int_equal(file_get(path_of("job"), text, sizeof text), size);
    assert_memory_equal(text, data, size);
    int fd = open(path_of("job"), O_RDONLY | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0); /* and it is not left locked */
    close(fd);
}

TEST(foreign_is_left_alone) {
    static char page[4096];
    try_foreign("4242\n", 5);
    try_foreign("d", 1);
    try_foreign("dlock", 5);
    try_foreign("dlock lock, format 2\nfence 1\n", 29);
    try_foreign("# /etc/important\n\n", 18);
    try_foreign("\0\0\0\0x", 5);
    try_foreign(page, sizeof page); /* zeroes for longer than a look: data may follow */
}

/* The file was overwritten while it was held: the text stays, and the lock is still one. */
TEST(written_to_while_held) {
    struct dlock_claim claim = claim_of("job");
    char text[100];
    assert_int_equal(acquire(world->conn, &claim), 0);
    file_put(path_of("job"), "mine now\n", 9);
    assert_int_equal(renew(world->conn, &claim), 0);
    assert_true(is_held(world->conn, "job"));
    assert_int_equal(release(world->conn, &claim), 0);
    file_get(path_of("job"), text, sizeof text);
    assert_string_equal(text, "mine now\n");
}

TEST(not_a_regular_file) {
    struct dlock_claim folder = claim_of("folder"), fifo = claim_of("fifo"), link = claim_of("link"), *of_link = &link;
    struct dlock_error err = {0, ""};
    char text[8];
    assert_int_equal(mkdir(path_of("folder"), 0777), 0);
    assert_int_equal(mkfifo(path_of("fifo"), 0666), 0);
    file_put(path_of("target"), "", 0);
    assert_int_equal(symlink("target", path_of("link")), 0);
    assert_int_equal(acquire(world->conn, &folder), DLOCK_EINVAL);
    assert_int_equal(acquire(world->conn, &fifo), DLOCK_EINVAL);
    assert_int_equal(acquire(world->conn, &link), DLOCK_EINVAL);
    assert_int_equal(FILE_BACKEND->acquire(world->conn, &of_link, 1, 1000, &err), 0);
    assert_non_null(strstr(err.message, "link: it is a symbolic link"));
    assert_int_equal(file_get(path_of("target"), text, sizeof text), 0);
}

/* The kernel would send SIGXFSZ, which ends a process that does not expect it. */
static int under_limits(void *arg) {
    struct dlock_claim job = claim_of("job"), reader = reader_of("job"), *of[] = {&job, &reader};
    struct rlimit before;
    struct stat st;
    (void)arg;
    getrlimit(RLIMIT_FSIZE, &before);
    for (int i = 0; i < 2; i++) {
        struct dlock_error err = {0, ""};
        if (stat(path_of("job"), &st) != 0) return 1; /* empty, then a record without a seat */
        const struct rlimit limit = {(rlim_t)st.st_size, before.rlim_max};
        setrlimit(RLIMIT_FSIZE, &limit);
        void *conn = conn_open(world->dir);
        if (FILE_BACKEND->acquire(conn, &of[i], 1, 1000, &err) != 0 || of[i]->result != DLOCK_ENOMEM) return 2;
        if (!strstr(err.message, "ulimit -f")) return 3;
        conn_close(conn);
        setrlimit(RLIMIT_FSIZE, &before);
        conn = conn_open(world->dir);
        if (is_held(conn, "job")) return 4;
        conn_close(conn);
    }
    return 0;
}

TEST(limit_of_file_sizes) {
    file_put(path_of("job"), "", 0);
    assert_int_equal(child_end(child_start(under_limits, NULL)), 0);
}
