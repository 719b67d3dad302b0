/* Connection strings: their meaning, which are refused, and that no secret gets into an error text. */
#include "support/test.h"
#include "uri/uri.h"

#include <stdlib.h>
#include <sys/resource.h>

/* In every place of a refused URI that a password or a value may end up in. */
#define SECRET "hunter2"

/* `scheme user password path | host:port … | key=value …`, '-' for what is absent. */
static void render(const struct dlock_uri *uri, char *out, size_t size) {
    size_t used = (size_t)snprintf(out, size, "%s %s %s %s |", uri->scheme, uri->user ? uri->user : "-",
                                   uri->password ? uri->password : "-", uri->path ? uri->path : "-");
    for (size_t i = 0; i < uri->n_hosts; i++)
        used += (size_t)snprintf(out + used, size - used, " %s:%d", uri->hosts[i].host, uri->hosts[i].port);
    used += (size_t)snprintf(out + used, size - used, " |");
    for (size_t i = 0; i < uri->n_params; i++)
        used += (size_t)snprintf(out + used, size - used, " %s=%s", uri->params[i].key, uri->params[i].value);
    assert_true(used < size);
}

static struct dlock__uri *parse(const char *text) {
    struct dlock__uri *uri = NULL;
    struct dlock_error err;
    if (dlock__uri_parse(text, &uri, &err) != DLOCK_OK) fail_msg("%s: %s", text, err.message);
    return uri;
}

/* The URI must be refused, untouched outputs and all, with `word` in the message. */
static void refuse(const char *text, int code, const char *word) {
    struct dlock__uri *untouched = (struct dlock__uri *)&untouched, *uri = untouched;
    struct dlock_error err = {0};
    int rc = dlock__uri_parse(text, &uri, &err);
    if (rc != code) fail_msg("%s: %d instead of %d", text, rc, code);
    assert_ptr_equal(uri, untouched);
    assert_int_equal(err.code, code);
    if (!strstr(err.message, word)) fail_msg("%s: no \"%s\" in: %s", text, word, err.message);
    if (strstr(err.message, SECRET)) fail_msg("%s: the secret is in: %s", text, err.message);
    assert_int_equal(dlock__uri_parse(text, &uri, NULL), code);
}

TEST(parts_are_split_and_decoded) {
    static const char *const cases[][2] = {
        {"redis://localhost", "redis - - - | localhost:0 |"},
        {"redis://:pw@h", "redis - pw - | h:0 |"},
        {"redis://user@h:6380/3", "redis user - /3 | h:6380 |"},
        {"redis://user:@h", "redis user - - | h:0 |"},
        {"redis://@h", "redis - - - | h:0 |"},
        {"redis://u:p@w@h", "redis u p@w - | h:0 |"},
        {"redis://u:p:w@h", "redis u p:w - | h:0 |"},
        {"redis://u%3Ax:%40%2f%3F%23%25@h", "redis u:x @/?#% - | h:0 |"},
        {"redis://u:a%0Ab@h", "redis u a\nb - | h:0 |"},
        {"redis://u:%2541@h", "redis u %41 - | h:0 |"},
        {"redis://u:a+b@h?x=c+d", "redis u a+b - | h:0 | x=c+d"},
        {"redis://h1,h2:2,[::1],[2001:db8::7]:65535", "redis - - - | h1:0 h2:2 ::1:0 2001:db8::7:65535 |"},
        {"redis://[fe80::1%25eth0]:1", "redis - - - | fe80::1%eth0:1 |"},
        {"redis://a%2db", "redis - - - | a-b:0 |"},
        {"redis://b\xc3\xbc"
         "cher.example",
         "redis - - - | b\xc3\xbc"
         "cher.example:0 |"},
        {"redis://", "redis - - - | |"},
        {"redis:", "redis - - - | |"},
        {"ReDiS+X.y-Z1://h", "redis+x.y-z1 - - - | h:0 |"},
        {"file:locks", "file - - locks | |"},
        {"file:/var/lib/my locks", "file - - /var/lib/my locks | |"},
        {"file:///var/a%20b@c", "file - - /var/a b@c | |"},
        {"postgresql:///db", "postgresql - - /db | |"},
        {"postgresql:///db?host=/run/x@y&a", "postgresql - - /db | | host=/run/x@y a="},
        {"postgresql://u@%2Frun%2Fpg:5433,h/db", "postgresql u - /db | /run/pg:5433 h:0 |"},
        {"postgresql://h/db?a=b@c", "postgresql - - /db | h:0 | a=b@c"},
        {"zookeeper://u:p@a:1,b:2/x/y?z=1&z=2", "zookeeper u p /x/y | a:1 b:2 | z=1 z=2"},
        {"zookeeper://a,b/x%2Cy?z=1,2", "zookeeper - - /x,y | a:0 b:0 | z=1,2"},
        {"file:///x,y", "file - - /x,y | |"},
        {"redis://h?", "redis - - - | h:0 |"},
        {"redis://h?&&a=1&&b=2&", "redis - - - | h:0 | a=1 b=2"},
        {"redis://h?a=b=c?d/e", "redis - - - | h:0 | a=b=c?d/e"},
        {"redis://h?a%2Eb=%26%3d", "redis - - - | h:0 | a.b=&="},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dlock__uri *uri = parse(cases[i][0]);
        char text[512];
        render(&uri->parts, text, sizeof text);
        assert_string_equal(text, cases[i][1]);
        dlock__uri_free(uri);
    }
}

