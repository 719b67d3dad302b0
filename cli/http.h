/* A page for readers that speak HTTP, such as Prometheus. */
#ifndef DLOCK_CLI_HTTP_H
#define DLOCK_CLI_HTTP_H

#include "cli.h"

#include <stdio.h>

/* Writes the page. False: it cannot be made, which the reader is told. */
typedef bool http_page(FILE *out, void *arg);

/* Answers GET and HEAD for /metrics at `address`, "[HOST:]PORT", where HOST is an address or a name, by default
 * 127.0.0.1, and PORT 0 a free one; says on stderr where. One request at a time. Does not return, except with the status
 * of an error, which it has printed. */
int http_serve(const struct command *command, const char *address, http_page *page, void *arg);

#endif
