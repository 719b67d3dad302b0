/* As floor_memcached.c, over the binary protocol and with a login. */
#define FLOOR_SASL
#include "floor_memcached.c"
