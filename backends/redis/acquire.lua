-- The rest of acquire_fast.lua.
local may_wait, may_grant = ARGV[4] == '1', ARGV[5] == '1'

-- Whether the exclusive holder wants to know who asks.
local function lingers()
    return string.sub(redis.call('GET', fence_key) or '', -1) == ' '
end

-- What it had before, it has.
if held == token then
    redis.call('PEXPIRE', lock, lease)
    redis.call('PEXPIRE', fence_key, lease + DAY)
    redis.call('HDEL', waiters, HANDED)
    local fence = last_fence()
    if fence == 0 then fence = grant(token, lease, kind) end
    if kind == ' ' and not lingers() then
        redis.call('SET', fence_key, string.format('%.0f', fence) .. kind, 'PX', lease + DAY)
    end
    return { now, fence, 0, lease, 1 }
end
local held_jointly = held and joint(held)
if held_jointly then
    local fence = keep(token, lease)
    if fence then return { now, fence, 0, lease, 1 } end
end

-- What others use it for. Other clients' locks are waited for, whatever for.
if held_jointly or not held or not ours(held) then sweep() end
if held_jointly or held and ours(held) then
    if limit_of(held) ~= limit_of(kind) then return joint(held) and limit_of(held) and held or '' end
else
    local first, _, wants = head(token)
    if first and limit_of(wants) ~= limit_of(kind) then return limit_of(wants) and wants or '' end
end

if may_grant and (not held or held_jointly) then
    local fence = admit(token, lease)
    if not fence and not head(token) and room(kind) then
        fence = grant(token, lease, kind)
        if joint(kind) then settle() end
    end
    if fence then return { now, fence, 0, lease, 1 } end
end

local position = -1
if may_wait then
    if not redis.call('ZSCORE', queue, token) then
        local behind = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
        redis.call('ZADD', queue, (behind or 0) + 1, token)
    end
    redis.call('HSET', waiters, token, string.format('%.0f', lease) .. kind)
    redis.call('HDEL', waiters, channel(token))
    redis.call('PEXPIRE', queue, DAY)
    redis.call('PEXPIRE', waiters, DAY)
    position = redis.call('ZRANK', queue, token)
end

-- The permits that end first go to the first in the queue, one to each.
local holder, remaining = held or '', redis.call('PTTL', lock)
if not may_grant and room(kind) then
    remaining = -2
elseif limit_of(holder) then
    local beside = math.min(math.max(position, 0), math.max(count() - 1, 0))
    local ends = redis.call('ZRANGEBYSCORE', holders, '(' .. now_ms, '+inf', 'WITHSCORES', 'LIMIT', beside, 1)[2]
    if ends then remaining = tonumber(ends) - now_ms end
    if position > 0 then
        remaining = math.min(remaining, HAND_OVER)
        position = position - beside
    end
end
if ours(holder) and channel(holder) ~= channel(token) and lingers() then want() end
return { now, 0, position, remaining, (ours(holder) or joint(holder)) and 1 or 0 }
