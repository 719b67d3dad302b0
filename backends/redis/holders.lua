-- Holders of a lock: how they come, and how the next get in.

-- The last fence given out, and whether that was now.
local last, fenced

local function last_fence()
    last = last or tonumber(redis.call('GET', fence_key)) or 0
    return last
end

-- Makes token a holder, under the next fence, which it returns. There must be room. Joint holders are not finished
-- before settle().
local function grant(token, lease, kind, handed)
    last = math.max(last_fence() + 1, now)
    if not joint(kind) then
        redis.call('SET', lock, token, 'PX', lease)
        redis.call('SET', fence_key, string.format('%.0f', last) .. kind, 'PX', lease + DAY)
        held = token
        return last
    end
    if not held then
        redis.call('SET', lock, kind)
        redis.call('DEL', holders, grants)
        held = kind
    end
    redis.call('ZADD', holders, now_ms + lease, token)
    redis.call('HSET', grants, token, string.format('%.0f', handed and -last or last))
    fenced = true
    return last
end

-- Joint holders have come, renewed or gone: their word lasts as long as the last of them.
local function settle()
    local latest = tonumber(redis.call('ZREVRANGE', holders, 0, 0, 'WITHSCORES')[2])
    if not latest or latest <= now_ms then
        redis.call('DEL', lock, holders, grants)
        held = false
        return
    end
    redis.call('PEXPIREAT', lock, latest)
    redis.call('PEXPIREAT', holders, latest + DAY)
    redis.call('PEXPIREAT', grants, latest + DAY)
    if fenced then redis.call('SET', fence_key, string.format('%.0f', last)) end
    redis.call('PEXPIREAT', fence_key, latest + DAY)
end

-- Sets a joint holder's lease anew and returns its fence; nil: token is none.
local function keep(token, lease)
    if (tonumber(redis.call('ZSCORE', holders, token)) or 0) <= now_ms then return nil end
    redis.call('PEXPIRE', fence_key, DAY)
    redis.call('ZADD', holders, now_ms + lease, token)
    local fence = tonumber(redis.call('HGET', grants, token))
    if not fence or fence < 0 then
        -- A hand-over is confirmed by this; or somebody deleted the fences.
        if not fence then
            last = math.max(last_fence() + 1, now)
            fenced = true
        end
        fence = fence and -fence or last
        redis.call('HSET', grants, token, string.format('%.0f', fence))
    end
    settle()
    return fence
end

-- Forgets who does not hold any more, a hundred at a time, and notices hand-overs that ended unconfirmed.
local function sweep()
    local gone = redis.call('ZRANGEBYSCORE', holders, '-inf', now_ms, 'LIMIT', 0, 100)
    if #gone > 0 then
        local fences = redis.call('HMGET', grants, unpack(gone))
        redis.call('HDEL', grants, unpack(gone))
        redis.call('ZREM', holders, unpack(gone))
        for i, token in ipairs(gone) do
            if fences[i] and string.sub(fences[i], 1, 1) == '-' then gone_quiet(token) end
        end
    end
    if held and joint(held) then return end
    local token, fence = string.match(redis.call('HGET', waiters, HANDED) or '', '^(%S+) (%d+)$')
    if token then
        redis.call('HDEL', waiters, HANDED)
        if tonumber(fence) == last_fence() then gone_quiet(token) end
    end
end

-- How many hold jointly.
local function count()
    return redis.call('ZCOUNT', holders, '(' .. now_ms, '+inf')
end

-- Whether one more of this kind may hold.
local function room(kind)
    if held ~= kind then return not held end
    local limit = limit_of(kind)
    return joint(kind) and (not limit or count() < limit)
end

-- Tells a lingering holder that somebody waits: "wanted <K>".
local told
local function want()
    if not told then redis.pcall('PUBLISH', channel(held), 'wanted ' .. lock) end
    told = true
end

-- Grants to the first in the queue, and on behind it, as long as there is room. Each but the caller, who is answered,
-- is told "granted <token> <fence> <server us> <kept ms> <K>": after all writes, since no message may undo one.
-- Returns the caller's fence if it was among them.
local function admit(caller, caller_lease)
    local messages, mine, wanted = {}, nil, false
    local token, lease, kind = head(caller)
    while token and room(kind) do
        leave(token)
        lease = token == caller and caller_lease or math.min(lease, HAND_OVER)
        local fence = grant(token, lease, kind, token ~= caller)
        if token == caller then
            mine = fence
        else
            local text = string.format('granted %s %.0f %.0f %d %s', token, fence, now, lease, lock)
            table.insert(messages, { channel(token), text })
        end
        if not joint(kind) then
            wanted = kind == ' '
            token = redis.call('EXISTS', queue) == 1
            break
        end
        token, lease, kind = head(caller)
    end
    if not mine and #messages == 0 then return nil end
    if joint(held) then
        settle()
    elseif token and held ~= caller then
        redis.call('HSET', waiters, HANDED, string.format('%s %.0f', held, last))
        redis.call('PEXPIRE', waiters, DAY)
    end
    if not token then redis.call('DEL', waiters) end
    for _, message in ipairs(messages) do redis.pcall('PUBLISH', message[1], message[2]) end
    if token and wanted then want() end
    return mine
end
