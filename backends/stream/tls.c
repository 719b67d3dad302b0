/* The TLS of the backends that are built with it (tls.cmake). */
#include <dlock/backend_tls.h>
