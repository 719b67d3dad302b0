/* file-vtable GROUP: the tests of one group. */
#include "fixture.h"

#define GROUPS(X) \
    X(locks)      \
    X(shared)     \
    X(permits)    \
    X(linger)     \
    X(cache)      \
    X(calls)      \
    X(names)      \
    X(records)    \
    X(directory) X(rights) X(check) X(inspect) X(wake) X(line) X(break) X(flock) X(fork) X(threads)

#define DECLARE(group) int group##_tests(void);
GROUPS(DECLARE)

static const struct {
    const char *name;
    int (*run)(void);
} groups[] = {
#define LIST(group) {#group, group##_tests},
    GROUPS(LIST)};

int main(int argc, char **argv) {
    for (size_t i = 0; argc == 2 && i < sizeof groups / sizeof *groups; i++)
        if (strcmp(argv[1], groups[i].name) == 0) return groups[i].run();
    fprintf(stderr, "usage: file-vtable GROUP\n");
    return 64;
}
