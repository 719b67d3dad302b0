#include "harness.h"

#include "support/fake.h"

#include <hiredis.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- servers ----------------------------------------------------------------------------------------------------- */

static void hang_up(struct server *server) {
    if (server->plain) redisFree(server->plain);
    server->plain = NULL;
}

static bool answers(struct server *server) {
    redisContext *plain = redisConnect("127.0.0.1", server->port);
    redisReply *reply = plain && !plain->err ? redisCommand(plain, "PING") : NULL;
    bool ready = reply && (reply->type != REDIS_REPLY_ERROR || strncmp(reply->str, "LOADING", 7) != 0);
    server->plain = plain;
    if (reply) freeReplyObject(reply);
    if (!ready) hang_up(server);
    return ready;
}

static const char *const words[] = {
    "redis-server", "--port",   "{port}",       "--bind",        "127.0.0.1", "--save",       "",  "--appendonly", "no",
    "--dir",        "{folder}", "--unixsocket", "{folder}/sock", "--logfile", "{folder}/log", NULL};

const struct server_program server_program = {words, false, answers, hang_up, "DLOCK_REDIS_SERVER"};

/* ---- the plain client -------------------------------------------------------------------------------------------- */

static redisReply *ask(struct server *server, const char *format, va_list args) {
    redisContext *plain = server->plain;
    redisReply *reply = redisvCommand(plain, format, args);
    if (!reply) fail_msg("%s: %s", format, plain->errstr);
    if (reply->type == REDIS_REPLY_ERROR) fail_msg("%s: %s", format, reply->str);
    return reply;
}

int64_t ask_number(struct server *server, const char *format, ...) {
    va_list args;
    va_start(args, format);
    redisReply *reply = ask(server, format, args);
    int64_t number = reply->integer;
    va_end(args);
    if (reply->type != REDIS_REPLY_INTEGER) fail_msg("%s: no number", format);
    freeReplyObject(reply);
    return number;
}

const char *ask_text(struct server *server, const char *format, ...) {
    static char text[16384];
    va_list args;
    va_start(args, format);
    redisReply *reply = ask(server, format, args);
    va_end(args);
    snprintf(text, sizeof text, "%s", reply->str ? reply->str : "");
    freeReplyObject(reply);
    return text;
}

/* ---- roles ------------------------------------------------------------------------------------------------------- */

void await_role(struct server *server, const char *said) {
    for (int64_t until = now_ms() + 20000; !strstr(ask_text(server, "INFO replication"), said); sleep_ms(20))
        if (now_ms() > until) fail_msg("not %s: %s", said, ask_text(server, "INFO replication"));
}

void follow(struct server *replica, int master_port) {
    assert_string_equal(ask_text(replica, "REPLICAOF 127.0.0.1 %d", master_port), "OK");
    await_role(replica, "master_link_status:up");
}

/* ---- counting ---------------------------------------------------------------------------------------------------- */

void monitor_begin(struct monitor *monitor, const struct server *server) {
    memset(monitor, 0, sizeof *monitor);
    monitor->link = redisConnect("127.0.0.1", server->port);
    assert_int_equal(monitor->link->err, 0);
    freeReplyObject(redisCommand(monitor->link, "MONITOR"));
}

void monitor_end(struct monitor *monitor, struct server *server) {
    static const char end[] = "the end of the count";
    bool over = false;
    ask_text(server, "ECHO %s", end);
    while (!over) {
        redisReply *line;
        bool script;
        assert_int_equal(redisGetReply(monitor->link, (void **)&line), REDIS_OK);
        over = strstr(line->str, end) != NULL;
        script = strstr(line->str, " lua] ") != NULL;
        if (!over && !script) monitor->requests++;
        if (!over && !script && strstr(line->str, "] \"EVALSHA\"")) monitor->evalsha++;
        if (script) monitor->commands++;
        if (script && strstr(line->str, "] \"PUBLISH\"")) monitor->published++;
        freeReplyObject(line);
    }
    redisFree(monitor->link);
}

/* ---- what an honest server says ---------------------------------------------------------------------------------- */

static const char *const greeting[] = {"+OK\r\n", "$29\r\nredis_version:7.0.0\r\nsome:x\r\n\r\n",
                                       "$11\r\nrole:master\r\n", ":0\r\n", NULL};

/* The number in the line at *used, which is moved behind it; -1: the line is not whole. */
static long number_line(const char *buffer, size_t size, size_t *used) {
    const char *line = buffer + *used, *end = *used < size ? memchr(line, '\n', size - *used) : NULL;
    if (!end) return -1;
    *used += (size_t)(end - line) + 1;
    return strtol(line + 1, NULL, 10);
}

/* An array of strings: *2, $3, abc, $1, x. */
static size_t request(const char *buffer, size_t size) {
    size_t used = 0;
    long words_left = number_line(buffer, size, &used);
    if (words_left < 0) return 0;
    while (words_left-- > 0) {
        long length = number_line(buffer, size, &used);
        if (length < 0) return 0;
        used += (size_t)length + 2;
    }
    return used <= size ? used : 0;
}

const struct fake_protocol fake_protocol = {.greeting = greeting, .request = request};
