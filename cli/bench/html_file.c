#include "bench/html.h"
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Where a page is written. */
struct place {
    char *path;      /* of the file, with symbolic links resolved */
    char *temporary; /* written first, in the same folder; NULL: `path` is a pipe or a terminal and written directly */
    int fd;          /* of `temporary`; -1: none */
};

static int cannot_write(const char *path, int error) {
    note("--html: cannot write \"%s\": %s", path, strerror(error));
    return STATUS_IO;
}

/* Opens the place of a page. False, with errno: no page can be written there. place_free() must follow in any case. */
static bool place_take(struct place *place, const char *path) {
    struct stat there;
    if (!*path) return errno = ENOENT, false; /* strdup() below would make a temporary file of it */
    place->path = realpath(path, NULL);
    if (!place->path && errno == ENOENT) {
        mode_t mask = umask(0);
        umask(mask);
        there.st_mode = S_IFREG | (0666 & ~mask);
        place->path = strdup(path);
    } else if (!place->path || stat(path, &there) != 0 || access(path, W_OK) != 0) {
        return false;
    }
    if (!place->path) return false;
    if (S_ISDIR(there.st_mode)) return errno = EISDIR, false;
    if (!S_ISREG(there.st_mode)) return true;
    size_t size = strlen(place->path) + sizeof ".XXXXXX";
    place->temporary = malloc(size);
    if (!place->temporary) return false;
    snprintf(place->temporary, size, "%s.XXXXXX", place->path);
    place->fd = mkostemp(place->temporary, O_CLOEXEC);
    return place->fd >= 0 && fchmod(place->fd, there.st_mode & 0777) == 0;
}

/* Frees the place, and removes the temporary file unless it was renamed. Keeps errno. */
static void place_free(struct place *place) {
    int error = errno;
    if (place->fd >= 0) {
        close(place->fd);
        unlink(place->temporary);
    }
    free(place->temporary);
    free(place->path);
    errno = error;
}

int bench_html_check(const char *path) {
    struct place place = {NULL, NULL, -1};
    bool fits = place_take(&place, path);
    place_free(&place);
    return fits ? STATUS_OK : cannot_write(path, errno);
}

/* Writes the page to the temporary file, or directly. False on failure, with errno. */
static bool write_page(const struct place *place, const struct bench *bench, char *const *options, size_t n) {
    int fd =
        place->temporary ? fcntl(place->fd, F_DUPFD_CLOEXEC, 0) : open(place->path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    FILE *out = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!out) {
        if (fd >= 0) close(fd);
        return false;
    }
    bench_html(out, bench, options, n);
    bool whole = fflush(out) == 0 && !ferror(out);
    return (fclose(out) == 0) & whole;
}

int bench_html_write(const char *path, const struct bench *bench, char *const *options, size_t n_options) {
    struct place place = {NULL, NULL, -1};
    bool written = place_take(&place, path) && write_page(&place, bench, options, n_options);
    if (written && place.temporary) {
        written = rename(place.temporary, place.path) == 0;
        if (written) {
            close(place.fd);
            place.fd = -1;
        }
    }
    place_free(&place);
    return written ? STATUS_OK : cannot_write(path, errno);
}
