-- What every script begins with: the layout of a lock, and its queue. This file is put in front of each of the others.
--
-- The four keys of a lock, all in one hash slot (K is the name, with `{`, `}` and `%` percent-encoded):
--   KEYS[1]  K            string  the holder's token, with the lease as its expiry: exactly what `SET K token NX PX
--                                 lease` writes, so every client of that convention and we exclude each other
--   KEYS[2]  {K}:fence    string  the last fence; outlives the lease by a day. A name whose fence is gone starts at the
--                                 server's clock in microseconds, which is past every fence given out, unless the
--                                 server's wall clock was set back by more than that day
--   KEYS[3]  {K}:queue    zset    the waiters' tokens, in the order in which they came
--   KEYS[4]  {K}:waiters  hash    token -> lease in ms, for each of them; and HANDED -> the token of a hand-over that
--                                 its receiver has not confirmed
-- Holders of other modes would live in a fifth key, {K}:holders.
--
-- How the queue works
--   A busy acquire that wants to wait puts its token at the end, once; asking again keeps its place. Whoever ends a
--   grant (release, break) hands the lock to the first waiter that lives, in the same step: it writes that waiter in as
--   the holder and sends one message to its client. The waiter asks nothing. A lock found free although somebody waits
--   (its holder's lease ended) is handed over by the next acquire that comes by, so nobody barges in; only the head of
--   the queue may take it for itself.
--   A waiter lives while somebody is subscribed to the channel of its client, which is named by the first 24 characters
--   of the token. The dead are dropped as they are met. PUBLISH's own count is no proof: it counts monitors (PSUBSCRIBE
--   *).
--   A client may be subscribed and yet stopped, or its host lost. Therefore a hand-over lasts 3 s at most, until its
--   receiver renews it or asks again. When it ends unconfirmed, every waiter of that client leaves the queue.
--   Whatever is abandoned ends by itself: fence, queue and waiters expire a day after their last use (waiters ask again
--   far more often).
--   At maxmemory Redis refuses what needs memory only as the first write of a script. So an acquire is refused as a
--   whole, while a release, which frees first, is always carried through. PUBLISH comes last and cannot undo anything.
local lock, fence_key, queue, waiters = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local DAY = 86400000
local HAND_OVER = 3000
local HANDED = 'handed to'

-- The server's clock in microseconds.
local function clock()
    local time = redis.call('TIME')
    return time[1] * 1000000 + time[2]
end

-- Whether a token is of our form, and not some other client's: 24 hex characters that name our client, and a dot.
local function ours(token)
    local _, dot = string.find(token, '^%x+%.')
    return dot == 25
end

-- Makes token the holder, under the next fence, which it returns.
local function grant(token, lease, now)
    local last = tonumber(redis.call('GET', fence_key)) or 0
    local fence = math.max(last + 1, now)
    redis.call('SET', lock, token, 'PX', lease)
    redis.call('SET', fence_key, string.format('%.0f', fence), 'PX', lease + DAY)
    return fence
end

-- The holder has shown that it lives: sets its lease anew.
local function extend(lease)
    redis.call('PEXPIRE', lock, lease)
    redis.call('PEXPIRE', fence_key, lease + DAY)
    redis.call('HDEL', waiters, HANDED)
end

-- Takes token out of the queue; 1 if it was there, else 0.
local function leave(token)
    redis.call('HDEL', waiters, token)
    return redis.call('ZREM', queue, token)
end

local function channel(token)
    return 'dlock:' .. string.sub(token, 1, 24)
end

-- The first waiter that lives, or nil; drops the dead before it. `caller` lives: it is asking.
local function head(caller)
    while true do
        local first = redis.call('ZRANGE', queue, 0, 0)[1]
        if not first or first == caller then return first end
        if redis.call('PUBSUB', 'NUMSUB', channel(first))[2] > 0 then return first end
        leave(first)
    end
end

-- Gives the lock to a waiter and tells its client: "granted <token> <fence> <server us> <kept ms> <K>".
local function hand_over(token, now)
    local lease = math.min(tonumber(redis.call('HGET', waiters, token)) or HAND_OVER, HAND_OVER)
    leave(token)
    local fence = grant(token, lease, now)
    redis.call('HSET', waiters, HANDED, token)
    redis.call('PEXPIRE', waiters, DAY)
    redis.pcall('PUBLISH', channel(token), string.format('granted %s %.0f %.0f %d %s', token, fence, now, lease, lock))
end

-- Ends the present grant. `may_grant` '0' (quarantine): nobody gets the lock now, and the waiters keep their places.
local function pass_on(may_grant)
    local heir = may_grant == '1' and head()
    if heir then
        hand_over(heir, clock())
    else
        redis.call('DEL', lock)
        redis.call('HDEL', waiters, HANDED)
    end
end

