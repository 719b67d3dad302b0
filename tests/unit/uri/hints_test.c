/* Connection strings that other programs take are answered with what to write; everything else keeps its own error. */
#include "support/test.h"
#include "uri/uri.h"

/* In the places of a string that a password may be in: no message may repeat it. */
#define SECRET "hunter2"

TEST(other_programs_strings_are_answered) {
    static const char *const cases[][2] = {
        {"unix:///run/redis.sock", "write redis+unix:///path/to/socket, or memcached+unix:///"},
        {"redis:///run/redis/redis.sock", "a socket is written redis+unix:///path/to/socket"},
        {"redis+socket:///run/redis.sock?db=1", "redis+unix:///path/to/socket"},
        {"redis-sentinel://:" SECRET "@h:26379,i:26379/0#mymaster",
         "write redis+sentinel://HOST,HOST,HOST/MASTER?db=N"},
        {"redis+sentinel://h:26379/mymaster/0", "redis+sentinel://HOST,HOST,HOST/MASTER?db=N"},
        {"rediss+sentinel://h:26379/mymaster/0", "rediss+sentinel://HOST,HOST,HOST/MASTER?db=N"},
        {"valkey-sentinel://h:26379/mymaster", "redis+sentinel://HOST,HOST,HOST/MASTER?db=N"},
        {"redis-cluster://h:7000", "write redis+cluster://HOST,HOST,HOST"},
        {"redis+tls://h", "Redis over TLS is rediss://HOST"},
        {"redis://h:6380?ssl=true", "rediss://HOST, without this key"},
        {"redis://h:6380/0?db=1&ssl=True", "rediss://HOST, without this key"},
        {"rediss://h?ssl=true", "rediss:// is TLS: leave this key out"},
        {"host:6380,password=" SECRET ",ssl=True", "redis://:PASSWORD@HOST:PORT/DATABASE, and rediss:// for TLS"},
        {"h.redis.cache.example:6380,abortConnect=False", "redis://:PASSWORD@HOST:PORT/DATABASE"},
        {"zk://h1:2181,h2:2181/locks", "write zookeeper://HOST,HOST,HOST/PATH"},
        {"h1:2181,h2:2181/x", "\"h1:2181,h2:2181\" has no scheme; did you mean zookeeper://h1:2181,h2:2181?"},
        {"localhost:6379", "\"localhost:6379\" has no scheme; did you mean redis://localhost:6379?"},
        {"10.0.0.7:7000", "write it in front, as in redis://10.0.0.7:7000"},
        {"http://h:2379", "write etcd://HOST:2379"},
        {"https://u:" SECRET "@h:2379", "write etcd+tls://HOST:2379"},
        {"etcd3+http://h:2379", "write etcd://HOST:2379"},
        {"etcd3+https://h:2379", "write etcd+tls://HOST:2379"},
        {"etcd://http://h:2379", "write etcd://HOST:2379"},
        {"memcached:///run/memcached.sock", "memcached+unix:///path/to/socket"},
        {"memcache://h:11211", "write memcached://HOST"},
        {"jdbc:postgresql://h/d?user=u&password=" SECRET, "postgresql://USER:PASSWORD@HOST/DATABASE"},
        {"jdbc:mysql://h/d?user=u&password=" SECRET, "mysql://USER:PASSWORD@HOST/DATABASE"},
        {"jdbc:oracle:thin:@h:1521:x", "JDBC is a form of Java's drivers"},
        {"host=h dbname=d password=" SECRET, "postgresql://USER:PASSWORD@HOST/DATABASE"},
        {"user=u dbname = d", "postgresql://USER:PASSWORD@HOST/DATABASE"},
        {"postgresql+psycopg2://u:" SECRET "@h/d", "postgresql://USER:PASSWORD@HOST/DATABASE"},
        {"pgsql://h/d", "postgresql://USER:PASSWORD@HOST/DATABASE"},
        {"mysql+pymysql://u:" SECRET "@h/d", "mysql://USER:PASSWORD@HOST/DATABASE"},
        {"u:" SECRET "@tcp(h:3306)/d", "mysql://USER:PASSWORD@HOST/DATABASE"},
        {"mysql://u@h/d?unix_socket=/run/mysqld/mysqld.sock", "mysql://USER@%2Frun%2Fmysqld%2Fmysqld.sock/DATABASE"},
        {"mysql://u@h/d?charset=x&ssl-mode=REQUIRED", "mysql+tls://USER@HOST/DATABASE, without this key"},
        {"mariadb://u@h/d?ssl=true", "mysql+tls://USER@HOST/DATABASE"},
        {"flock:///var/lock/x", "file:/path/to/directory"},
        {"/var/lock/x", "file:/path/to/directory"},
        {"./locks", "file:/path/to/directory"},
        {"~/locks", "file:/path/to/directory"},
        {".", "file:/path/to/directory"},
        {"\"redis://u:" SECRET "@h\"", "begins with a quotation mark"},
        {"'redis://u:" SECRET "@h'", "begins with a quotation mark"},
        {"redis://u:" SECRET "@h\n", "ends in a line end"},
        {"redis://u:" SECRET "@h\r\n", "ends in a line end"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dlock_error err = {0};
        int rc = dlock__uri_hint(cases[i][0], DLOCK_ENOBACKEND, &err);
        if (rc != DLOCK_EINVAL || err.code != rc) fail_msg("%s: %d, %d", cases[i][0], rc, err.code);
        if (!strstr(err.message, cases[i][1])) fail_msg("%s: no \"%s\" in: %s", cases[i][0], cases[i][1], err.message);
        if (strstr(err.message, SECRET)) fail_msg("%s: the secret is in: %s", cases[i][0], err.message);
        assert_int_equal(dlock__uri_hint(cases[i][0], DLOCK_ENOBACKEND, NULL), DLOCK_EINVAL);
    }
}

TEST(every_other_error_stays) {
    static const char *const others[] = {
        "",
        "redis",
        "mongodb://h",
        "redis://h?lesae=5s",
        "redis:///0?lesae=5s&password_file=/run/x",
        "redis+sentinel://h/m?password_file=/run/x",
        "redis://u:unix:@h?x=1",
        "redis:///u:" SECRET "@h", /* this one's error is about the slashes */
        "memcached:///u:" SECRET "@h",
        "redis://u:ssl=@h/x",
        "rediss://h?key=ssl",
        "memcached:///?x=/run/x",
        "etcd://h?x=http://h",
        "mysql://u@h/d?sockets=1",
        "mysql+tls://u@h",
        "postgresql://h/d?ssl=true",
        "file:locks?mod=/x",
        "h:2379,x",
        "h:" SECRET "/x",
        ("h:1," SECRET),
        "h:99999",
        "user:6379@h",
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct dlock_error err = {.message = "as it was"};
        if (dlock__uri_hint(others[i], DLOCK_ENOBACKEND, &err) != DLOCK_ENOBACKEND)
            fail_msg("%s: %s", others[i], err.message);
        assert_string_equal(err.message, "as it was");
    }
    assert_int_equal(dlock__uri_hint("zk://h", 0, NULL), 0); /* a backend serves it */
    assert_int_equal(dlock__uri_hint("zk://h", DLOCK_ENOMEM, NULL), DLOCK_ENOMEM);
    assert_int_equal(dlock__uri_hint("h:6379", DLOCK_EINVAL, NULL), DLOCK_EINVAL);
    assert_int_equal(dlock__uri_hint(NULL, DLOCK_EINVAL, NULL), DLOCK_EINVAL);
}

TEST(a_refused_client_says_it) {
    dlock_client *client;
    struct dlock_error err;
    assert_int_equal(dlock_open("zk://h", NULL, &client, &err), DLOCK_EINVAL);
    assert_string_equal(err.message, "URI: write zookeeper://HOST,HOST,HOST/PATH");
}

TESTS(NULL, NULL, NULL, NULL)
