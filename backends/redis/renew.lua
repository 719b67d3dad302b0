-- Sets a holder's lease anew. Never creates anything. With kind `dlock:shared`, an exclusive grant becomes a shared
-- one.
--   KEYS   K
--   ARGV   token, lease in ms, then, but for those at the end that are as here: '' (kind), '1' (whether anything
--          may be granted: library.lua), '' (of an exclusive holder: what its fence is raised to, if it is less, of 16
--          digits), '600000' (how long a fence is kept at least, in ms: library.lua)
--   reply  the server's clock in microseconds; 0: token does not hold the lock
local call, key, token, lease, kind = redis.call, KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3] or ''
local held = call('GET', key)

-- Most are exclusive.
if #kind < 2 then
    if held ~= token then return 0 end
    if ARGV[4] == '0' and call('PTTL', key) <= math.min(500, lease / 2) then return 0 end -- library.lua: late()
    local fence_key, floor = '{' .. key .. '}:dlock:fence', ARGV[5] or ''
    call('PEXPIRE', key, ARGV[2])
    if floor ~= '' then
        local last = call('GET', fence_key) or ''
        if last ~= '' and not string.find(last, '^%d+ ?$') then
            return redis.error_reply('WRONGTYPE ' .. fence_key .. ' holds no fence')
        end
        if (tonumber(last) or 0) < tonumber(floor) then call('SET', fence_key, floor .. string.match(last, ' ?$')) end
    end
    call('PEXPIRE', fence_key, lease + 3 * tonumber(ARGV[6] or '600000'))
    local time = call('TIME')
    return time[1] * 1000000 + time[2]
end

local now, _, _, _, _, _, joint, may_grant = dofile('library.lua')
local lock, may = joint(held), may_grant(ARGV[4])
if lock.is_held() then return lock.keep(token, lease, may) and now or 0 end
if held ~= token or kind ~= 'dlock:shared' then return 0 end
-- Readers that are first in the queue join it then; a writer among them has to wait for all of these, and so nobody
-- gets in between.
lock.downgrade(token, lease, kind)
if may then lock.admit() end
return now
