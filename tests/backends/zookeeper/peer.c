/* dlock at the command of interop_test.py: peer URI NAME KIND, where KIND is write, read or permits:LIMIT; then one command
 * a line on stdin. */
#include <dlock/dlock.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct dlock_error err;
static struct dlock_options options = DLOCK_OPTIONS_INIT;

static const char *failed(const char *what) {
    static char answer[640];
    snprintf(answer, sizeof answer, "%.100s: %.500s", what, err.code ? err.message : strerror(errno));
    return answer;
}

/* A writer is alone, a reader sees no writer, and there are never more permits than there may be. */
static bool all_right(const char *folder) {
    unsigned inside = 0, writers = 0;
    DIR *dir = opendir(folder);
    if (!dir) return false;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.') continue;
        inside++;
        if (entry->d_name[0] == 'w') writers++;
    }
    closedir(dir);
    if (options.mode == DLOCK_SHARED) return writers == 0;
    return inside <= (options.mode == DLOCK_PERMIT ? options.limit : 1);
}

/* While the lock is held a file in the folder says so. */
static const char *visit(const char *folder) {
    char inside[300];
    snprintf(inside, sizeof inside, "%s/%c%d", folder, "wrp"[options.mode], (int)getpid());
    int fd = open(inside, O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return failed(inside);
    close(fd);
    bool before = all_right(folder);
    usleep(2000);
    bool after = all_right(folder);
    if (unlink(inside) != 0) return failed(inside);
    return before && after ? NULL : "not alone";
}

static const char *loop(dlock_lock *lock, int rounds, const char *folder) {
    uint64_t fence = 0;
    for (int i = 0; i < rounds; i++) {
        if (dlock_acquire(lock, 60000, &err) != 0) return failed("acquire");
        if (dlock_fence(lock) <= fence) return "the fence did not grow";
        fence = dlock_fence(lock);
        const char *wrong = visit(folder);
        if (dlock_release(lock, &err) != 0) return failed("release");
        if (wrong) return wrong;
    }
    return "done";
}

static const char *obey(dlock_lock *lock, char *line) {
    char folder[256];
    int rounds;
    line[strcspn(line, "\n")] = '\0';
    memset(&err, 0, sizeof err);
    if (strcmp(line, "take") == 0) return dlock_acquire(lock, 60000, &err) == 0 ? "held" : failed(line);
    if (strcmp(line, "try") == 0) return dlock_acquire(lock, 0, &err) == 0 ? "held" : failed(line);
    if (strcmp(line, "free") == 0) return dlock_release(lock, &err) == 0 ? "freed" : failed(line);
    if (strcmp(line, "downgrade") == 0) return dlock_downgrade(lock, &err) == 0 ? "downgraded" : failed(line);
    if (sscanf(line, "loop %d %255s", &rounds, folder) == 2) return loop(lock, rounds, folder);
    return "unknown";
}

int main(int argc, char **argv) {
    char line[512];
    dlock_client *client;
    dlock_lock *lock;
    if (argc != 4) return 64;
    if (strcmp(argv[3], "read") == 0) options.mode = DLOCK_SHARED;
    if (sscanf(argv[3], "permits:%u", &options.limit) == 1) options.mode = DLOCK_PERMIT;
    if (dlock_open(argv[1], NULL, &client, &err) != 0 || dlock_new(client, argv[2], &options, &lock, &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        puts(obey(lock, line));
        fflush(stdout);
    }
    dlock_free(lock);
    dlock_close(client);
    return 0;
}
