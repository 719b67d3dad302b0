/* dlock-guardian: the helper process behind guardian=on. Its code is in the library, whose backends it uses. */
#include "guardian/guardian.h"

int main(void) {
    return dlock__guardian_main();
}