TEST(common_keys_are_taken_out) {
    struct dlock__uri *uri = parse("redis://h");
    assert_int_equal(uri->lease_ms, 10000);
    assert_int_equal(uri->timeout_ms, 3000);
    assert_int_equal(uri->quarantine_ms, -1);
    assert_int_equal(uri->connections, 4);
    assert_int_equal(uri->guardian, -1);
    assert_string_equal(uri->prefix, "");
    dlock__uri_free(uri);

    uri = parse(
        "redis://h?lease=1.5s&db=3&timeout=500ms&connections=7&prefix=a%3Ab/&quarantine=0&linger=50ms&guardian=off");
    assert_int_equal(uri->lease_ms, 1500);
    assert_int_equal(uri->timeout_ms, 500);
    assert_int_equal(uri->linger_ms, 50);
    assert_int_equal(uri->quarantine_ms, 0);
    assert_int_equal(uri->connections, 7);
    assert_int_equal(uri->guardian, 0);
    assert_string_equal(uri->prefix, "a:b/");
    assert_int_equal(uri->parts.n_params, 1);
    assert_string_equal(dlock_uri_get(&uri->parts, "db"), "3");
    dlock__uri_free(uri);

    uri = parse("redis://u@h?password_file=/run/a%20b");
    assert_string_equal(uri->password_file, "/run/a b");
    assert_null(uri->parts.password);
    assert_int_equal(uri->parts.n_params, 0);
    dlock__uri_free(uri);

    uri = parse("redis://u@h?password=x");
    assert_null(uri->password_file);
    dlock__uri_free(uri);

    uri = parse("redis://h?guardian=on");
    assert_int_equal(uri->guardian, 1);
    dlock__uri_free(uri);
}

TEST(common_keys_have_limits) {
    static const char *const fine[] = {
        "lease=100ms",      "lease=8760h",   "timeout=10ms",
        "timeout=1h",       "connections=1", "connections=1024",
        "quarantine=8760h", "prefix=",       "prefix=0123456789012345678901234567890123456789012345678901234"};
    static const struct {
        const char *query, *word;
        int code;
    } wrong[] = {
        {"lease=99ms", "\"lease\"", DLOCK_EINVAL},
        {"lease=8760.1h", "\"lease\"", DLOCK_EINVAL},
        {"lease=" SECRET, "\"lease\"", DLOCK_EINVAL},
        {"lease", "\"lease\"", DLOCK_EINVAL},
        {"lease=99999999999999999999", "\"lease\"", DLOCK_EINVAL},
        {"timeout=9ms", "\"timeout\"", DLOCK_EINVAL},
        {"timeout=3601", "\"timeout\"", DLOCK_EINVAL},
        {"connections=0", "\"connections\"", DLOCK_EINVAL},
        {"connections=1025", "\"connections\"", DLOCK_EINVAL},
        {"connections=4294967297", "\"connections\"", DLOCK_EINVAL},
        {"connections=", "\"connections\"", DLOCK_EINVAL},
        {"connections=-1", "\"connections\"", DLOCK_EINVAL},
        {"connections=" SECRET, "\"connections\"", DLOCK_EINVAL},
        {"quarantine=-1", "\"quarantine\"", DLOCK_EINVAL},
        {"quarantine=8761h", "\"quarantine\"", DLOCK_EINVAL},
        {"prefix=" SECRET "%0A", "\"prefix\"", DLOCK_EINVAL},
        {"prefix=%7f", "\"prefix\"", DLOCK_EINVAL},
        {"prefix=01234567890123456789012345678901234567890123456789012345", "\"prefix\"", DLOCK_EINVAL},
        {"linger=" SECRET, "\"linger\"", DLOCK_EINVAL},
        {"guardian=On", "\"guardian\"", DLOCK_EINVAL},
        {"guardian=" SECRET, "\"guardian\"", DLOCK_EINVAL},
        {"guardian", "\"guardian\"", DLOCK_EINVAL},
        {"password_file=/" SECRET, "a password, and a \"password_file\"", DLOCK_EINVAL},
        {"password_file=" SECRET, "\"password_file\" must be an absolute path", DLOCK_EINVAL},
        {"password_file", "\"password_file\"", DLOCK_EINVAL},
        {"password_file=/" SECRET "%0a", "\"password_file\"", DLOCK_EINVAL},
        {"lease=1&a=b&lease=1", "\"lease\" stands twice", DLOCK_EINVAL},
        {"guardian=off&guardian=off", "\"guardian\" stands twice", DLOCK_EINVAL},
    };
    char text[256];
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++) {
        snprintf(text, sizeof text, "redis://h?%s", fine[i]);
        dlock__uri_free(parse(text));
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(text, sizeof text, "redis://u:" SECRET "@h?%s", wrong[i].query);
        refuse(text, wrong[i].code, wrong[i].word);
    }
}

