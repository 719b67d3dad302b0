#include "base/text.h"

#include <stdio.h>
#include <string.h>

void dlock__text_join(char *out, size_t size, const char *const *items) {
    static const char cut[] = "...";
    size_t used = 0;
    snprintf(out, size, "nothing");
    for (; items && *items; items++) {
        const char *gap = used ? ", " : "";
        size_t length = strlen(*items);
        if (length && (*items)[length - 1] == '*') length--;
        if (used + strlen(gap) + length + sizeof cut > size) {
            memcpy(out + used, cut, sizeof cut);
            return;
        }
        used += (size_t)sprintf(out + used, "%s%.*s", gap, (int)length, *items);
    }
}

bool dlock__text_is_word(const char *text, const char *also) {
    for (const char *p = text; *p; p++)
        if (!(*p >= 'a' && *p <= 'z') && !(*p >= '0' && *p <= '9') && !strchr(also, *p)) return false;
    return *text != '\0';
}

unsigned dlock__text_number(const char *text, unsigned most, const char **end) {
    unsigned number = 0;
    while (*text >= '0' && *text <= '9' && number <= most) number = number * 10 + (unsigned)(*text++ - '0');
    *end = text;
    return number <= most ? number : 0;
}
