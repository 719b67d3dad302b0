/* dlock-relay SERVER_PORT: starts a proxy (tests/support/relay.h) in front of that server, prints the proxy's port, and
 * obeys the commands on its standard input, one a line, until the input ends:
 *
 *     delay MS | hold answers | hold requests | lose | dribble | repeat | hang-up | snatch ONE_IN | well | lost
 *
 * `well` ends all faults that last, except for `snatch`, which `snatch 0` ends; `lost` prints how many connections have
 * lost answers. */
#include "support/relay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void well(struct relay *relay) {
    relay_delay(relay, 0);
    relay_hold(relay, RELAY_ANSWERS, false);
    relay_hold(relay, RELAY_REQUESTS, false);
    relay_lose(relay, false);
    relay_dribble(relay, false);
}

static bool obey(struct relay *relay, const char *word, const char *rest) {
    if (strcmp(word, "delay") == 0)
        relay_delay(relay, atoi(rest));
    else if (strcmp(word, "hold") == 0)
        relay_hold(relay, strcmp(rest, "answers") == 0 ? RELAY_ANSWERS : RELAY_REQUESTS, true);
    else if (strcmp(word, "lose") == 0)
        relay_lose(relay, true);
    else if (strcmp(word, "snatch") == 0)
        relay_snatch(relay, atoi(rest));
    else if (strcmp(word, "dribble") == 0)
        relay_dribble(relay, true);
    else if (strcmp(word, "repeat") == 0)
        relay_repeat(relay);
    else if (strcmp(word, "hang-up") == 0)
        relay_hang_up(relay);
    else if (strcmp(word, "well") == 0)
        well(relay);
    else if (strcmp(word, "lost") == 0)
        printf("%d\n", relay_lost(relay)), fflush(stdout);
    else
        return false;
    return true;
}

int main(int argc, char **argv) {
    char line[64], word[32], rest[32];
    if (argc != 2) {
        fprintf(stderr, "dlock-relay SERVER_PORT\n");
        return 64;
    }
    struct relay *relay = relay_new(atoi(argv[1]));
    printf("%d\n", relay_port(relay));
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        *rest = '\0';
        if (sscanf(line, "%31s %31s", word, rest) >= 1 && obey(relay, word, rest)) continue;
        fprintf(stderr, "dlock-relay: %s", line);
        return 64;
    }
    relay_end(relay);
    return 0;
}
