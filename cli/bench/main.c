/* dlock-bench: the program behind `dlock bench`.
 *
 * SPDX-License-Identifier: MIT
 */
#include "cli.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    fill_streams();
    int status = STATUS_OK;
    if (argc > 1 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0))
        printf("dlock-bench %s\n", dlock_version());
    else
        status = command_bench.run(argc, argv);
    return finish_streams(status);
}
