-- Sets a holder's lease anew. Never creates anything.
--   KEYS   the four of queue.lua
--   ARGV   token, lease in ms
--   reply  the server's clock in microseconds; 0: token does not hold the lock
if redis.call('GET', lock) ~= ARGV[1] then return 0 end
extend(tonumber(ARGV[2]))
return clock()
