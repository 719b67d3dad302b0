/* URIs: which are refused, and why. The members are in this process. */
#include "support/api.h"
#include "support/test.h"

#include <string.h>

TEST(uris_are_refused) {
    static const struct {
        int code;
        const char *uri, *why;
    } bad[] = {
        {DLOCK_EINVAL, "quorum:", "3 members at least"},
        {DLOCK_EINVAL, "quorum:?of=mem:a", "and this one 1"},
        {DLOCK_EINVAL, "quorum:?of=mem:a&of=mem:b", "and this one 2"},
        {DLOCK_EINVAL,
         "quorum:?of=mem:a&of=mem:b&of=mem:c&of=mem:d&of=mem:e&of=mem:f&of=mem:g&of=mem:h&of=mem:i&of=mem:j",
         "9 members at most"},
        {DLOCK_EINVAL, "quorum:?of=mem:a&of=mem:b&of=mem:a", "members 1 and 3 of the quorum are the same"},
        {DLOCK_EINVAL, "quorum://h?of=mem:a&of=mem:b&of=mem:c", "no hosts"},
        {DLOCK_EINVAL, "quorum:x?of=mem:a&of=mem:b&of=mem:c", "no hosts, user, password or path"},
        {DLOCK_EINVAL, "quorum:?of=mem:a&of=mem:b&of=", "member 3 of the quorum: URI: no scheme"},
        {DLOCK_EINVAL, "quorum:?of=mem:a&of=mem:b&of=localhost", "member 3 of the quorum: URI: no scheme"},
        {DLOCK_ENOBACKEND, "quorum:?of=mem:a&of=nosuch:b&of=mem:c", "member 2 of the quorum: no backend"},
        {DLOCK_EINVAL, "quorum:?of=mem:a&of=mem:b%3Fdealy=1&of=mem:c", "did you mean \"delay\""},
        {DLOCK_EINVAL, "quorum:?of=mem:a&of=mem:b%3Flease=1s&of=mem:c", "\"lease\" is not a key of a member"},
        {DLOCK_EINVAL, "quorum:?of=mem:a&of=mem:b%3Ftimeout=1s&of=mem:c", "\"timeout\" is not a key of a member"},
        {DLOCK_EINVAL, "quorum:?of=mem:a&of=mem:b%3Fprefix=x&of=mem:c", "\"prefix\" is not a key of a member"},
        {DLOCK_EINVAL, "quorum:?of=mem:a&of=mem:b%3Flinger=1s&of=mem:c", "\"linger\" is not a key of a member"},
        {DLOCK_EINVAL, "quorum:?of=mem:a&of=mem:b%3Fguardian=on&of=mem:c", "\"guardian\" is not a key of a member"},
        {DLOCK_EINVAL, "quorum:?of=mem:a&of=mem:b%3Fconnections=2&of=mem:c",
         "\"connections\" is not a key of a member"},
        {DLOCK_EINVAL, "quorum:?of=redis%3A%2F%2F:hunter2@h&of=mem:b&of=mem:c",
         "must be in a file: write password_file"},
        {DLOCK_EINVAL, "quorum:?of=redis%2Bsentinel%3A%2F%2Fh%2Fm%3Fsentinel_password=hunter2&of=mem:b&of=mem:c",
         "must be in a file: write password_file"},
        {DLOCK_ENOTSUP, "quorum:?of=file:a&of=mem:b&of=mem:c",
         "member 1 of the quorum: file has no fences that can be"},
        {DLOCK_ENOTSUP, "quorum:?of=mem:a&of=mem:b&of=quorum:%3Fof=mem:a%26of=mem:b%26of=mem:c",
         "quorum has no fences that can be"},
        {DLOCK_EINVAL, "quorum:?of=mem:a&of=mem:b&of=mem:c&off=mem:d", "did you mean \"of\""},
        {DLOCK_EINVAL, "quorum:?of=mem:a&of=mem:b&of=mem:c&quarantine=x", "quarantine"},
        {DLOCK_EINVAL, "quorum:?of=redis%3A%2F%2Fa%3Fquarantine=9s&of=mem:b&of=mem:c",
         "quarantine=9s in a member's URI is shorter than that of the whole, 10s"},
        {DLOCK_ENOTSUP, "quorum:?of=mem:a&of=mem:b&of=mem:c&linger=1s", "\"linger\" needs a server"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct dlock_error err = {0};
        dlock_client *client = NULL;
        int rc = dlock_open(bad[i].uri, NULL, &client, &err);
        if (rc != bad[i].code) fail_msg("%s: %d %s", bad[i].uri, rc, err.message);
        if (!strstr(err.message, bad[i].why)) fail_msg("%s: %s", bad[i].uri, err.message);
        assert_null(strstr(err.message, "hunter2"));
    }
}

/* A client that does not connect at once is told later. */
TEST(a_lazy_client_is_told_of_a_missing_backend) {
    struct dlock_client_options options = DLOCK_CLIENT_OPTIONS_INIT;
    struct dlock_error err = {0};
    SCOPED_CLIENT *client;
    options.flags = DLOCK_CLIENT_LAZY;
    assert_int_equal(dlock_open("quorum:?of=mem:a&of=nosuch:b&of=mem:c", &options, &client, NULL), 0);
    SCOPED_LOCK *lock = api_lock(client, "name", NULL);
    assert_int_equal(dlock_acquire(lock, 20000, &err), DLOCK_ENOBACKEND);
    if (!strstr(err.message, "member 2 of the quorum: no backend")) fail_msg("%s", err.message);
}

TEST(uris_are_taken) {
    static const char *const good[] = {
        "quorum:?of=mem:a&of=mem:b&of=mem:c",
        "QUORUM:?of=mem:a&of=mem:b&of=mem:c&of=mem:d&lease=1s&timeout=1s",
        "quorum:?of=mem:a&of=mem:b%3Fdelay=1ms&of=mem:c%3Fquarantine=3s%26fail=0.001&prefix=x",
        "quorum:?of=mem:a&of=mem:b&of=mem:c&of=mem:d&of=mem:e&of=mem:f&of=mem:g&of=mem:h&of=mem:i",
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct dlock_error err = {0};
        SCOPED_CLIENT *client = api_client("%s", good[i]);
        SCOPED_LOCK *lock = api_lock(client, "name", NULL);
        if (dlock_acquire(lock, 20000, &err) != 0) fail_msg("%s: %s", good[i], err.message);
        assert_int_equal(dlock_release(lock, NULL), 0);
    }
}

/* The members' capabilities, less those that the core hides from a backend or that members cannot offer as one. */
TEST(it_offers_what_a_majority_can) {
    SCOPED_CLIENT *client = api_client("quorum:?of=mem:a&of=mem:b&of=mem:c");
    const uint32_t caps = dlock_client_backend(client)->caps;
    assert_int_equal(caps, DLOCK_CAP_LEASE | DLOCK_CAP_THREADSAFE | DLOCK_CAP_FENCE | DLOCK_CAP_EXPORT |
                               DLOCK_CAP_VOLATILE | DLOCK_CAP_WAKE | DLOCK_CAP_SHARED | DLOCK_CAP_INSPECT |
                               DLOCK_CAP_LIST | DLOCK_CAP_BREAK);
}

TESTS(NULL, NULL, NULL, NULL)
