/* The rhythm of a name whose waiters poll. From the fences in busy answers it learns how long others hold the name, and
 * so predicts when the present grant will end. Around that time a waiter asks several times in short succession,
 * instead of at any time. The prediction affects only when a waiter asks: if holds differ widely in length, it asks as
 * if nothing were known, or sooner. */
#include "state/client.h"

#include <stdlib.h>

/* The prediction makes a waiter ask once per APART_US on average, but up to IN_A_ROW times in a row. A waiter
 * whose turn is probably more than NEXT_ONES grants away asks less often, in favour of those that have waited longer.
 * MET_MAX limits a counter. */
enum { APART_US = 2500, IN_A_ROW = 8, NEXT_ONES = 8, MET_MAX = 100000 };

/* Least time between two questions about the end of a grant. */
enum { STEP_US = 250 };

/* Uncertainty of a grant's begin if nothing is known about it. */
static const int64_t BLIND_US = DLOCK__NEVER / 4;

/* Average time between questions: APART_US, or longer if many others are usually granted the name before this
 * process. */
static int64_t apart_us(const struct dlock__rhythm *rhythm) {
    uint32_t met = rhythm->met, usual = rhythm->usual ? rhythm->usual : 2 * met, left = usual > met ? usual - met : 0;
    return left > NEXT_ONES ? (int64_t)APART_US * left / NEXT_ONES : APART_US;
}

/* Learns from a hold by others of `hold_us`, known to within `off_us`. A hold that differs much from earlier ones is
 * ignored, but after two of them in a row the prediction starts again. */
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
    } else if (!odd && (differs > off_us || off_us < 2 * rhythm->off_us)) { /* otherwise it tells nothing new */
        rhythm->hold_us += more / 4;
        rhythm->off_us += (differs + off_us / 4 - rhythm->off_us) / 4;
    }
}

/* Notes that the grant seen last has ended since: halfway between then and now, to within half of that time. */
static void ended(struct dlock__rhythm *rhythm, int64_t now_us) {
    int64_t off_us = (now_us - rhythm->seen_us) / 2, at_us = rhythm->seen_us + off_us;
    if (!rhythm->guessed) learn(rhythm, at_us - rhythm->since_us, rhythm->blur_us + off_us);
    rhythm->guessed = false;
    rhythm->since_us = at_us;
    rhythm->blur_us = off_us;
}

/* Estimates the begin of a grant that began unobserved. Since this process released the name others have had turns of
 * hold_us each, without a gap if there were enough of them, and each a little late: rather counts one turn too few than
 * one too many. */
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
    if (!rhythm->hold_us) learn(rhythm, held_us, held_us / 8); /* others may hold it for as long as this process */
}

/* True if holds by others are similar enough for a prediction. */
static bool is_regular(const struct dlock__rhythm *rhythm) {
    return rhythm->off_us < rhythm->hold_us / 4;
}

bool dlock__rhythm_is_known(const struct dlock__rhythm *rhythm) {
    return rhythm && rhythm->fence && is_regular(rhythm) && rhythm->blur_us < rhythm->hold_us / 4 &&
           rhythm->seen_us < rhythm->since_us + rhythm->hold_us + rhythm->hold_us / 4;
}

/* Returns the time of the next question around the predicted end: its begin, or one step from now. */
static int64_t around_end(const struct dlock__rhythm *rhythm, struct dlock_client *client, int64_t now_us) {
    int64_t step_us = rhythm->off_us > 2 * STEP_US ? rhythm->off_us / 2 : STEP_US,
            off_us = rhythm->off_us + rhythm->blur_us;
    int64_t first_us = rhythm->since_us + rhythm->hold_us - off_us - dlock__jitter(client, 0, step_us);
    if (now_us < first_us) return first_us;
    return now_us + dlock__jitter(client, step_us / 2, step_us + step_us / 2);
}

/* Returns the time of the next question without a prediction: often enough to notice roughly when a grant ends, however
 * long it lasts. */
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
