/* dlock at the command of interop.py: peer URI NAME, then one command a line on stdin. */
#include <dlock/dlock.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct dlock_error err;

static const char *failed(const char *what) {
    static char answer[640];
    snprintf(answer, sizeof answer, "%.100s: %.500s", what, err.code ? err.message : strerror(errno));
    return answer;
}

static const char *count_up(const char *folder) {
    char inside[512], count[512];
    int seen = -1;
    snprintf(inside, sizeof inside, "%s/inside", folder);
    snprintf(count, sizeof count, "%s/count", folder);
    int fd = open(inside, O_CREAT | O_EXCL | O_CLOEXEC, 0600); /* fails when somebody else is inside */
    if (fd < 0) return failed(inside);
    close(fd);
    FILE *file = fopen(count, "r+");
    if (!file || fscanf(file, "%d", &seen) != 1) return failed(count);
    usleep(2000);
    rewind(file);
    fprintf(file, "%d\n", seen + 1);
    if (fclose(file) != 0 || unlink(inside) != 0) return failed(count);
    return NULL;
}

static const char *loop(dlock_lock *lock, int rounds, const char *folder) {
    uint64_t fence = 0;
    for (int i = 0; i < rounds; i++) {
        if (dlock_acquire(lock, 60000, &err) != 0) return failed("acquire");
        if (dlock_fence(lock) <= fence) return "the fence did not grow";
        fence = dlock_fence(lock);
        const char *wrong = count_up(folder);
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
    if (strcmp(line, "free") == 0) return dlock_release(lock, &err) == 0 ? "freed" : failed(line);
    if (sscanf(line, "loop %d %255s", &rounds, folder) == 2) return loop(lock, rounds, folder);
    return "unknown";
}

int main(int argc, char **argv) {
    char line[512];
    dlock_client *client;
    dlock_lock *lock;
    if (argc != 3) return 64;
    if (dlock_open(argv[1], NULL, &client, &err) != 0 || dlock_new(client, argv[2], NULL, &lock, &err) != 0) {
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
