/* A proxy in front of a server on loopback, in a thread of its own. It passes on everything, later if that is asked,
 * and can fall silent. */
#ifndef DLOCK_TESTS_SUPPORT_RELAY_H
#define DLOCK_TESTS_SUPPORT_RELAY_H

#include <stdbool.h>
#include <stddef.h>

enum { RELAY_PAIRS = 256 };

struct relay;
struct relay *relay_new(int server_port);
/* On this loopback address and port; NULL where the port is taken. */
struct relay *relay_at(const char *address, int port, int server_port);
/* The same on 127.0.0.1 for a server on a Unix socket. What clients say is passed through `edit`; `before` is the byte
 * before it, '\n' at the beginning. Fails the test where the port is taken. */
typedef void relay_edit(char *bytes, size_t size, char before);
struct relay *relay_to_socket(int port, const char *path, relay_edit *edit);
void relay_end(struct relay *relay);
int relay_port(const struct relay *relay);

/* Bytes that come from now on wait here that long, in either direction. */
void relay_delay(struct relay *relay, int ms);

/* What goes this way from now on, its end too, stays behind until that is set back. */
enum relay_way { RELAY_ANSWERS, RELAY_REQUESTS };
void relay_hold(struct relay *relay, enum relay_way way, bool hold);

/* Answers that come from now on are lost until that is set back, which resets the connections that have lost one: no
 * stream has a hole. */
void relay_lose(struct relay *relay, bool lose);
/* Of the answers that come from now on one in so many is lost, and resets its connection at once; 0: none. The first
 * ones of a connection are spared, so that clients get past its set-up. */
void relay_snatch(struct relay *relay, int one_in);
/* How many connections have lost answers so far, in either way. */
int relay_lost(struct relay *relay);

/* Bytes pass a few at a time, a millisecond apart, until that is set back. */
void relay_dribble(struct relay *relay, bool dribble);

/* Sends once more, over new connections, what the clients have said so far (as much as is kept), and hears nobody's
 * answer: a late duplicate. */
void relay_repeat(struct relay *relay);

/* The connections through which a client has said this word pass nothing on any more, and stay open; later ones do.
 * Returns how many there were. */
int relay_mute(struct relay *relay, const char *word);

/* The same for those, too, that say it from now on: what they say then does not pass. */
void relay_cut(struct relay *relay, const char *word);

/* How many clients have connected so far. */
int relay_taken(struct relay *relay);
/* How often clients have spoken after their server: round trips, where what is said at once passes within the delay. */
int relay_trips(struct relay *relay);
/* Ends the connections, by a reset on both sides; takes new ones as ever. */
void relay_hang_up(struct relay *relay);
/* The same, and new ones end at once, until that is set back. */
void relay_refuse(struct relay *relay, bool refuse);
/* Shows what clients say to `look` before it passes; `pair` is less than RELAY_PAIRS, and `first` is set when that
 * connection is new. It runs in the relay's thread and returns what is to happen then. */
enum relay_reaction { RELAY_PASS = 0, RELAY_END_IT = 1, RELAY_HOLD = 2 }; /* bits. END_IT: instead of the next answer */
typedef int relay_look(void *arg, size_t pair, bool first, const char *bytes, size_t size);
void relay_watch(struct relay *relay, relay_look *look, void *arg);
/* Nothing passes any more, and nobody is told; clients still connect. */
void relay_silence(struct relay *relay);

#endif
