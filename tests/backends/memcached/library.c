#include "library.h"

memcached_st *library_new(int port) {
    memcached_st *library = memcached_create(NULL);
    assert_non_null(library);
    assert_int_equal(memcached_server_add(library, "127.0.0.1", (in_port_t)port), MEMCACHED_SUCCESS);
    memcached_behavior_set(library, MEMCACHED_BEHAVIOR_SUPPORT_CAS, 1);
    return library;
}

uint64_t library_id(memcached_st *library, const char *name, const char *value) {
    size_t length = strlen(name);
    memcached_return_t rc = memcached_mget(library, &name, &length, 1);
    memcached_result_st *result = rc == MEMCACHED_SUCCESS ? memcached_fetch_result(library, NULL, &rc) : NULL;
    uint64_t id;
    if (!result) fail_msg("%s: %s", name, memcached_strerror(library, rc));
    assert_int_equal(memcached_result_length(result), strlen(value));
    assert_memory_equal(memcached_result_value(result), value, strlen(value));
    id = memcached_result_cas(result);
    memcached_result_free(result);
    while (memcached_fetch_result(library, NULL, &rc)) {
    }
    return id;
}
