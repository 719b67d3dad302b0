/* Wrong connection strings: the right code, a message that names the part, and never a secret. */
#include "suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Fails unless the URI is refused with `wanted` and a message that mentions `mention`. */
static void expect_refused(int wanted, const char *uri, const char *mention) {
    dlock_client *client = NULL;
    struct dlock_error err = {0};
    int code = dlock_open(uri, NULL, &client, &err);
    if (code != wanted)
        FAIL("\"%s\" answers \"%s\" instead of \"%s\": %s", uri, dlock_strerror(code), dlock_strerror(wanted),
             err.message);
    EXPECT(client == NULL && err.code == code && err.message[0]);
    if (mention && !strstr(err.message, mention))
        FAIL("\"%s\": the message does not mention \"%s\": %s", uri, mention, err.message);
}

static void expect_all_refused(const char *scheme) {
    static const struct {
        int code;
        const char *after_scheme, *mention;
    } wrong[] = {
        {DLOCK_EINVAL, "//127.0.0.1:99999", "port"},
        {DLOCK_EINVAL, "//127.0.0.1:-1", NULL},
        {DLOCK_EINVAL, "//127.0.0.1:0x10", NULL},
        {DLOCK_EINVAL, "//127.0.0.1:port", NULL},
        {DLOCK_EINVAL, "//[::1", NULL},
        {DLOCK_EINVAL, "//%zz", NULL},
        {DLOCK_EINVAL, "//h%2", NULL},
        {DLOCK_EINVAL, "///a%00b", NULL},
        {DLOCK_EINVAL, "///x?lease=soon", "lease"},
        {DLOCK_EINVAL, "///x?lease=-1", "lease"},
        {DLOCK_EINVAL, "///x?lease=10ms", "lease"},
        {DLOCK_EINVAL, "///x?timeout=", "timeout"},
        {DLOCK_EINVAL, "///x?timeout=99999999999999999999h", "timeout"},
        {DLOCK_EINVAL, "///x?connections=0", "connections"},
        {DLOCK_EINVAL, "///x?connections=many", "connections"},
        {DLOCK_EINVAL, "///x?lease=10s&lease=11s", "lease"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char uri[256];
        snprintf(uri, sizeof uri, "%s:%s", scheme, wrong[i].after_scheme);
        expect_refused(wrong[i].code, uri, wrong[i].mention);
    }
}

void case_uris_refused(void) {
    expect_refused(DLOCK_EINVAL, "", NULL);
    expect_refused(DLOCK_EINVAL, "localhost", NULL);
    expect_refused(DLOCK_EINVAL, "://localhost", NULL);
    expect_refused(DLOCK_EINVAL, "../x:y", NULL);
    expect_refused(DLOCK_EINVAL, "a/b://localhost", NULL);
    expect_refused(DLOCK_ENOBACKEND, "no-such-server://localhost", "no-such-server");
    expect_refused(DLOCK_ENOBACKEND, "..://localhost", NULL);
    char scheme[64];
    snprintf(scheme, sizeof scheme, "%.*s", (int)strcspn(suite.uri, ":"), suite.uri);
    expect_all_refused(scheme);
    /* The scheme is not case-sensitive. */
    char *uri = strdup(suite.uri);
    EXPECT(uri);
    for (char *at = uri; *at && *at != ':'; at++)
        if (*at >= 'a' && *at <= 'z') *at = (char)(*at - 'a' + 'A');
    dlock_client *client = NULL;
    EXPECT_CODE(0, dlock_open(uri, NULL, &client, ERR));
    dlock_close(client);
    free(uri);
}

void case_uri_unknown_key_is_named(void) {
    char *uri = uri_with(suite.uri, "nosuchkey", "1");
    expect_refused(DLOCK_EINVAL, uri, "nosuchkey");
    free(uri);
}

static void expect_no_secret(const char *uri) {
    static const char *const secrets[] = {"s3cr3t", "s3cr", "%73"};
    dlock_client *client = NULL;
    struct dlock_error err = {0};
    EXPECT(dlock_open(uri, NULL, &client, &err) != 0);
    for (size_t i = 0; i < sizeof secrets / sizeof secrets[0]; i++)
        if (strstr(err.message, secrets[i])) FAIL("a secret of the URI stands in: %s", err.message);
}

/* Passwords and query values do not appear in messages, whatever is wrong. */
void case_uri_secrets_stay_secret(void) {
    static const char *const tails[] = {
        "//user:s3cr3t@127.0.0.1:99999",
        "//user:s3cr3t@127.0.0.1:x",
        "//:s3cr3t@127.0.0.1:1?nosuchkey=1",
        "//user:s3cr3t%zz@127.0.0.1",
        "//user:%73%33cr3t@[::1",
        "///x?nosuchkey=s3cr3t",
        "///x?lease=s3cr3t",
        "///x?timeout=s3cr3t",
        "//user:s3cr3t@127.0.0.1:1/?timeout=1&lease=-1",
    };
    size_t length = strcspn(suite.uri, ":");
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        char uri[256];
        snprintf(uri, sizeof uri, "%.*s:%s", (int)length, suite.uri, tails[i]);
        expect_no_secret(uri);
        snprintf(uri, sizeof uri, "no-such-server:%s", tails[i]);
        expect_no_secret(uri);
    }
}
