/* Servers, and a client that has nothing to do with dlock. */
#include "harness.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- servers ----------------------------------------------------------------------------------------------------- */

int shared_port(void) {
    const char *address = getenv("DLOCK_TEST_ZOOKEEPER"), *colon = address ? strrchr(address, ':') : NULL;
    if (!colon) fail_msg("no server: run the tests with tests/run.sh");
    return atoi(colon + 1);
}

/* Runs the servers' script. Its first line of output goes into `line`. */
static void script(const char *verb, const char *folder, char *line, int size) {
    char command[512];
    snprintf(command, sizeof command, "'%s' %s '%s'", DLOCK_ZOOKEEPER_SCRIPT, verb, folder);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    if (!fgets(line, size, pipe)) *line = '\0';
    while (fgetc(pipe) != EOF) {
    }
    assert_int_equal(pclose(pipe), 0);
}

void site_start(struct site *site) {
    char line[128];
    snprintf(site->folder, sizeof site->folder, "/tmp/dlock-zookeeper.XXXXXX");
    assert_non_null(mkdtemp(site->folder));
    script("start", site->folder, line, sizeof line);
    const char *colon = strrchr(line, ':');
    assert_non_null(colon);
    site->port = atoi(colon + 1);
}

void site_signal(const struct site *site, int number) {
    char path[128];
    int pid = 0;
    snprintf(path, sizeof path, "%s/zookeeper.pid", site->folder);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%d", &pid), 1);
    fclose(file);
    assert_true(pid > 1);
    assert_int_equal(kill(pid, number), 0);
}

void site_again(const struct site *site) {
    char line[128];
    script("again", site->folder, line, sizeof line);
    script("await", site->folder, line, sizeof line);
}

void site_restart(const struct site *site) {
    site_signal(site, SIGKILL);
    site_again(site);
}

void site_sessions(const struct site *site, int least_ms, int most_ms) {
    char path[128];
    snprintf(path, sizeof path, "%s/zookeeper/zoo.cfg", site->folder);
    FILE *file = fopen(path, "a"); /* of several lines with one key the last counts */
    assert_non_null(file);
    fprintf(file, "minSessionTimeout=%d\nmaxSessionTimeout=%d\n", least_ms, most_ms);
    assert_int_equal(fclose(file), 0);
}

void site_stop(struct site *site) {
    char line[128], command[128];
    script("stop", site->folder, line, sizeof line);
    snprintf(command, sizeof command, "rm -rf '%s'", site->folder);
    assert_int_equal(system(command), 0);
}

/* ---- the plain client -------------------------------------------------------------------------------------------- */

static void quiet(const char *message) {
    (void)message;
}

zhandle_t *plain_to(int port) {
    char host[32];
    snprintf(host, sizeof host, "127.0.0.1:%d", port);
    zoo_deterministic_conn_order(1); /* otherwise it keeps seeding the program's random numbers */
    zhandle_t *handle = zookeeper_init2(host, NULL, 60000, NULL, NULL, ZOO_NO_LOG_CLIENTENV, quiet);
    assert_non_null(handle);
    zoo_set_servers_resolution_delay(handle, -1);
    for (int64_t until = now_ms() + TIMEOUT_MS; zoo_state(handle) != ZOO_CONNECTED_STATE; sleep_ms(5))
        assert_true(now_ms() < until);
    return handle;
}

zhandle_t *plain(void) {
    static zhandle_t *handle;
    if (!handle) handle = plain_to(shared_port());
    return handle;
}

void plain_make(const char *path, const char *data, int flags, char *made, int size) {
    char parent[512];
    for (const char *end = strchr(path + 1, '/'); end; end = strchr(end + 1, '/')) {
        snprintf(parent, sizeof parent, "%.*s", (int)(end - path), path);
        int rc = zoo_create(plain(), parent, "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_CONTAINER, NULL, 0);
        assert_true(rc == ZOK || rc == ZNODEEXISTS);
    }
    assert_int_equal(
        zoo_create(plain(), path, data, (int)strlen(data), &ZOO_OPEN_ACL_UNSAFE, flags, made, made ? size : 0), ZOK);
}

static int list(const char *dir, struct String_vector *nodes) {
    int rc = zoo_get_children(plain(), dir, 0, nodes);
    for (int64_t until = now_ms() + TIMEOUT_MS; rc == ZCONNECTIONLOSS && now_ms() < until; sleep_ms(5))
        rc = zoo_get_children(plain(), dir, 0, nodes);
    return rc;
}

int plain_count(const char *dir) {
    struct String_vector nodes = {0, NULL};
    int rc = list(dir, &nodes), count = nodes.count;
    if (rc == ZNONODE) return 0;
    assert_int_equal(rc, ZOK);
    deallocate_String_vector(&nodes);
    return count;
}

void plain_only(const char *dir, char *path, size_t size) {
    struct String_vector nodes = {0, NULL};
    assert_int_equal(list(dir, &nodes), ZOK);
    assert_int_equal(nodes.count, 1);
    snprintf(path, size, "%s/%s", dir, nodes.data[0]);
    deallocate_String_vector(&nodes);
}

void plain_delete(const char *path) {
    bool uncertain = false; /* a request whose answer was lost may have deleted it */
    int rc = zoo_delete(plain(), path, -1);
    for (int64_t until = now_ms() + TIMEOUT_MS; rc == ZCONNECTIONLOSS && now_ms() < until; sleep_ms(5)) {
        uncertain = true;
        rc = zoo_delete(plain(), path, -1);
    }
    if (rc != ZNONODE || !uncertain) assert_int_equal(rc, ZOK);
}
