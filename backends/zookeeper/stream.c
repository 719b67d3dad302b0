/* The library trusts its server: an answer that is too short makes it free what it never set, one to no request makes
 * it abort, and a false length makes it ask for gigabytes. So every answer is collected and looked through here before
 * the library gets its first byte: it must belong to the oldest request, and its parts must lie inside it. What makes
 * no sense ends the connection, as if the network had. */
#include "zookeeper.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

enum {
    ANSWER_MAX = 64 << 20, /* far more than the server's own limit, jute.maxbuffer */
    HEADER = 16,           /* xid, zxid, code */
    STAT = 68,
    TYPE_CREATE = 1,
    TYPE_DELETE = 2,
    TYPE_GET = 4,
    TYPE_CHILDREN = 8,
    TYPE_MULTI = 14,
    TYPE_CREATE2 = 15,
    TYPE_CONTAINER = 19,
    PART = 9 /* of a transaction: type, whether it is the end, code */
};

/* xids that answer no request of their own: events, pings, credentials, watches set anew. */
#define XID_EVENT ((uint32_t)-1)
#define XID_PING ((uint32_t)-2)
#define XID_AUTH ((uint32_t)-4)
#define XID_WATCHES ((uint32_t)-8)
#define XID_GREETING ((uint32_t)-100) /* nobody's; the first message has none */

