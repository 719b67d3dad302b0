-- Ends token's grant and hands the lock over, or takes token out of the queue.
--   KEYS   the four of queue.lua
--   ARGV   token, '0' while nothing may be granted (quarantine)
--   reply  1: it had one of the two; 0: it had neither
if redis.call('GET', lock) ~= ARGV[1] then return leave(ARGV[1]) end
pass_on(ARGV[2])
return 1
