# What the backends for memcached are made of, over whichever stream. It speaks memcached's text protocol itself (see
# memcached.h), so there is no client library to look for.
set(DLOCK_MEMCACHED_SOURCES memcached.c address.c wire.c replies.c facts.c flags.c clock.c sightings.c holders.c names.c
  grants.c turns.c claims.c shared.c inspect.c check.c)
