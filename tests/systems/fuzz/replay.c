/* Runs a fuzz target with the files of folders as inputs, without libFuzzer, so that it works with any compiler. */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static int replay(const char *path) {
    static unsigned char data[64 * 1024];
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return -1;
    }
    size_t size = fread(data, 1, sizeof data, file);
    fclose(file);
    printf("%s\n", path);
    fflush(stdout); /* if the target aborts, the last line names the input */
    return LLVMFuzzerTestOneInput(data, size);
}

/* Returns the number of files, or -1. */
static int replay_all(const char *folder) {
    struct dirent **entries;
    int n = scandir(folder, &entries, NULL, alphasort), files = 0;
    if (n < 0) perror(folder);
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.' && files >= 0) files = replay(path) == 0 ? files + 1 : -1;
        free(entries[i]);
    }
    if (n >= 0) free(entries);
    return n < 0 ? -1 : files;
}

int main(int argc, char **argv) {
    int status = argc < 2;
    for (int i = 1; i < argc; i++)
        if (replay_all(argv[i]) <= 0) status = 1;
    return status;
}
