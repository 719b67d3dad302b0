-- Joint holders of a lock: how they come and go, and how the next get in.
local holders, grants = '{' .. lock .. '}:holders', '{' .. lock .. '}:grants'
local fenced -- `last` was given out now, to a joint holder

-- Of a kind: how many permits there are; nil: it is a lock.
local function limit_of(kind)
    return tonumber(string.match(kind, '^dlock:permits:(%d+)$'))
end

-- How many hold jointly.
local function count()
    return call('ZCOUNT', holders, '(' .. now_ms, '+inf')
end

-- Whether one more of this kind may hold.
local function room(kind)
    if held ~= kind then return not held end
    local limit = limit_of(kind)
    return joint(kind) and (not limit or count() < limit)
end

-- Makes token a joint holder, under the next fence, which it returns. There must be room. To be finished by settle().
local function join(token, lease, kind, handed)
    last = math.max(last_fence() + 1, now)
    fenced = true
    if not held then
        call('SET', lock, kind)
        call('DEL', holders, grants)
        held = kind
    end
    call('ZADD', holders, now_ms + lease, token)
    call('HSET', grants, token, string.format('%.0f', handed and -last or last))
    return last
end

-- Joint holders have come, renewed or gone: their word lasts as long as the last of them.
local function settle()
    local latest = tonumber(call('ZREVRANGE', holders, 0, 0, 'WITHSCORES')[2])
    if not latest or latest <= now_ms then
        call('DEL', lock, holders, grants)
        held = false
        return
    end
    call('PEXPIREAT', lock, latest)
    call('PEXPIREAT', holders, latest + DAY)
    call('PEXPIREAT', grants, latest + DAY)
    if fenced then call('SET', fence_key, string.format('%.0f', last)) end
    call('PEXPIREAT', fence_key, latest + FENCE_LIFE)
end

-- Sets a joint holder's lease anew and returns its fence; nil: token is none.
local function keep(token, lease)
    if (tonumber(call('ZSCORE', holders, token)) or 0) <= now_ms then return nil end
    call('PEXPIRE', fence_key, FENCE_LIFE)
    call('ZADD', holders, now_ms + lease, token)
    local fence = tonumber(call('HGET', grants, token))
    if not fence or fence < 0 then
        -- A hand-over is confirmed by this; or somebody deleted the fences.
        if not fence then
            last = math.max(last_fence() + 1, now)
            fenced = true
        end
        fence = fence and -fence or last
        call('HSET', grants, token, string.format('%.0f', fence))
    end
    settle()
    return fence
end

-- This token's hand-over ended at that time, and nobody had confirmed it.
local function gone_quiet(token, ended)
    if call('EXISTS', queue) == 0 then return end
    call('HSET', waiters, channel(token), math.min(ended, now_ms))
    call('PEXPIRE', waiters, DAY)
end

-- Forgets who does not hold any more, a hundred at a time, and notices hand-overs that ended unconfirmed.
local function sweep()
    local ends = call('ZRANGEBYSCORE', holders, '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, 100)
    if #ends > 0 then
        local gone = {}
        for i = 1, #ends, 2 do table.insert(gone, ends[i]) end
        local fences = call('HMGET', grants, unpack(gone))
        call('HDEL', grants, unpack(gone))
        call('ZREM', holders, unpack(gone))
        for i, token in ipairs(gone) do
            if string.sub(fences[i] or '', 1, 1) == '-' then gone_quiet(token, tonumber(ends[2 * i])) end
        end
    end
    if held and joint(held) then return end
    local handed = call('HGET', waiters, HANDED) or ''
    local token, fence, from, lease = string.match(handed, '^(%S+) (%d+) (%d+)%+(%d+)$')
    if token then
        call('HDEL', waiters, HANDED)
        if tonumber(fence) == last_fence() then gone_quiet(token, from + lease) end
    end
end

-- Grants to the first in the queue, and on behind it, as long as there is room. Each but the caller, who is answered,
-- is told. Returns the caller's fence if it was among them.
local function admit(caller, caller_lease)
    local told_later, mine = {}, nil
    local token, lease, kind, more = head(caller)
    while token and room(kind) do
        lease = token == caller and caller_lease or brief(lease)
        if not joint(kind) then
            local fence = hand_over(token, lease, kind, more, caller)
            return token == caller and fence or nil
        end
        leave(token)
        local fence = join(token, lease, kind, token ~= caller)
        if token == caller then
            mine = fence
        else
            table.insert(told_later, { token, string.format('%.0f', fence), lease })
        end
        token, lease, kind = head(caller)
    end
    if not mine and #told_later == 0 then return nil end
    settle()
    if not token then call('DEL', waiters) end
    for _, grantee in ipairs(told_later) do tell(unpack(grantee)) end
    return mine
end
