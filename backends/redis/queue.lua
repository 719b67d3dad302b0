-- The queue of a lock.
--   A busy acquire that wants to wait puts its token at the end, once; asking again keeps its place. Whoever ends a
--   grant, or leaves the queue, grants what has become free to the first waiters that live, in the same step: it writes
--   them in as holders and sends one message for each grant. Those ask nothing. A lock found free although somebody
--   waits (its holder's lease ended) is handed over by the next acquire that comes by, so nobody barges in. A waiter
--   lives while somebody is subscribed to the channel of its client, which is named by the first 24 characters of the
--   token. The dead are dropped as they are met at the head: nothing ever walks the queue. PUBLISH's own count is no
--   proof: it counts monitors (PSUBSCRIBE *).
--   A client may be subscribed and yet stopped, or its host lost. Therefore a hand-over lasts 3 s at most, until its
--   receiver renews it or asks again. When it ends unconfirmed, that client has gone quiet: those of its waiters who
--   have not asked since are dropped like the dead.
--   All who wait and all of ours who hold use the lock for the same: as a lock (exclusive or shared), or as permits
--   with one limit. Who asks for something else is refused, and so never gets into the queue.
--   Whatever is abandoned ends by itself: every key expires a day after its last use (waiters ask far more often).
local queue, waiters = '{' .. lock .. '}:queue', '{' .. lock .. '}:waiters'
local HAND_OVER = '3000'
local SHARED = 'dlock:shared'
-- A token of our form, and not some other client's: 24 hex characters that name our client, and a dot.
local function ours(token)
    local _, dot = string.find(token, '^%x*%.')
    return dot == 25
end

-- The server's clock in microseconds, as a string of 16 digits too, and in milliseconds. Numbers become strings, and
-- strings numbers, only where there is no other way: either costs the server as much as a command.
local time = call('TIME')
local now, clock = time[1] * 1000000 + time[2], time[1] .. string.sub('00000' .. time[2], -6)
local now_ms = (now - now % 1000) / 1000

-- Whether a kind, or what the lock's key holds, is the word of joint holders.
local function joint(word)
    return string.sub(word, 1, 6) == 'dlock:'
end

local function channel(token)
    return 'dlock:' .. string.sub(token, 1, 24)
end

-- Takes token out of the queue; 1: it was there.
local function leave(token)
    call('HDEL', waiters, token)
    return call('ZREM', queue, token)
end

-- The first waiter that lives, its lease (a string), its kind, and whether others are behind it; or nil. Drops the dead
-- before it. `caller` lives: it is asking.
local function head(caller)
    while true do
        local front = call('ZRANGE', queue, '0', '1')
        local first = front[1]
        if not first then return nil end
        local known = call('HMGET', waiters, first, channel(first))
        local lease, asked, kind = string.match(known[1] or '', '^(%d+)@(%d+)(.*)$')
        if not lease and call('EXISTS', waiters) == 0 then
            -- Somebody deleted what they asked for. They ask again.
            call('DEL', queue)
            return nil
        end
        local quiet = known[2] and asked and tonumber(asked) < tonumber(known[2])
        local lives = first == caller or not quiet and call('PUBSUB', 'NUMSUB', channel(first))[2] > 0
        if lease and lives then return first, lease, kind, front[2] ~= nil end
        leave(first)
    end
end

-- What a hand-over lasts at first, to one who asked for that lease.
local function brief(lease)
    return (#lease > 4 or #lease == 4 and lease > HAND_OVER) and HAND_OVER or lease
end

-- The last fence given out; as a string, once it was given out here.
local last, last_text
local function last_fence()
    last = last or tonumber(call('GET', fence_key)) or 0
    return last
end

-- Makes token the exclusive holder, under the next fence, which it returns.
local function grant(token, lease, kind)
    local before = call('GET', fence_key)
    call('SET', lock, token, 'PX', lease)
    last, last_text = count_up(fence_key, before, clock, now, kind, lease)
    held = token
    return last
end

-- What is sent to a waiter: "granted <token> <fence> <server us> <kept ms> <K>", from strings. Always after all writes,
-- since no message may undo one.
local function tell(token, fence, lease)
    local text = 'granted ' .. token .. ' ' .. fence .. ' ' .. clock .. ' ' .. lease .. ' ' .. lock
    redis.pcall('PUBLISH', channel(token), text)
end

-- Tells a lingering holder that somebody waits: "wanted <K>".
local told
local function want()
    if not told then redis.pcall('PUBLISH', channel(held), 'wanted ' .. lock) end
    told = true
end

-- Grants the free lock to the first waiter, who asked for it exclusively and is told so unless it is the caller.
-- `more`: others are behind it. Returns the fence.
local function hand_over(token, lease, kind, more, caller)
    call('ZREM', queue, token)
    local fence = grant(token, lease, kind)
    if more and token ~= caller then
        -- First what comes, then what goes: an empty key would vanish, and come back without an end.
        call('HSET', waiters, HANDED, token .. ' ' .. last_text .. ' ' .. string.sub(clock, 1, 13) .. '+' .. lease)
    end
    if more then
        call('HDEL', waiters, token)
    else
        call('DEL', waiters)
    end
    if token ~= caller then tell(token, last_text, lease) end
    if more and kind == ' ' then want() end
    return fence
end
