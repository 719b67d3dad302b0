/* Converts lock names to file names and back.
 *
 * A lock's file has the lock's own name, so that people find it and can use flock(1) on it by hand. '%', '/' and a
 * leading dot are percent-encoded: so no name means ".", ".." or a file outside the directory, and file names with a
 * leading dot are free for temporary files. A name that is too long for the file system is cut and ends in the hash of
 * the whole name.
 *
 * SPDX-License-Identifier: MIT
 */
#include "file.h"

void file_name_encode(const struct file_conn *conn, const char *name, char file[FILE_NAME_SIZE]) {
    size_t used = 0;
    if (*name == '.') {
        memcpy(file, "%2E", 3);
        used = 3;
        name++;
    }
    dlock_encode_name(file + used, conn->file_name_size - used, name, "/", false);
}

bool file_name_decode(const struct file_conn *conn, const char *file, char name[FILE_NAME_SIZE], bool *cut) {
    char again[FILE_NAME_SIZE];
    size_t length = strlen(file);
    if (cut) *cut = false;
    if (length == 0 || length >= conn->file_name_size) return false;
    /* A cut name leaves at most two bytes unused, when an encoded byte did not fit. */
    if (length + 3 >= conn->file_name_size && file[length - 17] == '~' &&
        strspn(file + length - 16, "0123456789ABCDEF") == 16) {
        if (cut) *cut = true;
        return false;
    }
    if (!dlock_decode_name(name, FILE_NAME_SIZE, file)) return false;
    file_name_encode(conn, name, again);
    return strcmp(again, file) == 0;
}