static uint32_t number(const unsigned char *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

void zookeeper_stream_begin(struct zookeeper_stream *stream) {
    stream->greeted_them = stream->greeted_us = stream->whole = stream->timing = stream->out_noted = false;
    stream->touched_us = 0;
    stream->pings = 0;
    stream->out_used = stream->out_left = stream->sent_first = stream->sent_end = stream->have = stream->given = 0;
}

void zookeeper_stream_end(struct zookeeper_stream *stream) {
    free(stream->sent);
    free(stream->answer);
    stream->sent = NULL;
    stream->answer = NULL;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static bool note(struct zookeeper_stream *stream, uint32_t xid, uint32_t type, bool two) {
    if (stream->sent_end == stream->sent_room) {
        size_t live = stream->sent_end - stream->sent_first;
        if (stream->sent_first > 0 && live < stream->sent_room / 2) {
            memmove(stream->sent, stream->sent + stream->sent_first, live * sizeof *stream->sent);
        } else {
            size_t room = stream->sent_room ? stream->sent_room * 2 : 64;
            struct zookeeper_sent *more = calloc(room, sizeof *more);
            if (!more) return false;
            if (live) memcpy(more, stream->sent + stream->sent_first, live * sizeof *more);
            free(stream->sent);
            stream->sent = more;
            stream->sent_room = room;
        }
        stream->sent_first = 0;
        stream->sent_end = live;
    }
    stream->sent[stream->sent_end].xid = xid;
    stream->sent[stream->sent_end].type = type;
    stream->sent[stream->sent_end++].two = two;
    return true;
}

/* Pings all have the same xid: none is timed while another is on its way. */
static void begin_timing(struct zookeeper_stream *stream, uint32_t xid, int64_t sent_us) {
    bool ping = xid == XID_PING && stream->greeted_them;
    if (!stream->timing && !(ping && stream->pings > 0)) {
        stream->timing = true;
        stream->timed_xid = xid;
        stream->timed_us = sent_us;
    }
    if (ping) stream->pings++;
}

static void end_timing(struct zookeeper_stream *stream, uint32_t xid) {
    if (xid == XID_PING && stream->pings > 0) stream->pings--;
    if (!stream->timing || xid != stream->timed_xid) return;
    stream->timing = false;
    stream->touched_us = stream->timed_us;
}

/* So much of a request is looked at. */
static size_t head_size(const struct zookeeper_stream *stream) {
    bool transaction = stream->greeted_them && stream->out_used >= 12 && number(stream->out_head + 8) == TYPE_MULTI;
    return transaction ? 16 : 12;
}

/* A request's head has passed. */
static bool note_request(struct zookeeper_stream *stream, int64_t sent_us) {
    bool first = !stream->greeted_them;
    uint32_t xid = first ? XID_GREETING : number(stream->out_head + 4);
    if (xid != XID_AUTH && xid != XID_WATCHES) begin_timing(stream, xid, sent_us);
    stream->greeted_them = true;
    if (first || xid == XID_PING || xid == XID_AUTH || xid == XID_WATCHES) return true;
    return note(stream, xid, number(stream->out_head + 8), number(stream->out_head + 12) == TYPE_CREATE);
}

bool zookeeper_stream_sent(struct zookeeper_stream *stream, const unsigned char *data, size_t size, int64_t sent_us) {
    while (size > 0) {
        if (!stream->out_noted) {
            stream->out_head[stream->out_used++] = *data++;
            size--;
            if (stream->out_used < head_size(stream)) continue;
            stream->out_noted = true;
            stream->out_left = number(stream->out_head) + 4 - stream->out_used;
            if (!note_request(stream, sent_us)) return false;
        } else {
            size_t part = stream->out_left < size ? stream->out_left : size;
            stream->out_left -= part;
            data += part;
            size -= part;
        }
        if (!stream->out_noted || stream->out_left > 0) continue;
        stream->out_noted = false;
        stream->out_used = 0;
    }
    return true;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

struct rest {
    const unsigned char *at;
    size_t left;
};

static bool skip(struct rest *rest, size_t size) {
    if (rest->left < size) return false;
    rest->at += size;
    rest->left -= size;
    return true;
}

/* A length and so many bytes; -1, for nothing at all, only in data. */
static bool skip_text(struct rest *rest, bool data) {
    if (rest->left < 4) return false;
    uint32_t length = number(rest->at);
    if (data && length == UINT32_MAX) length = 0;
    return skip(rest, 4) && length <= INT32_MAX && skip(rest, length);
}

static bool skip_texts(struct rest *rest) {
    if (rest->left < 4) return false;
    uint32_t count = number(rest->at);
    skip(rest, 4);
    if (count > rest->left / 4) return false;
    while (count-- > 0)
        if (!skip_text(rest, false)) return false;
    return true;
}

/* Of a transaction: how each part went, with what it made, and the end. */
static bool transaction_sensible(bool two, struct rest rest) {
    for (int parts = two ? 2 : 1; parts > 0; parts--) {
        if (rest.left < PART || rest.at[4] != 0) return false;
        bool refused = number(rest.at) == UINT32_MAX, made = two && parts == 2;
        skip(&rest, PART);
        if (refused ? !skip(&rest, 4) : made && !skip_text(&rest, false)) return false;
    }
    return rest.left >= PART && rest.at[4] == 1;
}

static bool answer_sensible(const struct zookeeper_sent *sent, struct rest rest) {
    switch (sent->type) {
    case TYPE_CREATE2: return skip_text(&rest, false) && skip(&rest, STAT);
    case TYPE_GET: return skip_text(&rest, true) && skip(&rest, STAT);
    case TYPE_CHILDREN: return skip_texts(&rest);
    case TYPE_CONTAINER: return skip_text(&rest, false);
    case TYPE_MULTI: return transaction_sensible(sent->two, rest);
    case TYPE_DELETE: return true;
    default: return false; /* nothing else is ever asked but goodbye, and then nobody listens */
    }
}

static bool greeting_sensible(const struct zookeeper_stream *stream) {
    if (stream->have != 4 + 36 && stream->have != 4 + 37) return false;
    const unsigned char *at = stream->answer + 4; /* version, timeout, session, length of the password */
    bool expired = number(at + 8) == 0 && number(at + 12) == 0, endless = number(at + 4) > INT32_MAX;
    return !endless && (number(at + 4) > 0 || expired) && number(at + 16) == 16;
}

static bool sensible(struct zookeeper_stream *stream) {
    struct rest rest = {stream->answer + 4, stream->have - 4};
    if (!stream->greeted_us) {
        stream->greeted_us = true;
        end_timing(stream, XID_GREETING);
        return greeting_sensible(stream);
    }
    if (rest.left < HEADER) return false;
    uint32_t xid = number(rest.at), code = number(rest.at + 12);
    skip(&rest, HEADER);
    end_timing(stream, xid);
    if (xid == XID_EVENT) return skip(&rest, 8) && skip_text(&rest, false);
    if (xid == XID_PING || xid == XID_AUTH || xid == XID_WATCHES) return true;
    if (stream->sent_first == stream->sent_end || stream->sent[stream->sent_first].xid != xid) return false;
    struct zookeeper_sent sent = stream->sent[stream->sent_first++];
    if (stream->sent_first == stream->sent_end) stream->sent_first = stream->sent_end = 0;
    return code != 0 || answer_sensible(&sent, rest);
}

/* Makes room for `size` bytes, little by little: a length alone is worth nothing. */
static bool make_room(struct zookeeper_stream *stream, size_t size) {
    size_t room = stream->room * 2 > 4096 ? stream->room * 2 : 4096;
    if (stream->have < stream->room && stream->room >= 4) return true;
    if (room > size && size >= 4096) room = size;
    unsigned char *more = realloc(stream->answer, room);
    if (!more) return false;
    stream->answer = more;
    stream->room = room;
    return true;
}

/* Reads on: 1 = the answer is whole; 0, or -1 and errno, as recv(2). */
static int collect(struct zookeeper_stream *stream, int fd, int flags) {
    for (;;) {
        size_t size = stream->have < 4 ? 4 : (size_t)number(stream->answer) + 4;
        if (size > ANSWER_MAX || (stream->have >= 4 && size == 4)) {
            errno = EPROTO;
            return -1;
        }
        if (stream->have >= 4 && stream->have == size) return 1;
        if (!make_room(stream, size)) {
            errno = ENOMEM;
            return -1;
        }
        size_t part =
            size - stream->have < stream->room - stream->have ? size - stream->have : stream->room - stream->have;
        ssize_t n = recv(fd, stream->answer + stream->have, part, flags);
        if (n <= 0) return (int)n;
        stream->have += (size_t)n;
    }
}

ssize_t zookeeper_stream_recv(struct zookeeper_stream *stream, int fd, void *data, size_t size, int flags) {
    if (!stream->whole) {
        int rc = collect(stream, fd, flags);
        if (rc <= 0) return rc;
        if (!sensible(stream)) {
            errno = EPROTO;
            return -1;
        }
        stream->whole = true;
    }
    size_t part = stream->have - stream->given < size ? stream->have - stream->given : size;
    memcpy(data, stream->answer + stream->given, part);
    stream->given += part;
    if (stream->given == stream->have) {
        stream->whole = false;
        stream->have = stream->given = 0;
    }
    return (ssize_t)part;
}
