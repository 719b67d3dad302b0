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

static int hex_value(char c) {
    const char *at = c ? strchr("0123456789ABCDEF", c) : NULL;
    return at ? (int)(at - "0123456789ABCDEF") : -1;
}

bool file_name_decode(const struct file_conn *conn, const char *file, char name[FILE_NAME_SIZE], bool *cut) {
    char again[FILE_NAME_SIZE];
    size_t length = strlen(file), used = 0;
    if (cut) *cut = false;
    if (length == 0 || length >= conn->file_name_size) return false;
    /* A cut name leaves at most two bytes unused, when an encoded byte did not fit. */
    if (length + 3 >= conn->file_name_size && file[length - 17] == '~' &&
        strspn(file + length - 16, "0123456789ABCDEF") == 16) {
        if (cut) *cut = true;
        return false;
    }
    for (const char *p = file; *p; p++) {
        if (*p == '%') {
            int high = hex_value(p[1]), low = high < 0 ? -1 : hex_value(p[2]);
            if (low < 0) return false;
            name[used++] = (char)(high << 4 | low);
            p += 2;
        } else {
            name[used++] = *p;
        }
        if ((unsigned char)name[used - 1] < 0x20 || name[used - 1] == 0x7f) return false; /* not in lock names */
    }
    name[used] = '\0';
    file_name_encode(conn, name, again);
    return strcmp(again, file) == 0;
}
