#include "queue_scene.h"

void scene_begin(struct scene *s, const char *name) {
    link_new(&s->holder, 'a');
    link_new(&s->first, 'b');
    link_new(&s->second, 'c');
    link_new(&s->first_ear, 'b');
    link_new(&s->second_ear, 'c');
    link_listen(&s->first_ear);
    link_listen(&s->second_ear);
    held_new(&s->held, &s->holder, name);
    held_new(&s->one, &s->first, name);
    held_new(&s->two, &s->second, name);
    assert_int_equal(acquire(&s->holder, &s->held), 0);
    assert_int_equal(queue_up(&s->first, &s->one), DLOCK_EBUSY);
    assert_int_equal(queue_up(&s->second, &s->two), DLOCK_EBUSY);
}

void scene_end(struct scene *s) {
    link_end(&s->holder);
    link_end(&s->first);
    link_end(&s->second);
    link_end(&s->first_ear);
    link_end(&s->second_ear);
}

void assert_granted(const struct dlock_wake *wake, const struct held *held, uint64_t after) {
    assert_int_equal(wake->kind, DLOCK_WAKE_GRANTED);
    assert_string_equal(wake->name, held->claim.name);
    assert_string_equal(wake->token, held->token);
    assert_true(wake->fence > after);
    assert_true(wake->server_us > 0);
}

int64_t waiting(const char *name) {
    return sql_number("SELECT count(*) FROM {}.queue WHERE name = '%s'", name);
}
