/* The command as one file (DLOCK_SINGLE_FILE) contains the guardian, too: called by the guardian's name, the program is
 * the guardian. The linker puts this in front of the command's main (--wrap). */
#include "guardian/guardian.h"

#include <string.h>

int __real_main(int argc, char **argv);
int __wrap_main(int argc, char **argv);

int __wrap_main(int argc, char **argv) {
    return argc > 0 && strcmp(argv[0], "dlock-guardian") == 0 ? dlock__guardian_main() : __real_main(argc, argv);
}
