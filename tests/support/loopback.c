#include "support/loopback.h"

#include "support/test.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LISTEN = 10 /* in /proc/net/tcp */ };

static struct sockaddr_in address_of(int port) {
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr = {htonl(INADDR_LOOPBACK)}};
}

static int new_socket(void) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_return_code(fd, errno);
    return fd;
}

static int bound(int *port) {
    struct sockaddr_in address = address_of(0);
    socklen_t size = sizeof address;
    int fd = new_socket();
    assert_return_code(bind(fd, (struct sockaddr *)&address, size), errno);
    assert_return_code(getsockname(fd, (struct sockaddr *)&address, &size), errno);
    *port = ntohs(address.sin_port);
    return fd;
}

int loopback_listen(int *port) {
    int fd = bound(port);
    assert_return_code(listen(fd, 16), errno);
    return fd;
}

int loopback_listen_at(const char *address, int *port) {
    struct sockaddr_in at = address_of(*port);
    socklen_t size = sizeof at;
    int fd = new_socket();
    assert_int_equal(inet_pton(AF_INET, address, &at.sin_addr), 1);
    if (bind(fd, (struct sockaddr *)&at, size) != 0) {
        close(fd);
        return -1;
    }
    assert_return_code(getsockname(fd, (struct sockaddr *)&at, &size), errno);
    assert_return_code(listen(fd, 128), errno);
    *port = ntohs(at.sin_port);
    return fd;
}

int loopback_connect(int port) {
    struct sockaddr_in address = address_of(port);
    int fd = new_socket();
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
    close(fd);
    return -1;
}

/* Where the ports begin that the kernel gives to connections: one that begins there could take the port before the
 * server does. */
static unsigned first_of_connections(void) {
    unsigned first = 0;
    FILE *range = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
    if (range && fscanf(range, "%u", &first) != 1) first = 0;
    if (range) fclose(range);
    return first;
}

int loopback_unused_port(void) {
    enum { LEAST = 10000, TRIES = 100 };
    const unsigned first = first_of_connections();
    int port, fd;
    for (int tries = 0; tries < TRIES && first > 2 * LEAST; tries++) {
        unsigned drawn;
        assert_int_equal(getentropy(&drawn, sizeof drawn), 0);
        port = (int)(LEAST + drawn % (first - LEAST));
        fd = loopback_listen_at("127.0.0.1", &port);
        if (fd < 0) continue;
        close(fd);
        return port;
    }
    fd = bound(&port);
    close(fd);
    return port;
}

/* Returns the inode of the socket that listens on the port; 0: there is none. */
static unsigned long listener_of(int port) {
    char line[512];
    unsigned long found = 0, inode;
    unsigned at, state;
    FILE *table = fopen("/proc/net/tcp", "re");
    assert_non_null(table);
    while (!found && fgets(line, sizeof line, table))
        if (sscanf(line, " %*d: %*8x:%x %*8x:%*x %x %*s %*s %*s %*d %*d %lu", &at, &state, &inode) == 3 &&
            at == (unsigned)port && state == LISTEN)
            found = inode;
    fclose(table);
    return found;
}

bool loopback_listens(pid_t pid, int port) {
    char path[64], socket[64], link[64];
    bool found = false;
    snprintf(socket, sizeof socket, "socket:[%lu]", listener_of(port));
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && !found && (entry = readdir(dir));) {
        ssize_t n = readlinkat(dirfd(dir), entry->d_name, link, sizeof link - 1);
        found = n > 0 && (size_t)n == strlen(socket) && memcmp(link, socket, (size_t)n) == 0;
    }
    if (dir) closedir(dir);
    return found;
}
