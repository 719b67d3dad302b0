-- Ends token's grant and grants the lock to the next waiters, or takes token out of the queue.
--   KEYS   K
--   ARGV   token, then the following, of which trailing ones equal to these defaults may be left out: '1' (whether
--          anything may be granted: library.lua), '', '', '', '600000' (for how long a fence is kept at least, in ms:
--          library.lua)
--   reply  1: it had a grant; 0: it had none, and is not in the queue any more; plus 2: the first waiters are dead and
--          too many for one call, so the same should be called again
local call, key, token = redis.call, KEYS[1], ARGV[1]
local held = call('GET', key)

-- An exclusive grant without waiters.
if held == token and call('EXISTS', '{' .. key .. '}:dlock:queue') == 0 then
    call('DEL', key)
    return 1
end

-- One of several joint holders that are released together: the last one calls settle() for all of them (many.lua).
if ARGV.more and held and string.sub(held, 1, 6) == 'dlock:' then
    local prefix, time = '{' .. key .. '}:dlock:', call('TIME')
    if (tonumber(call('ZSCORE', prefix .. 'holders', token)) or 0) > time[1] * 1000 + time[2] / 1000 then
        call('ZREM', prefix .. 'holders', token)
        call('HDEL', prefix .. 'grants', token)
        ARGV.owes = true
        return 1
    end
end

-- An exclusive grant that is handed over to an exclusive waiter.
local _, clock, _, head, hand_over, _, joint, allowed = dofile('library.lua')
local may_grant = allowed(ARGV[2])
if held == token and may_grant then
    local heir, lease, kind, more = head()
    if heir and #kind < 2 then
        hand_over(heir, lease, kind, more, nil, true)
        return 1
    end
end

-- Ends the grant if there is one.
local lock, had, left = joint(held), held == token, ARGV.owed
if had then
    call('DEL', key)
    lock.held = false
elseif lock.is_held() then
    local ends = call('ZSCORE', lock.holders, token)
    if ends then
        had = tonumber(ends) > tonumber(string.sub(clock, 1, 13))
        call('ZREM', lock.holders, token)
        call('HDEL', lock.grants, token)
    end
    ARGV.owes = ARGV.more and (ends or ARGV.owed)
    if ARGV.owes then
        if not had then lock.leave(token) end
        return had and 1 or 0
    end
    if ends or ARGV.owed then lock.settle() end
end
if not had then left = lock.leave(token) == 1 or left end

local tired = false
if may_grant and (not lock.held or (had or left) and lock.is_held()) then
    lock.sweep()
    tired = select(2, lock.admit(nil, nil, true))
end
return (had and 1 or 0) + (tired and 2 or 0)
