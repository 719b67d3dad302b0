/* file-vtable GROUP: the tests of GROUP_test.c. */
#include "fixture.h"

int main(int argc, char **argv) {
    if (argc == 2) return tests_run_of(argv[1], world_begin, world_end);
    fprintf(stderr, "usage: file-vtable GROUP\n");
    return 64;
}
