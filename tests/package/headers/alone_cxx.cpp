// The same, as C++.
#include "alone.c"
