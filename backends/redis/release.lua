-- Ends token's grant and grants the lock to the next waiters, or takes token out of the queue.
--   KEYS   K
--   ARGV   token, then the following, of which trailing ones equal to these defaults may be left out: '1' (whether
--          anything may be granted: library.lua), '', '', '', '600000' (for how long a fence is kept at least, in ms:
--          library.lua), none (channel.lua)
--   reply  1: it had a grant; 0: it had none, and is not in the queue any more; plus 2: the first waiters are dead and
--          too many for one call, so the same should be called again
local call, key, token = redis.call, KEYS[1], ARGV[1]
local prefix = '{' .. key .. '}:dlock:'
local held, queue = call('GET', key), prefix .. 'queue'

if held == token then
    local front = call('ZRANGE', queue, '0', '1')
    local first = front[1]

    -- The most frequent case: an exclusive grant without waiters.
    if not first then
        call('DEL', key)
        return 1
    end

    -- The second: the first waiter lives, and wants the lock exclusively. This does what head() and hand_over() of the
    -- library would do, in four fifths of the time: making the functions of the library takes long.
    local waiters, fence_key = prefix .. 'waiters', prefix .. 'fence'
    local lease, _, kind = string.match(call('HGET', waiters, first) or '', '^(%d+)@(%d+)(.*)$')
    local channel_of, channel, publish = loadfile('channel.lua'), nil, nil
    if kind == '' and (ARGV[2] or '1') == '1' then channel, publish = channel_of(first, true, ARGV[7]) end
    if channel then
        local both, time = call('MGET', fence_key, prefix .. 'turn'), call('TIME')
        local now, clock = time[1] * 1000000 + time[2], time[1] .. string.sub('00000' .. time[2], -6)
        if string.find(both[1] or '', '^%d+ ?$') and tonumber(both[1]) < 2^53
            and (tonumber(both[2]) or 0) * 1000 > now then
            if #lease > 4 or #lease == 4 and lease > '3000' then lease = '3000' end
            call('ZREM', queue, first)
            call('SET', key, first, 'PX', lease)
            local next_fence = loadfile('fence.lua')
            next_fence(fence_key, both[1], now, clock, lease, kind, tonumber(ARGV[6] or '600000'))
            if front[2] then
                call('HDEL', waiters, first)
            else
                call('DEL', waiters)
            end
            redis.pcall(publish, channel, 'granted ' .. first .. ' ' .. key)
            return 1
        end
    end
end

-- One of several joint holders that are released together: the last one calls settle() for all of them (many.lua).
if ARGV.more and held and string.sub(held, 1, 6) == 'dlock:' then
    local time = call('TIME')
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

-- Without a fence the data may have been deleted since the caller last asked for how long the server has been the
-- master, unless it has asked just now. Then the waiters' next questions tell.
local tired, asked = false, ARGV[2] and #ARGV[2] > 1
if may_grant and (not lock.held and (had or asked or call('EXISTS', prefix .. 'fence') == 1)
    or (had or left) and lock.is_held()) then
    lock.sweep()
    tired = select(2, lock.admit(nil, nil, true))
end
return (had and 1 or 0) + (tired and 2 or 0)
