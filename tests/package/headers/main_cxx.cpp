// The same, as C++.
#include "main.c"
