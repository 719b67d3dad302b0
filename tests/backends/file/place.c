#include "place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the directory ---- */

void place_make(char *dir, size_t size) {
    const char *base = getenv("DLOCK_TEST_DIR");
    snprintf(dir, size, "%s/dlock-file-XXXXXX", base ? base : "/tmp");
    assert_non_null(mkdtemp(dir));
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *walk) {
    (void)st;
    (void)type;
    (void)walk;
    return remove(path);
}

static void kill_commands(void);

void place_leave(const char *dir) {
    kill_commands();
    nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

const char *path_in(const char *dir, const char *file) {
    static char paths[3][PATH_MAX];
    static unsigned next;
    char *path = paths[next++ % 3];
    snprintf(path, PATH_MAX, "%s/%s", dir, file);
    return path;
}

void file_put(const char *path, const void *data, size_t size) {
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

size_t file_get(const char *path, char *data, size_t size) {
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    size_t got = fread(data, 1, size - 1, file);
    data[got] = '\0';
    fclose(file);
    return got;
}

/* ---- processes ---- */

enum { COMMANDS = 8 };
static pid_t commands[COMMANDS]; /* running ones; 0: a free place */

int child_end(pid_t pid) {
    int status = 0;
    while (waitpid(pid, &status, 0) < 0) assert_int_equal(errno, EINTR);
    for (size_t i = 0; i < COMMANDS; i++)
        if (commands[i] == pid) commands[i] = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void kill_child(pid_t pid) {
    kill(pid, SIGKILL);
    child_end(pid);
}

void kill_command(pid_t pid) {
    kill(-pid, SIGKILL);
    child_end(pid);
}

static void kill_commands(void) {
    for (size_t i = 0; i < COMMANDS; i++)
        if (commands[i]) kill_command(commands[i]);
}

static void keep_command(pid_t pid) {
    size_t i = 0;
    while (i < COMMANDS && commands[i]) i++;
    assert_true(i < COMMANDS);
    commands[i] = pid;
}

static pid_t spawn(const char *const argv[], int out) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0) return pid;
    setpgid(0, 0);
    if (out >= 0) dup2(out, 1);
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

int command(const char *const argv[]) {
    return child_end(spawn(argv, -1));
}

pid_t command_start(const char *const argv[]) {
    int ends[2];
    char byte;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t pid = spawn(argv, ends[1]);
    keep_command(pid);
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    close(ends[0]);
    return pid;
}

/* ---- measures ---- */

int count_fds(void) {
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;
    assert_non_null(dir);
    while (readdir(dir)) n++;
    closedir(dir);
    return n;
}
