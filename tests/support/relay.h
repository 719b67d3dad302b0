/* A proxy in front of a server on loopback, in a thread of its own. It passes on everything, later if that is asked,
 * and can fall silent. */
#ifndef DLOCK_TESTS_SUPPORT_RELAY_H
#define DLOCK_TESTS_SUPPORT_RELAY_H

#include <stdbool.h>
#include <stddef.h>

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

/* Answers of servers that come from now on stay here until that is set back. */
void relay_hold(struct relay *relay, bool hold);

/* The connections through which a client has said this word pass nothing on any more, and stay open; later ones do.
 * Returns how many there were. */
int relay_mute(struct relay *relay, const char *word);

/* How many clients have connected so far. */
int relay_taken(struct relay *relay);
/* How often clients have spoken after their server: round trips, where what is said at once passes within the delay. */
int relay_trips(struct relay *relay);
/* Ends the connections; takes new ones as ever. */
void relay_hang_up(struct relay *relay);
/* Nothing passes any more, and nobody is told; clients still connect. */
void relay_silence(struct relay *relay);

#endif
