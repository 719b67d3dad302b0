// The same backend, compiled as C++.
#include "plugin.c"
