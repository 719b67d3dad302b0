#include "pair.h"

void pair_new(int port, const char *session) {
    link_new(&one, port, session, 'a');
    link_new(&two, port, session, 'b');
}

int pair_begin(void **state) {
    (void)state;
    pair_new(shared_port(), "10s");
    return 0;
}
