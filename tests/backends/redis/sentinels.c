#include "sentinels.h"

#include "players.h"
#include "support/loopback.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

struct server sentinels[SENTINELS];

static void write_settings(const struct server *sentinel, const char *path, int master_port, const char *more) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file,
            "port %d\nbind 127.0.0.1\ndir %s\nlogfile %s/log\nsentinel monitor mymaster 127.0.0.1 %d 2\n"
            "sentinel down-after-milliseconds mymaster 1000\nsentinel failover-timeout mymaster 3000\n%s",
            sentinel->port, sentinel->folder, sentinel->folder, master_port, more);
    assert_int_equal(fclose(file), 0);
}

/* The server's program is also a Sentinel; it rewrites its settings while it runs. */
static void launch(struct server *sentinel, int master_port, const char *more) {
    const char *named = getenv("DLOCK_REDIS_SERVER"), *program = named ? named : "redis-server";
    char settings[96];
    sentinel->port = loopback_unused_port();
    snprintf(settings, sizeof settings, "%s/settings", sentinel->folder);
    write_settings(sentinel, settings, master_port, more);
    const pid_t parent = getpid();
    sentinel->pid = fork();
    assert_true(sentinel->pid >= 0);
    if (sentinel->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent) execlp(program, program, settings, "--sentinel", (char *)NULL);
        _exit(127);
    }
}

void sentinel_start(int i, int master_port, const char *more) {
    struct server *sentinel = &sentinels[i];
    memset(sentinel, 0, sizeof *sentinel);
    snprintf(sentinel->folder, sizeof sentinel->folder, "/tmp/dlock-sentinel.XXXXXX");
    assert_non_null(mkdtemp(sentinel->folder));
    for (int tries = 0; tries < 5; tries++) {
        launch(sentinel, master_port, more);
        if (server_answers(sentinel)) return;
    }
    fail_msg("Sentinel does not start");
}

void sentinels_await_agreement(void) {
    for (int i = 0; i < SENTINELS; i++) await_said(&sentinels[i], "INFO sentinel", "slaves=1,sentinels=3");
}

void sentinels_await_master(int port) {
    char said[16];
    snprintf(said, sizeof said, ":%d,", port);
    for (int i = 0; i < SENTINELS; i++) await_said(&sentinels[i], "INFO sentinel", said);
}

void sentinels_stop(void) {
    for (int i = 0; i < SENTINELS; i++) server_stop(&sentinels[i]);
}
