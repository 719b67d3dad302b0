/* starved_test SCHEME PORT [KEY VALUE]…: connect's error while the process has no descriptor left. Made for each
 * backend whose client library, or OpenSSL, opens files for a connection; tls_test.sh of the backend runs it. */
#include "support/link.h"
#include "support/starve.h"
#include "support/test.h"

#include <stdlib.h>

static struct uri uri;

static int connect_it(void *arg, struct dlock_error *err) {
    struct link link;
    (void)arg;
    int rc = link_try(&link, &uri.parts, 'a', 0, CONNECTS_MS, err);
    link_end(&link);
    return rc;
}

TEST(no_file_is_blamed) {
    struct dlock_error err = {0};
    if (connect_it(NULL, &err) != 0) fail_msg("%s", err.message);
    assert_true(starve(connect_it, NULL, DLOCK_EUNAVAILABLE, &err) > 0);
}

int main(int argc, char **argv) {
    if (argc < 3 || argc > 11 || backend_load(NULL) != 0) return 64;
    uri_init(&uri, atoi(argv[2]));
    uri.parts.scheme = argv[1];
    if (strncmp(argv[1], "mysql", 5) == 0) {
        uri.parts.path = "/locks";
        uri.parts.user = "dlock";
        uri.parts.password = "secret";
    }
    for (int i = 3; i + 1 < argc; i += 2) uri.param[uri.parts.n_params++] = (struct dlock_param){argv[i], argv[i + 1]};
    return tests_run(1, argv, NULL, NULL, NULL, NULL);
}
