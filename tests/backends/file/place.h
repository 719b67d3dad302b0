/* A temporary directory, its files, and other processes. */
#ifndef DLOCK_TESTS_FILE_PLACE_H
#define DLOCK_TESTS_FILE_PLACE_H

#include "support/clock.h"
#include "support/test.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

/* ---- the directory ---- */

void place_make(char *dir, size_t size);
void place_leave(const char *dir); /* kills the commands that still run, as after a failed test, and removes dir */

/* dir/file: a static buffer, good until the third next call. */
const char *path_in(const char *dir, const char *file);

void file_put(const char *path, const void *data, size_t size);
size_t file_get(const char *path, char *data, size_t size);

/* ---- processes ---- */

int child_end(pid_t pid); /* waits: its exit status; -1 when a signal ended it */
void kill_child(pid_t pid);

int command(const char *const argv[]);         /* runs it: its exit status */
pid_t command_start(const char *const argv[]); /* starts it, and returns when it has written something */
void kill_command(pid_t pid);                  /* with its children */

/* ---- measures ---- */

int count_fds(void);

#endif
