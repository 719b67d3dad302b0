# The sources of the memcached backends: the locks, and the text protocol over any stream. No client library is needed,
# since the backend speaks the protocol itself (see memcached.h).
set(DLOCK_MEMCACHED_SOURCES memcached.c address.c facts.c flags.c clock.c sightings.c holders.c names.c numbers.c
  grants.c turns.c claims.c shared.c inspect.c check.c)
set(DLOCK_MEMCACHED_TEXT_SOURCES list.c login.c replies.c requests.c wire.c)
