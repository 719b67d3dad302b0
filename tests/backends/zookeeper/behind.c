#include "behind.h"

struct proxy *proxy;
struct link far, near;
int64_t linked_ms;

void behind_begin(const char *session) {
    proxy = proxy_new(shared_port());
    link_new(&far, proxy_port(proxy), session, 'a');
    linked_ms = now_ms();
    link_new(&near, shared_port(), "10s", 'b');
}

int behind_end(void **state) {
    (void)state;
    link_end(&far);
    link_end(&near);
    proxy_end(proxy);
    return 0;
}

void warm(const char *name) {
    CLAIM_INIT(held, name, 'b', 999);
    assert_int_equal(acquire(&near, &held), 0);
    assert_int_equal(release(&near, &held), 0);
}
