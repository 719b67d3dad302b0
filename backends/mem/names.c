/* Spaces and names, and their handling of fork(). */
#include "mem.h"

#include <pthread.h>
#include <search.h>
#include <stdlib.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct mem_space *spaces;
static unsigned process;

void mem_lock(void) {
    pthread_mutex_lock(&mutex);
}

void mem_unlock(void) {
    pthread_mutex_unlock(&mutex);
}

static void forked(void) {
    process++;
    mem_unlock();
}

static void watch_forks(void) {
    pthread_atfork(mem_lock, mem_unlock, forked);
}

struct mem_space *mem_space(const char *path) {
    pthread_once(&once, watch_forks);
    mem_lock();
    struct mem_space *space = spaces;
    while (space && (space->process != process || strcmp(space->path, path) != 0)) space = space->next;
    if (!space && (space = calloc(1, sizeof *space + strlen(path) + 1))) {
        strcpy(space->path, path);
        space->process = process;
        space->next = spaces;
        spaces = space;
    }
    mem_unlock();
    return space;
}

static int by_text(const void *a, const void *b) {
    const struct mem_name *left = a, *right = b;
    return strcmp(left->text, right->text);
}

struct mem_name *mem_find(struct mem_space *space, const char *text) {
    struct mem_name key;
    snprintf(key.text, sizeof key.text, "%s", text);
    void *node = tfind(&key, &space->names, by_text);
    return node ? *(struct mem_name **)node : NULL;
}

struct mem_name *mem_make(struct mem_space *space, const char *text) {
    struct mem_name *name = mem_find(space, text);
    if (name || !(name = calloc(1, sizeof *name))) return name;
    snprintf(name->text, sizeof name->text, "%s", text);
    if (tsearch(name, &space->names, by_text)) return name;
    free(name);
    return NULL;
}

void mem_tidy(struct mem_space *space, struct mem_name *name) {
    if (name->holders || name->queue) return;
    tdelete(name, &space->names, by_text);
    free(name);
}

struct page {
    const char *prefix, *after;
    char (*out)[MEM_NAME_MAX + 1];
    size_t n, max;
};

/* The page of the present walk, guarded by the mutex. It is global because twalk(3) passes no argument to its callback,
 * and musl has no twalk_r. */
static struct page *page;

static void visit(const void *node, VISIT which, int depth) {
    const struct mem_name *name = *(struct mem_name *const *)node;
    (void)depth;
    if (which != postorder && which != leaf) return;
    if (page->n == page->max || strncmp(name->text, page->prefix, strlen(page->prefix)) != 0) return;
    if (strcmp(name->text, page->after) > 0) strcpy(page->out[page->n++], name->text);
}

size_t mem_page(struct mem_space *space, const char *prefix, const char *text, char (*out)[MEM_NAME_MAX + 1],
                size_t max) {
    struct page own = {prefix, text, out, 0, max};
    page = &own;
    twalk(space->names, visit);
    return own.n;
}