TEST(mistakes_are_named_without_their_text) {
    static const char *const cases[][2] = {
        {"", "no scheme"},
        {"redis", "no scheme"},
        {"/tmp/" SECRET, "no scheme"},
        {"//" SECRET "@h", "no scheme"},
        {":" SECRET, "no scheme"},
        {"re_dis://u:" SECRET "@h", "no scheme"},
        {"a23456789012345678901234567890123456789012345678901234567890123456://h", "scheme is longer"},
        {"redis://u:" SECRET "#@h", "%23"},
        {"redis://h#" SECRET, "%23"},
        {"redis://u:" SECRET "\n@h", "%0A"},
        {"redis://h/\x7f", "%7F"},
        {"redis://u:" SECRET "%@h", "password has a '%'"},
        {"redis://u:" SECRET "%4@h", "password has a '%'"},
        {"redis://u:" SECRET "%4g@h", "password has a '%'"},
        {"redis://u:" SECRET "%00@h", "password has a %00"},
        {"redis://" SECRET "%00@h", "user has a %00"},
        {"redis://h/" SECRET "%00", "path has a %00"},
        {"redis://h?k=" SECRET "%00", "\"k\" has a %00"},
        {"redis://h?k=" SECRET "%", "\"k\" has a '%'"},
        {"redis://h?k%00=" SECRET, "key has a %00"},
        {"redis://h?=" SECRET, "key after the '?'"},
        {"redis://h?a%20b=" SECRET, "key after the '?'"},
        {"redis://h?" SECRET "@=1", "'@'"},
        {"redis://h?a23456789012345678901234567890123456789012345678901234567890123456=" SECRET, "key after the '?'"},
        {"redis://u:" SECRET "/x@h", "%2F"},
        {"redis://u:" SECRET "?x@h", "%3F"},
        {"redis://u:" SECRET "?x=y@h", "%3F"},
        {"redis://:" SECRET "/@h", "%2F"},
        {"redis:/u:" SECRET "@h", "two slashes"},
        {"redis:///u:" SECRET "@h", "two slashes"},
        {"etcd:/:" SECRET "@h/x?lease=1s", "two slashes"},
        {"redis://u:" SECRET, "port of host 1"},
        {"redis://:" SECRET, "host 1 is empty"},
        {"redis://u:" SECRET "/x", "port of host 1"},
        {"redis://h:", "port of host 1"},
        {"redis://h:0", "port of host 1"},
        {"redis://a,h:65536", "port of host 2"},
        {"redis://h:4294967297", "port of host 1"},
        {"redis://h:+1", "port of host 1"},
        {"redis://h:1x", "port of host 1"},
        {"redis://h:%31", "port of host 1"},
        {"redis://:6379", "host 1 is empty"},
        {"redis://,h", "host 1 is empty"},
        {"zookeeper://h/x,i/x", "as in zookeeper://host1,host2/path; write %2C"},
        {"etcd://h:1/" SECRET ",i:2/x?session=5s", "a ',' in the path"},
        {"redis://h,", "host 2 is empty"},
        {"redis://h,,i", "host 2 is empty"},
        {"redis://[]", "host 1 is empty"},
        {"redis://[::1", "without a ']'"},
        {"redis://[::1]x", "behind its ']'"},
        {"redis://[127.0.0.1]", "IPv6"},
        {"redis://[::1%25]", "IPv6"},
        {"redis://[::1%25a b]", "IPv6"},
        {"redis://[" SECRET "]", "IPv6"},
        {"redis://2001:db8::1", "[address]:port"},
        {"redis://" SECRET " x", "not a host name"},
        {"redis://a%2Fb", "not a host name"},
        {"redis://a%0Ab", "not a host name"},
        {"redis://a]b", "not a host name"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) refuse(cases[i][0], DLOCK_EINVAL, cases[i][1]);
    refuse(NULL, DLOCK_EINVAL, "NULL");
}

TEST(lengths_are_limited) {
    char *text = malloc(DLOCK__URI_MAX + 2);
    assert_non_null(text);
    memset(text, 'x', DLOCK__URI_MAX + 1);
    memcpy(text, "file:", 5);
    text[DLOCK__URI_MAX + 1] = '\0';
    refuse(text, DLOCK_EINVAL, "longer than");
    text[DLOCK__URI_MAX] = '\0';
    struct dlock__uri *uri = parse(text);
    assert_int_equal(strlen(uri->parts.path), DLOCK__URI_MAX - 5);
    dlock__uri_free(uri);

    memcpy(text, "file://", 7);
    text[7 + 255] = '\0';
    dlock__uri_free(parse(text));
    memcpy(text + 7 + 255, "x", 2);
    refuse(text, DLOCK_EINVAL, "not a host name");

    /* As many parts as there can be. */
    memset(text, '?', DLOCK__URI_MAX);
    memcpy(text, "f://", 4);
    for (size_t i = 4; i < DLOCK__URI_MAX; i++) text[i] = i < 4000 ? "h,"[i % 2] : i == 4001 ? '?' : "k&"[i % 2];
    text[4000] = 'h';
    text[DLOCK__URI_MAX] = '\0';
    uri = parse(text);
    assert_int_equal(uri->parts.n_hosts, 1999);
    assert_int_equal(uri->parts.n_params, 2095);
    dlock__uri_free(uri);
    free(text);
}

static void check(const char *text, const char *const *keys, const char *word) {
    struct dlock__uri *uri = parse(text);
    struct dlock_backend backend = {.name = "toy", .keys = keys};
    struct dlock_error err = {0};
    assert_int_equal(dlock__uri_check_keys(uri, &backend, &err), word ? DLOCK_EINVAL : DLOCK_OK);
    assert_int_equal(dlock__uri_check_keys(uri, &backend, NULL), word ? DLOCK_EINVAL : DLOCK_OK);
    if (word && !strstr(err.message, word)) fail_msg("%s: no \"%s\" in: %s", text, word, err.message);
    if (!word) assert_string_equal(err.message, "");
    if (strstr(err.message, SECRET)) fail_msg("%s: the secret is in: %s", text, err.message);
    dlock__uri_free(uri);
}

TEST(backends_say_which_keys_they_take) {
    static const char *const keys[] = {"db", "node*", NULL}, *const any[] = {"*", NULL}, *const none[] = {NULL};
    check("toy://h?db=1&lease=3s", keys, NULL);
    check("toy://h?node=1&db=1&node=2", keys, NULL);
    check("toy://h?db=" SECRET "&db=" SECRET, keys, "\"db\" stands twice");
    check("toy://u:" SECRET "@h?xyz=" SECRET, keys, "\"xyz\"; it takes db, node, and as every backend lease, timeout");
    check("toy://h?dbx=" SECRET, keys, "\"dbx\"; did you mean \"db\"?");
    check("toy://h?nodde=" SECRET, keys, "\"nodde\"; did you mean \"node\"?");
    check("toy://h?lesae=" SECRET, keys, "\"lesae\"; did you mean \"lease\"?");
    check("toy://h?d=" SECRET, keys, "\"d\"");
    check("toy://h?DB=" SECRET, keys, "\"DB\"");
    check("toy://h?nodes=" SECRET, keys, "\"nodes\"");
    check("toy://h?x=1&y=2&x=3", any, NULL);
    check("toy://h?x=" SECRET, none, "\"x\"; it takes nothing, and");
    check("toy://h?x=" SECRET, NULL, "\"x\"; it takes nothing, and");
    check("toy://h", NULL, NULL);
}

TEST(what_is_secret_is_left_out) {
    static const char *const cases[][2] = {
        {"redis://u:" SECRET "@h:1/2?lease=5s", "redis://u@h:1/2?lease=5s"},
        {"redis://:" SECRET "@h", "redis://h"},
        {"redis://u:" SECRET "@x@h", "redis://u@h"},
        {"redis://@h", "redis://h"},
        {"redis://@h/%40b", "redis://h/%40b"},
        {"redis://:" SECRET "@h?x=%40b", "redis://h?x=%40b"},
        {"redis://@h/a?x=@b", "redis://h/a?x=@b"},
        {"redis://u@h?password_file=/run/x&db=1", "redis://u@h?password_file=/run/x&db=1"},
        {"postgresql:///db?password=" SECRET "&schema=a&sslpassword=" SECRET, "postgresql:///db?schema=a"},
        {"postgresql:///db?%50assw%6frd=" SECRET, "postgresql:///db"},
        {"zookeeper://a,b:2/x?auth=digest:u:" SECRET "&session=5s&auth=ip:" SECRET "&x",
         "zookeeper://a,b:2/x?session=5s&x"},
        {"redis://:" SECRET "@/a:b%40c", "redis:///a:b%40c"},
        {"quorum:?of=redis://u:" SECRET "@h&of=redis://u@h&lease=1s&of=redis%3A%2F%2F%3A" SECRET "%40i",
         "quorum:?of=redis://u@h&lease=1s"},
        {"quorum:?of=x:?auth=" SECRET "&of=x:/u:" SECRET "@h&of=x:u:" SECRET "@h&prefix=a:b%40",
         "quorum:?prefix=a:b%40"},
        {"x:?my.Secret=" SECRET "&Api-Token=" SECRET "&author=b", "x:?author=b"},
        {"file:locks", "file:locks"},
        {"file:///a?mode=0660", "file:///a?mode=0660"},
        {"FILE:", "FILE:"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[128];
        size_t length = strlen(cases[i][0]);
        assert_int_equal(dlock_uri_without_secrets(cases[i][0], out, length + 1, NULL), DLOCK_OK);
        assert_string_equal(out, cases[i][1]);
        strcpy(out, "untouched");
        assert_int_equal(dlock_uri_without_secrets(cases[i][0], out, length, NULL), DLOCK_EINVAL);
        assert_string_equal(out, "untouched");
    }
    static const char *const unescaped[] = {/* '@' with '/' or '?' in a password: it would end before its end */
                                            "redis://u:" SECRET "@" SECRET "/" SECRET "@h",
                                            "redis://:" SECRET "@/a:b@c",
                                            "redis://u:" SECRET "@" SECRET "?" SECRET "@h",
                                            "redis://u@" SECRET "/" SECRET "@h"};
    for (size_t i = 0; i < sizeof unescaped / sizeof *unescaped; i++) {
        struct dlock_error why = {0};
        assert_int_equal(dlock_uri_without_secrets(unescaped[i], (char[128]){0}, 128, &why), DLOCK_EINVAL);
        assert_null(strstr(why.message, SECRET));
        assert_non_null(strstr(why.message, "%2F"));
    }
    struct dlock_error err = {0};
    assert_int_equal(dlock_uri_without_secrets("redis//:" SECRET "@h", (char[64]){0}, 64, &err), DLOCK_EINVAL);
    assert_null(strstr(err.message, SECRET));
    assert_int_equal(dlock_uri_without_secrets("redis:u:" SECRET "@h", (char[64]){0}, 64, &err), DLOCK_EINVAL);
    assert_null(strstr(err.message, SECRET));
    assert_int_equal(dlock_uri_without_secrets(NULL, (char[64]){0}, 64, &err), DLOCK_EINVAL);
    assert_int_equal(dlock_uri_without_secrets("file:", NULL, 64, &err), DLOCK_EINVAL);
}

/* Nothing is wrong with the password then. */
TEST(a_password_that_cannot_be_read_for_want_of_descriptors_is_not_refused) {
    char password[DLOCK__PASSWORD_MAX + 1];
    struct dlock_error err = {0};
    struct rlimit limit, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int rc = dlock__password_read("/etc/passwd", password, &err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(rc, DLOCK_ENOMEM);
    assert_int_equal(err.code, DLOCK_ENOMEM);
    assert_non_null(strstr(err.message, "raise the limit (ulimit -n)"));
    assert_int_equal(dlock__password_read("/does/not/exist", password, &err), DLOCK_EAUTH);
}

TESTS(NULL, NULL, NULL, NULL)
