/* Answers of the gateway: JSON, with 64-bit numbers as strings. */
#include "etcd.h"

#include <errno.h>
#include <stdlib.h>

int64_t etcd_int(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (!value) return 0;
    if (json_is_integer(value)) return json_integer_value(value) >= 0 ? json_integer_value(value) : -1;
    const char *text = json_string_value(value);
    if (!text || !*text || strlen(text) > 20 || strspn(text, "0123456789") != strlen(text)) return -1;
    errno = 0;
    int64_t number = strtoll(text, NULL, 10);
    return errno == 0 ? number : -1;
}

const char *etcd_string(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

bool etcd_reply_read(struct etcd_reply *reply, const char *text, size_t n) {
    json_error_t why;
    reply->body = NULL;
    /* of a stream, the first answer is read */
    reply->root = json_loadb(text ? text : "", n, JSON_DISABLE_EOF_CHECK, &why);
    if (!json_is_object(reply->root)) {
        etcd_reply_end(reply);
        return false;
    }
    json_t *result = json_object_get(reply->root, "result");
    reply->body = json_is_object(result) ? result : reply->root;
    const json_t *header = json_object_get(reply->body, "header");
    int64_t term = etcd_int(header, "raft_term"), revision = etcd_int(header, "revision");
    if (term < 0 || revision < 0) {
        etcd_reply_end(reply);
        return false;
    }
    reply->term = (uint64_t)term;
    reply->revision = revision;
    const char *cluster = etcd_string(header, "cluster_id");
    reply->cluster = cluster ? strtoull(cluster, NULL, 10) : 0;
    return true;
}

void etcd_reply_end(struct etcd_reply *reply) {
    json_decref(reply->root);
    reply->root = reply->body = NULL;
}

json_t *etcd_response(const json_t *transaction, size_t i, const char *kind) {
    json_t *response = json_object_get(json_array_get(json_object_get(transaction, "responses"), i), kind);
    return json_is_object(response) ? response : NULL;
}
