/* The rhythm of a name whose waiters poll: how long others hold it, learned from the fences that busy answers tell, and
 * so when the present grant is likely to end. A waiter asks then, a few times close to each other, instead of at any
 * time. That is a guess about when to ask, and about nothing else: where others hold the name for now this and now that
 * long, questions come as if nothing was known, or sooner. */
#include "state/client.h"

#include <stdlib.h>

/* On the average a waiter asks no more often than that because of what it has learned, but several times in a row. In a
 * crowd those whose turn is far off ask less often: they leave it to those who have waited for longer. */
enum { APART_US = 2500, IN_A_ROW = 8, NEXT_ONES = 8, MET_MAX = 100000 };

/* Questions about the end of a grant are at least that far apart. */
enum { STEP_US = 250 };

/* Nobody knows since when it has been held. */
static const int64_t BLIND_US = DLOCK__NEVER / 4;

static int64_t apart_us(const struct dlock__rhythm *rhythm) {
    uint32_t met = rhythm->met, usual = rhythm->usual ? rhythm->usual : 2 * met, left = usual > met ? usual - met : 0;
    return left > NEXT_ONES ? (int64_t)APART_US * left / NEXT_ONES : APART_US;
}

/* Somebody held the name for about `hold_us`, give or take `off_us`. One that is quite unlike those before says little of
 * the next, but two in a row do. */
static void learn(struct dlock__rhythm *rhythm, int64_t hold_us, int64_t off_us) {
    int64_t more = hold_us - rhythm->hold_us, differs = more < 0 ? -more : more;
    bool odd = differs > off_us && (hold_us > 2 * rhythm->hold_us || rhythm->hold_us > 2 * hold_us);
    bool again = odd && rhythm->odd;
    rhythm->odd = odd && !again;
    if (again) rhythm->hold_us = 0;
    if (hold_us < 2 * off_us || hold_us == 0) return; /* too vague */
    if (!rhythm->hold_us) {
        rhythm->hold_us = hold_us;
        rhythm->off_us = off_us;
    } else if (!odd && (differs > off_us || off_us < 2 * rhythm->off_us)) { /* else it says nothing new */
        rhythm->hold_us += more / 4;
        rhythm->off_us += (differs + off_us / 4 - rhythm->off_us) / 4;
    }
}

/* The grant that was in the way has ended since it was seen. */
static void ended(struct dlock__rhythm *rhythm, int64_t now_us) {
    int64_t off_us = (now_us - rhythm->seen_us) / 2, at_us = rhythm->seen_us + off_us;
    if (!rhythm->guessed) learn(rhythm, at_us - rhythm->since_us, rhythm->blur_us + off_us);
    rhythm->guessed = false;
    rhythm->since_us = at_us;
    rhythm->blur_us = off_us;
}

/* A grant that began while nobody looked. Since this process gave its own back others have had their turns, one after
 * the other if there were enough of them, each a little later than it could: rather the one before than the one after. */
static void guess(struct dlock__rhythm *rhythm, int64_t now_us) {
    int64_t passed_us = now_us - rhythm->released_us, hold_us = rhythm->hold_us, late_us = hold_us / 8;
    bool blind = !hold_us || !rhythm->released_us;
    int64_t turns = blind || passed_us < late_us ? 0 : (passed_us - late_us) / hold_us;
    rhythm->guessed = true;
    rhythm->since_us = blind ? now_us : rhythm->released_us + turns * hold_us;
    rhythm->blur_us = blind ? BLIND_US : turns * late_us;
}

void dlock__rhythm_busy(struct dlock__rhythm **keep, uint64_t fence, int64_t now_us) {
    if (!*keep && fence) *keep = calloc(1, sizeof **keep);
    if (!*keep) return;
    struct dlock__rhythm *rhythm = *keep;
    int64_t apart = apart_us(rhythm), most_us = now_us + IN_A_ROW * apart;
    rhythm->paid_us = (rhythm->paid_us > now_us ? rhythm->paid_us : now_us) + apart;
    if (rhythm->paid_us > most_us) rhythm->paid_us = most_us;
    if (fence && fence != rhythm->fence) {
        if (rhythm->fence)
            ended(rhythm, now_us);
        else
            guess(rhythm, now_us);
        if (rhythm->met < MET_MAX) rhythm->met++;
    }
    rhythm->fence = fence;
    rhythm->seen_us = now_us;
}

void dlock__rhythm_granted(struct dlock__rhythm *rhythm, int64_t now_us) {
    if (!rhythm) return;
    if (rhythm->fence) ended(rhythm, now_us);
    rhythm->fence = 0;
    rhythm->usual = (5 * rhythm->usual + 2 * rhythm->met) / 8 | 1;
    rhythm->met = 0;
}

void dlock__rhythm_released(struct dlock__rhythm *rhythm, int64_t held_us, int64_t now_us) {
    if (!rhythm) return;
    rhythm->released_us = now_us;
    if (!rhythm->hold_us) learn(rhythm, held_us, held_us / 8); /* others may be like this process */
}

/* How long others hold the name, as long as that can be said. */
static bool is_regular(const struct dlock__rhythm *rhythm) {
    return rhythm->off_us < rhythm->hold_us / 4;
}

bool dlock__rhythm_is_known(const struct dlock__rhythm *rhythm) {
    return rhythm && rhythm->fence && is_regular(rhythm) && rhythm->blur_us < rhythm->hold_us / 4 &&
           rhythm->seen_us < rhythm->since_us + rhythm->hold_us + rhythm->hold_us / 4;
}

/* Close to each other around the end that is expected. */
static int64_t around_end(const struct dlock__rhythm *rhythm, struct dlock_client *client, int64_t now_us) {
    int64_t step_us = rhythm->off_us > 2 * STEP_US ? rhythm->off_us / 2 : STEP_US,
            off_us = rhythm->off_us + rhythm->blur_us;
    int64_t first_us = rhythm->since_us + rhythm->hold_us - off_us - dlock__jitter(client, 0, step_us);
    if (now_us < first_us) return first_us;
    return now_us + dlock__jitter(client, step_us / 2, step_us + step_us / 2);
}

/* Often enough to see about when a grant ends, however long it lasts. */
static int64_t all_along(const struct dlock__rhythm *rhythm, struct dlock_client *client, int64_t now_us) {
    int64_t step_us = (is_regular(rhythm) ? rhythm->hold_us : now_us - rhythm->since_us) / 8,
            least_us = apart_us(rhythm);
    if (step_us < least_us) step_us = least_us;
    return now_us + dlock__jitter(client, step_us / 2, step_us + step_us / 2);
}

int64_t dlock__rhythm_next(const struct dlock__rhythm *rhythm, struct dlock_client *client, int64_t now_us) {
    if (!rhythm || !rhythm->fence) return DLOCK__NEVER;
    if (!dlock__rhythm_is_known(rhythm)) return all_along(rhythm, client, now_us);
    int64_t at_us = around_end(rhythm, client, now_us), least_us = rhythm->paid_us - (IN_A_ROW - 1) * apart_us(rhythm);
    return at_us > least_us ? at_us : least_us;
}
