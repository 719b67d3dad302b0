/* Lock files with arbitrary contents, and files with arbitrary names in the locks' directory. A record that is written
 * must be read again, whatever the file contained before. The first line of the input is the name of the lock, the rest
 * is its file. */
#include "operate.h"

#include <file.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void check_plain(const char *text, size_t size, const char *what) {
    fuzz_require(strnlen(text, size) < size, what);
    for (const char *p = text; *p; p++) fuzz_require((unsigned char)*p >= 0x20 && *p != 0x7f, what);
}

/* Checks the conversion of the name. True: no lock can have this name. */
static bool check_name(const char *name) {
    struct file_conn *conn = calloc(1, sizeof *conn);
    char file[FILE_NAME_SIZE], again[FILE_NAME_SIZE];
    bool cut = false;
    if (!conn) abort();
    conn->file_name_size = FILE_NAME_SIZE;
    if (file_name_decode(conn, name, file, &cut)) {
        check_plain(file, sizeof file, "the name of a lock");
        file_name_encode(conn, file, again);
        fuzz_require(strcmp(again, name) == 0, "one file for a name");
    }
    bool none = *name == '\0' || strlen(name) > 255;
    for (const char *p = name; *p; p++) none = none || (unsigned char)*p < 0x20 || *p == 0x7f;
    if (!none) {
        file_name_encode(conn, name, file);
        fuzz_require(*file && *file != '.' && !strchr(file, '/'), "a file in the directory");
        if (file_name_decode(conn, file, again, &cut)) fuzz_require(strcmp(again, name) == 0, "one name for a file");
    }
    free(conn);
    return none;
}

static void check_record(int fd, enum file_content content) {
    struct file_record record;
    uint64_t fence;
    fuzz_require(file_record_read(fd, &record) == content, "a file that is what it was");
    fuzz_require(record.fence >> 55 == 0, "a record's fence");
    check_plain(record.token, sizeof record.token, "a record's token");
    check_plain(record.name, sizeof record.name, "a record's name");
    fuzz_require(file_fence_read(fd, &fence) == content, "a file that is what it is");
    fuzz_require(fence == record.fence || fence == 0, "one fence, or none where it does not stand as we write it");
}

static void check_seat(int fd, const char *name, uint32_t at) {
    struct file_seat seat;
    file_seat_read(fd, name, at, &seat);
    fuzz_require(seat.fence >> 55 == 0, "a seat's fence");
    check_plain(seat.token, sizeof seat.token, "a seat's token");
}

static void check_writing(int fd, const char *name) {
    static const struct file_conn conn = {.size_limit = RLIM_INFINITY};
    const struct file_seat permit = {.limit = UINT32_MAX, .fence = 7, .token = FUZZ_CLIENT ".1@host:1"};
    struct file_record record;
    struct file_seat seat;
    if (file_record_write(&conn, fd, 4711, FUZZ_CLIENT ".2@host:2", name) != 0) abort();
    fuzz_require(file_record_read(fd, &record) == FILE_RECORD && record.fence == 4711, "a fence that was written");
    fuzz_require(strcmp(record.token, FUZZ_CLIENT ".2@host:2") == 0 && strcmp(record.name, name) == 0,
                 "a record that was written");
    if (file_seat_write(&conn, fd, name, 1, &permit) != 0) abort();
    file_seat_read(fd, name, 1, &seat);
    fuzz_require(seat.limit == permit.limit && seat.fence == permit.fence && strcmp(seat.token, permit.token) == 0,
                 "a seat that was written");
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    char name[300] = "";
    const unsigned char *end = size ? memchr(data, '\n', size) : NULL;
    if (!end || (size_t)(end - data) >= sizeof name || memchr(data, '\0', (size_t)(end - data))) return 0;
    memcpy(name, data, (size_t)(end - data));
    size -= (size_t)(end - data) + 1;
    bool none = check_name(name);
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, end + 1, size) != (ssize_t)size) abort();
    struct file_record record;
    check_record(fd, file_record_read(fd, &record));
    for (uint32_t seat = 0; seat < 3; seat++) check_seat(fd, name, seat);
    if (!none) check_writing(fd, name);
    close(fd);
    return 0;
}
