/* Helpers for short texts that several files of the core read or write. */
#ifndef DLOCK_CORE_BASE_TEXT_H
#define DLOCK_CORE_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Longest name of a backend, and longest scheme, in bytes. */
#define DLOCK__WORD_MAX 64

/* Writes the NULL-terminated list `items` into `out` as "a, b, c", or "nothing" if it is empty. A trailing '*' of an
 * item is left out. A list that does not fit is cut and ends in "...". `size` is at least 16. */
void dlock__text_join(char *out, size_t size, const char *const *items);

/* True if `text` is not empty and consists of a-z, 0-9 and the characters of `also`. */
bool dlock__text_is_word(const char *text, const char *also);

/* Returns the decimal number that `text` begins with, from 1 to `most` (below a million), or 0 if there is none; *end
 * points behind its digits. */
unsigned dlock__text_number(const char *text, unsigned most, const char **end);

#endif
