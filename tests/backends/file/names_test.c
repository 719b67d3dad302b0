/* Any name is a lock, and every lock a file in the directory. */
#include "fixture.h"

#include <dirent.h>
#include <unistd.h>

static int count_entries(const char *path) {
    DIR *dir = opendir(path);
    int n = 0;
    assert_non_null(dir);
    while (readdir(dir)) n++;
    closedir(dir);
    return n - 2;
}

struct match {
    const char *name, *token;
    int n;
};

static int match(const struct dlock_info *info, void *arg) {
    struct match *found = arg;
    if (strcmp(info->name, found->name) == 0 && strcmp(info->token, found->token) == 0) found->n++;
    return 0;
}

/* One lock and its file; found by inspect and list under its own name. */
static void check_name(const char *name, const char *file) {
    struct dlock_error err;
    struct dlock_claim claim = claim_of(name), second = claim_of(name);
    struct match found = {name, claim.token, 0};
    char cursor[256] = "";
    assert_int_equal(acquire(world->conn, &claim), 0);
    assert_int_equal(acquire(world->conn, &second), DLOCK_EBUSY);
    if (file) assert_int_equal(access(path_of(file), F_OK), 0);
    assert_int_equal(count_entries(world->dir), 1);
    assert_int_equal(FILE_BACKEND->inspect(world->conn, name, match, &found, 1000, &err), 0);
    assert_int_equal(found.n, 1);
    int more;
    do assert_in_range(more = FILE_BACKEND->list(world->conn, "", cursor, match, &found, 1000, &err), 0, 1);
    while (more); /* a page ends after half the time-out */
    assert_int_equal(found.n, 2);
    assert_int_equal(renew(world->conn, &claim), 0);
    give_up(world->conn, &second);
    assert_int_equal(release(world->conn, &claim), 0);
}

static void forget_files(void) {
    DIR *dir = opendir(world->dir);
    struct dirent *entry;
    assert_non_null(dir);
    while ((entry = readdir(dir)))
        if (entry->d_type == DT_REG) unlinkat(dirfd(dir), entry->d_name, 0);
    closedir(dir);
}

TEST(all_kinds) {
    static const struct {
        const char *name, *file;
    } cases[] = {
        {"job", "job"},
        {"nightly report", "nightly report"},
        {" a blank at each end ", " a blank at each end "},
        {"a/b", "a%2Fb"},
        {"/", "%2F"},
        {"../../etc/passwd", "%2E.%2F..%2Fetc%2Fpasswd"},
        {".", "%2E"},
        {"..", "%2E."},
        {".break", "%2Ebreak"},
        {"it's \"quoted\" $HOME `x` \\ *?", "it's \"quoted\" $HOME `x` \\ *?"},
        {"100%", "100%25"},
        {"%2E", "%252E"},
        {"%", "%25"},
        {"-n", "-n"},
        {"blöd 錠 🔒", "blöd 錠 🔒"},
        {"\xff\xfe invalid UTF-8", "\xff\xfe invalid UTF-8"},
        {"job.lock~", "job.lock~"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_name(cases[i].name, cases[i].file);
        forget_files();
    }
}

static void fill_name(char *name, size_t length, const char *pattern, char last) {
    for (size_t i = 0; i < length; i++) name[i] = pattern[i % strlen(pattern)];
    name[length - 1] = last;
    name[length] = '\0';
}

TEST(long_names) {
    static const char *const patterns[] = {"x", "/", "a/", ".", "ü"};
    static const size_t lengths[] = {80, 84, 85, 86, 200, 236, 237, 238, 239, 252, 253, 254, 255};
    char name[256];
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        for (size_t j = 0; j < sizeof lengths / sizeof *lengths; j++) {
            fill_name(name, lengths[j], patterns[i], 'z');
            check_name(name, NULL);
            forget_files();
        }
    }
}

TEST(long_names_stay_apart) {
    char one_name[256], two_name[256];
    fill_name(one_name, 255, "//", '1');
    fill_name(two_name, 255, "//", '2');
    struct dlock_claim one = claim_of(one_name), two = claim_of(two_name);
    assert_int_equal(acquire(world->conn, &one), 0);
    assert_int_equal(acquire(world->conn, &two), 0);
    assert_int_equal(count_entries(world->dir), 2);
    assert_true(is_held(world->conn, one_name));
    assert_int_equal(release(world->conn, &one), 0);
    assert_true(is_held(world->conn, two_name));
    assert_int_equal(release(world->conn, &two), 0);
}
