-- Renews a holder's lease. Never creates anything. With kind `dlock:shared`, an exclusive grant becomes a shared one.
--   KEYS   K
--   ARGV   token, lease in ms, then the following, of which trailing ones equal to these defaults may be left out: ''
--          (kind), '1' (whether anything may be granted: library.lua), '' (the value that the fence is raised to if it
--          is less, of 16 digits, and that becomes a joint holder's own fence), '600000' (for how long a fence
--          is kept at least, in ms: library.lua), none (channel.lua)
--   reply  the server's clock in microseconds; 0: token does not hold the lock
local call, key, token, lease, kind = redis.call, KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3] or ''
local held = call('GET', key)

-- The most frequent case: an exclusive holder.
if #kind < 2 then
    if held ~= token then
        -- A server that has become a replica may know nothing of the grant: it answers READONLY to this. The key never
        -- exists.
        call('DEL', '{' .. key .. '}:dlock:never')
        return 0
    end
    if ARGV[4] == '0' and call('PTTL', key) <= math.min(500, lease / 2) then return 0 end -- library.lua: late()
    local fence_key, floor = '{' .. key .. '}:dlock:fence', ARGV[5] or ''
    call('PEXPIRE', key, ARGV[2])
    if floor ~= '' then
        local last = call('GET', fence_key) or ''
        if last ~= '' and not (string.find(last, '^%d+ ?$') and tonumber(last) < 2^53) then
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
if lock.is_held() and lock.keep(token, lease, may, ARGV[5]) then return now end
if held ~= token or kind ~= 'dlock:shared' then
    call('DEL', '{' .. key .. '}:dlock:never')
    return 0
end
-- Waiting readers at the head of the queue join the new reader. If a writer is at the head, it waits for all readers,
-- and no reader passes it.
lock.downgrade(token, lease, kind, ARGV[5])
if may then lock.admit() end
return now
