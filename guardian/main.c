/* dlock-guardian: the helper process behind guardian=on. All of it is in the library, whose backends it uses. */
#include "guardian/guardian.h"

int main(void) {
    return dlock__guardian_main();
}
