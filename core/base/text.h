/* Small texts that more than one file of the core reads or writes. */
#ifndef DLOCK_CORE_BASE_TEXT_H
#define DLOCK_CORE_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Writes the NULL-terminated `items` into `out`, as "a, b, c"; "nothing" when there are none. A trailing '*' of an item
 * is left out; what does not fit is cut and ends in "...". `size` is at least 16. */
void dlock__text_join(char *out, size_t size, const char *const *items);

/* Whether `text` is one or more of a-z, 0-9 and the characters of `also`. */
bool dlock__text_is_word(const char *text, const char *also);

/* The number from 1 to `most` (below a million) that `text` begins with; *end is behind its digits. 0: none. */
unsigned dlock__text_number(const char *text, unsigned most, const char **end);

#endif
