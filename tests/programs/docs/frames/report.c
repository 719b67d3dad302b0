/* What is around a fragment that makes a report. */
#include <dlock/dlock.h>

#include <stdio.h>
#include <stdlib.h>

static void warn(const char *message) {
    fprintf(stderr, "%s\n", message);
}

static void give_up(const char *message) {
    warn(message);
    exit(1);
}

static void write_report(uint64_t fence) {
    if (fence == 0) give_up("no fence");
    puts("written");
}

int main(void) {
#include BLOCK
    return 0;
}
