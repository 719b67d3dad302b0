-- Takes the lock away from whoever holds it, and hands it over. The fence goes on.
--   KEYS   the four of queue.lua
--   ARGV   '0' while nothing may be granted (quarantine)
--   reply  1: there was a holder; 0: there was none
if not redis.call('GET', lock) then return 0 end
pass_on(ARGV[1])
return 1
