// The same, as C++.
#include "use.c"
