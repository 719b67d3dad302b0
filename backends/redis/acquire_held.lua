-- What most of the other calls meet: a client of ours holds exclusively, and so nobody can be granted anything.

-- Puts the caller into the queue if it wants to wait; its position.
local function line_up()
    if ARGV[3] ~= '1' then return -1 end
    local last_one = call('ZRANGE', queue, '-1', '-1', 'WITHSCORES')
    local place = (last_one[2] or 0) + 1
    local new = last_one[1] ~= token and call('ZADD', queue, 'NX', place, token) == 1
    call('HSET', waiters, token, ARGV[2] .. '@' .. string.sub(clock, 1, 13) .. kind)
    -- The first, one in a hundred after it, and whoever asks again, as all do who wait for long: makes them live on.
    if place % 100 == 1 or not new then
        call('PEXPIRE', queue, '86400000')
        call('PEXPIRE', waiters, '86400000')
    end
    return call('ZRANK', queue, token)
end

-- Whether the exclusive holder lingers, and so wants to know who asks.
local function lingers()
    return string.sub(call('GET', fence_key) or '', -1) == ' '
end

-- Lets an exclusive holder of another client know that the caller was turned away.
local function knock()
    if string.sub(held, 1, 24) ~= string.sub(token, 1, 24) and lingers() then want() end
end

if held and held ~= token and ours(held) then
    if joint(kind) and kind ~= SHARED then return '' end
    local position = line_up()
    knock()
    return { now, 0, position, call('PTTL', lock), 1 }
end
