/* A proxy in front of a server on loopback, in its own thread. It passes everything on, with a delay if that is set,
 * and can be told to lose, hold or cut what passes. */
#ifndef DLOCK_TESTS_SUPPORT_RELAY_H
#define DLOCK_TESTS_SUPPORT_RELAY_H

#include <stdbool.h>
#include <stddef.h>

enum { RELAY_PAIRS = 256 };

struct relay;
struct relay *relay_new(int server_port);
/* The same on this loopback address and port. NULL: the port is taken. */
struct relay *relay_at(const char *address, int port, int server_port);
/* The same on 127.0.0.1 for a server on a Unix socket. Bytes from clients go through `edit`; `before` is the preceding
 * byte, '\n' at the beginning. Fails the test if the port is taken. */
typedef void relay_edit(char *bytes, size_t size, char before);
struct relay *relay_to_socket(int port, const char *path, relay_edit *edit);
void relay_end(struct relay *relay);
/* One that the end of its block ends: SCOPED_RELAY *relay = relay_new(port). */
#define SCOPED_RELAY __attribute__((cleanup(relay_end_scoped))) struct relay
static inline void relay_end_scoped(struct relay **relay) {
    relay_end(*relay);
}
int relay_port(const struct relay *relay);

/* Delays bytes that arrive from now on by `ms`, in both directions. */
void relay_delay(struct relay *relay, int ms);

/* Holds back what is sent in this direction from now on, the end of the stream included, until it is set back. */
enum relay_way { RELAY_ANSWERS, RELAY_REQUESTS };
void relay_hold(struct relay *relay, enum relay_way way, bool hold);

/* Loses the answers that arrive from now on, until it is set back. That resets the connections that have lost an
 * answer, since a stream cannot have a hole. */
void relay_lose(struct relay *relay, bool lose);
/* Loses one of `one_in` answers from now on, at random, and resets its connection at once; 0: none. The first answers
 * of a connection are spared, so that clients get past its set-up. */
void relay_snatch(struct relay *relay, int one_in);
/* Returns how many connections have lost answers up to now, by either function. */
int relay_lost(struct relay *relay);

/* Passes bytes on a few at a time, a millisecond apart, until it is set back. */
void relay_dribble(struct relay *relay, bool dribble);

/* Passes only the first byte of each answer on from now on. */
void relay_stop_short(struct relay *relay);

/* Sends the bytes received from clients up to now (as many as are kept) once more, over new connections whose answers
 * are not read: late duplicates. */
void relay_repeat(struct relay *relay);

/* Stops the connections through which a client has sent this word: they pass nothing on any more, and stay open.
 * Returns their number. Connections that send it later are not affected. */
int relay_mute(struct relay *relay, const char *word);

/* The same, also for connections that send the word later: it does not pass. */
void relay_cut(struct relay *relay, const char *word);

/* Returns how many clients have connected up to now. */
int relay_taken(struct relay *relay);
/* Returns how often clients have sent something after their server had: the number of round trips, as long as what is
 * sent at once arrives within the delay. */
int relay_trips(struct relay *relay);
/* Resets all connections on both sides; new ones are still accepted. */
void relay_hang_up(struct relay *relay);
/* The same, and new connections end at once, until it is set back. */
void relay_refuse(struct relay *relay, bool refuse);
/* Shows what clients send to `look` before it passes. `pair` is less than RELAY_PAIRS; `first` is set when that
 * connection is new. `look` runs in the relay's thread and returns what happens next. */
/* Bits. END_IT: instead of the next answer. MUTE: as relay_mute, from these bytes on. */
enum relay_reaction { RELAY_PASS = 0, RELAY_END_IT = 1, RELAY_HOLD = 2, RELAY_MUTE = 4 };
typedef int relay_look(void *arg, size_t pair, bool first, const char *bytes, size_t size);
void relay_watch(struct relay *relay, relay_look *look, void *arg);
/* Stops passing anything on, without an end of any connection; clients can still connect. */
void relay_silence(struct relay *relay);

#endif
