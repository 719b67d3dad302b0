#include "use.h"

#include <stdio.h>

int main(void) {
    int alone = use_alone(), all = use_all();
    if (alone) printf("alone.c:%d failed\n", alone);
    if (all) printf("use.c:%d failed\n", all);
    return alone || all;
}
