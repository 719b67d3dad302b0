-- The queue of a lock.
--   A busy acquire that wants to wait puts its token at the end, once; asking again keeps its place. Whoever ends a
--   grant, or leaves the queue, grants what has become free to the first waiters that live, in the same step: it writes
--   them in as holders and sends one message for each grant. Those ask nothing. A lock found free although somebody
--   waits (its holder's lease ended) is handed over by the next acquire that comes by, so nobody barges in.
--   A waiter lives while somebody is subscribed to the channel of its client, which is named by the first 24 characters
--   of the token. The dead are dropped as they are met at the head: nothing ever walks the queue. PUBLISH's own count is
--   no proof: it counts monitors (PSUBSCRIBE *).
--   A client may be subscribed and yet stopped, or its host lost. Therefore a hand-over lasts 3 s at most, until its
--   receiver renews it or asks again. When it ends unconfirmed, that client has gone quiet: its waiters are dropped like
--   the dead until it asks again.
--   All who wait and all of ours who hold use the lock for the same: as a lock (exclusive or shared), or as permits with
--   one limit. Who asks for something else is refused, and so never gets into the queue.
--   Whatever is abandoned ends by itself: every key expires a day after its last use (waiters ask far more often).
local HAND_OVER = 3000
local SHARED = 'dlock:shared'

-- The server's clock in microseconds, and in milliseconds.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local now_ms = math.floor(now / 1000)

-- Whether what the lock's key holds is the word of joint holders.
local function joint(word)
    return string.sub(word, 1, 6) == 'dlock:'
end

-- Of a kind: how many permits there are; nil: it is a lock.
local function limit_of(kind)
    return tonumber(string.match(kind, '^dlock:permits:(%d+)$'))
end

-- Whether a token is of our form, and not some other client's: 24 hex characters that name our client, and a dot.
local function ours(token)
    local _, dot = string.find(token, '^%x+%.')
    return dot == 25
end

local function channel(token)
    return 'dlock:' .. string.sub(token, 1, 24)
end

-- Takes token out of the queue; 1: it was there.
local function leave(token)
    redis.call('HDEL', waiters, token)
    return redis.call('ZREM', queue, token)
end

-- The first waiter that lives, its lease and its kind; or nil. Drops the dead before it. `caller` lives: it is asking.
local function head(caller)
    while true do
        local first = redis.call('ZRANGE', queue, 0, 0)[1]
        if not first then return nil end
        local known = redis.call('HMGET', waiters, first, channel(first))
        if first == caller or (not known[2] and redis.call('PUBSUB', 'NUMSUB', channel(first))[2] > 0) then
            local lease, kind = string.match(known[1] or '', '^(%d+)(.*)$')
            return first, tonumber(lease) or HAND_OVER, kind or ''
        end
        leave(first)
    end
end

-- This token's hand-over ended, and nobody had confirmed it.
local function gone_quiet(token)
    if redis.call('EXISTS', queue) == 0 then return end
    redis.call('HSET', waiters, channel(token), 1)
    redis.call('PEXPIRE', waiters, DAY)
end
