-- Sets a holder's lease anew. Never creates anything. With kind `dlock:shared`, an exclusive grant becomes a shared
-- one.
--   KEYS   K
--   ARGV   token, lease in ms, then, but for those at the end that are as here: '' (kind), '1' ('0' while nothing may be
--          granted: quarantine)
--   reply  the server's clock in microseconds; 0: token does not hold the lock
--
-- This part is exclusive grants.
local token = ARGV[1]
local lease, kind = tonumber(ARGV[2]), ARGV[3] or ''
if #kind < 2 then
    if held ~= token then return 0 end
    call('PEXPIRE', lock, ARGV[2])
    call('PEXPIRE', fence_key, lease + FENCE_LIFE)
    call('HDEL', '{' .. lock .. '}:waiters', HANDED)
    local time = call('TIME')
    return time[1] * 1000000 + time[2]
end
