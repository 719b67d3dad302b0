/* Connection strings that other programs take: what to write instead. They are only looked up for a URI that was refused,
 * so a backend may serve any of them. The answers are fixed texts, since the password may be anywhere in such a string;
 * only hosts and ports are repeated. */
#include "base/text.h"
#include "uri/uri.h"

#include <regex.h>
#include <stdlib.h>

#define HOST_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"

#define POSTGRESQL "write postgresql://USER:PASSWORD@HOST/DATABASE"
#define MYSQL "write mysql://USER:PASSWORD@HOST/DATABASE"

/* What to write in place of strings of this form, an extended regular expression; the first that fits. */
static const struct {
    const char *form, *advice;
} hints[] = {
    {"^[\"'`]",
     "it begins with a quotation mark: write it without any (a file of variables keeps what a shell would take "
     "away)"},
    {"[\r\n]$", "it ends in a line end: remove that"},
    {"^(redis|valkey)(-sentinel:|\\+sentinel://[^?]*/[^?]*/)", "write redis+sentinel://HOST,HOST,HOST/MASTER?db=N"},
    {"^(rediss|valkeys)\\+sentinel://[^?]*/[^?]*/", "write rediss+sentinel://HOST,HOST,HOST/MASTER?db=N"},
    {"^(redis|valkey)-cluster:", "write redis+cluster://HOST,HOST,HOST"},
    {"^(redis|valkey)(s?:///[^?@]+[.]sock([?]|$)|[-+]socket:)", "a socket is written redis+unix:///path/to/socket"},
    {"^(redis|valkey)\\+(tls|ssl):", "Redis over TLS is rediss://HOST"},
    {"^(redis|valkey)[:+][^?]*[?](.*&)?(ssl|tls)=", "Redis over TLS is rediss://HOST, without this key"},
    {"^(rediss|valkeys)[^?]*[?](.*&)?(ssl|tls)=", "rediss:// is TLS: leave this key out"},
    {"^[^/?]*,(password|ssl|abortConnect|defaultDatabase|allowAdmin)=",
     "write redis://:PASSWORD@HOST:PORT/DATABASE, and rediss:// for TLS"},
    {"^memcached:///[^?@]+[.]sock([?]|$)", "a socket is written memcached+unix:///path/to/socket"},
    {"^(memcache|pymemcache):", "write memcached://HOST"},
    {"^unix:", "write redis+unix:///path/to/socket, or memcached+unix:///path/to/socket"},
    {"^zk:", "write zookeeper://HOST,HOST,HOST/PATH"},
    {"^(https|etcd3?\\+https|etcds):", "write etcd+tls://HOST:2379"},
    {"^(http|etcd3|etcd3?\\+http):|^etcd://https?:", "write etcd://HOST:2379, or etcd+tls://HOST:2379 for https"},
    {"^jdbc:postgresql:", POSTGRESQL},
    {"^jdbc:(mysql|mariadb):", MYSQL},
    {"^jdbc:", "JDBC is a form of Java's drivers: " POSTGRESQL ", or mysql:// in the same form"},
    {"^(pg|pgsql|postgres(ql)?\\+[a-z0-9]+):", POSTGRESQL},
    {"(^| )(host|hostaddr|dbname) *=", POSTGRESQL},
    {"^(mysql|mariadb)\\+[a-z]*(my|db|odbc)[a-z]*:", MYSQL},
    {"^[^/?]*@(tcp|unix)\\(", MYSQL},
    {"^(mysql|mariadb)[^?]*[?](.*&)?(unix_)?socket=", "a socket's path is written in place of the host, each '/' as "
                                                      "%2F: mysql://USER@%2Frun%2Fmysqld%2Fmysqld.sock/DATABASE"},
    {"^(mysql|mariadb)[^?]*[?](.*&)?(ssl|tls|ssl[-_]?mode|useSSL)=",
     "MySQL over TLS is mysql+tls://USER@HOST/DATABASE, without this key"},
    {"^flock:", "a directory of locks is written file:/path/to/directory"},
    {"^(/|~|\\.\\.?(/|$))", "a directory of locks is written file:/path/to/directory"},
};

/* Reads HOST:PORT,HOST:PORT… Returns the length, 0 if there is something else; *port is the last one. */
static size_t read_hosts(const char *text, int *port) {
    const char *p = text;
    for (;;) {
        size_t length = strspn(p, HOST_CHARACTERS);
        if (!length || p[length] != ':') return 0;
        *port = (int)dlock__text_number(p + length + 1, 65535, &p);
        if (!*port) return 0;
        if (*p != ',') break;
        p++;
    }
    return *p && *p != '/' && *p != '?' ? 0 : (size_t)(p - text);
}

/* Answers hosts and ports alone: the usual server of the port. */
static bool hint_hosts(const char *text, struct dlock_error *err) {
    static const struct {
        int port;
        const char *scheme;
    } usual[] = {{6379, "redis"}, {26379, "redis+sentinel"}, {11211, "memcached"}, {2181, "zookeeper"},
                 {2379, "etcd"},  {5432, "postgresql"},      {3306, "mysql"}};
    const char *scheme = NULL;
    int port;
    int length = (int)read_hosts(text, &port);
    if (!length) return false;
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (usual[i].port == port) scheme = usual[i].scheme;
    dlock_fail(err, DLOCK_EINVAL, "URI: \"%.*s\" has no scheme; %s%s://%.*s%s", length, text,
               scheme ? "did you mean " : "write it in front, as in ", scheme ? scheme : "redis", length, text,
               scheme ? "?" : "");
    return true;
}

static bool has_form(const char *text, const char *form) {
    regex_t compiled;
    if (regcomp(&compiled, form, REG_EXTENDED | REG_ICASE | REG_NOSUB) != 0) return false; /* out of memory */
    bool fits = regexec(&compiled, text, 0, NULL, 0) == 0;
    regfree(&compiled);
    return fits;
}

int dlock__uri_hint(const char *text, int rc, struct dlock_error *err) {
    if ((rc != DLOCK_EINVAL && rc != DLOCK_ENOBACKEND) || !text) return rc;
    if (rc == DLOCK_ENOBACKEND && hint_hosts(text, err)) return DLOCK_EINVAL;
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++)
        if (has_form(text, hints[i].form)) return dlock_fail(err, DLOCK_EINVAL, "URI: %s", hints[i].advice);
    return rc;
}
