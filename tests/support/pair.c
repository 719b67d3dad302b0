#include "support/pair.h"

struct link one, two;

int pair_end(void **state) {
    (void)state;
    link_end(&one);
    link_end(&two);
    return 0;
}
