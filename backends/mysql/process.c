/* What libmariadb and OpenSSL do to the whole process. SIGPIPE: libmariadb ignores it from its initialization on, and can
 * raise it over TLS. And exit(): it would free OpenSSL's state while dlock's threads still run. */
#include "maria.h"

#include <errno.h>
#include <openssl/crypto.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Keeps the program's own action, which its other files and the programs that it starts may need. OpenSSL's first user
 * decides what exit() does. */
static void begin(void) {
    struct sigaction before;
    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
    sigaction(SIGPIPE, NULL, &before);
    mysql_server_init(0, NULL, NULL); /* if it fails, so does mysql_init() */
    sigaction(SIGPIPE, &before, NULL);
}

void maria_begin_library(void) {
    pthread_once(&once, begin);
}

/* Needed for TLS only: OpenSSL writes without MSG_NOSIGNAL, libmariadb itself sends with it. */
void maria_signals_off(const struct maria *maria, struct maria_signals *signals) {
    sigset_t pipe, pending;
    if (!maria->tls) return;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&pending);
    signals->pending = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe, &signals->before);
}

void maria_signals_on(const struct maria *maria, const struct maria_signals *signals) {
    static const struct timespec now = {0, 0};
    sigset_t pipe;
    if (!maria->tls) return;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    while (!signals->pending && sigtimedwait(&pipe, NULL, &now) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &signals->before, NULL);
}
