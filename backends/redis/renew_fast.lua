-- Sets a holder's lease anew. Never creates anything. With kind `dlock:shared`, an exclusive grant becomes a shared
-- one.
--   KEYS   the six of layout.lua
--   ARGV   token, lease in ms, kind, '0' while nothing may be granted (quarantine)
--   reply  the server's clock in microseconds; 0: token does not hold the lock
--
-- This part is exclusive grants.
local token, lease, kind = ARGV[1], tonumber(ARGV[2]), ARGV[3]
if #kind < 2 then
    if held ~= token then return 0 end
    redis.call('PEXPIRE', lock, lease)
    redis.call('PEXPIRE', fence_key, lease + DAY)
    redis.call('HDEL', waiters, HANDED)
    local time = redis.call('TIME')
    return time[1] * 1000000 + time[2]
end
