# What the backends for memcached are made of: what locks are there, and the text protocol over whichever stream. It
# speaks that itself (see memcached.h), so there is no client library to look for.
set(DLOCK_MEMCACHED_SOURCES memcached.c address.c facts.c flags.c clock.c sightings.c holders.c names.c numbers.c
  grants.c turns.c claims.c shared.c inspect.c check.c)
set(DLOCK_MEMCACHED_TEXT_SOURCES login.c replies.c requests.c wire.c)
