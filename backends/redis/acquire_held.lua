-- What most of the other calls meet: a client of ours holds exclusively, and so nobody can be granted anything.

-- Puts the caller into the queue if it wants to wait; its position.
local function line_up()
    if ARGV[4] ~= '1' then return -1 end
    local last_one = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
    if last_one[1] ~= token then redis.call('ZADD', queue, 'NX', (last_one[2] or 0) + 1, token) end
    redis.call('HSET', waiters, token, string.format('%s@%.0f%s', ARGV[2], now_ms, kind))
    redis.call('PEXPIRE', queue, DAY)
    redis.call('PEXPIRE', waiters, DAY)
    return redis.call('ZRANK', queue, token)
end

-- Whether the exclusive holder lingers, and so wants to know who asks.
local function lingers()
    return string.sub(redis.call('GET', fence_key) or '', -1) == ' '
end

-- Lets an exclusive holder of another client know that the caller was turned away.
local function knock()
    if channel(held) ~= channel(token) and lingers() then want() end
end

if held and held ~= token and string.find(held, OURS) then
    if joint(kind) and kind ~= SHARED then return '' end
    local position = line_up()
    knock()
    return { now, 0, position, redis.call('PTTL', lock), 1 }
end
