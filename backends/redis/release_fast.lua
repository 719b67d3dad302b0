-- Ends token's grant and grants to those who are next, or takes token out of the queue.
--   KEYS   the six of layout.lua
--   ARGV   token, '0' while nothing may be granted (quarantine)
--   reply  1: it had a grant; 0: it had none, and is not in the queue either
--
-- This part is an exclusive grant that nobody waits for.
local token = ARGV[1]
local front
if held == token then
    front = redis.call('ZRANGE', queue, 0, 1)
    if not front[1] then
        redis.call('DEL', lock)
        return 1
    end
end
