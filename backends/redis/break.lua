-- Takes the lock away from whoever holds it, and hands it over. The fence goes on.
--   KEYS   the four of queue.lua
--   ARGV   '0' while nothing may be granted (quarantine)
--   reply  1: there was a holder; 0: there was none; 2: the key never ends and was never ours, so it may be anybody's data
if not redis.call('GET', lock) then return 0 end
if redis.call('PTTL', lock) == -1 and redis.call('EXISTS', fence_key) == 0 then return 2 end
pass_on(ARGV[1])
return 1
