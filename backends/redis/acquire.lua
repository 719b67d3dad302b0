-- Asks for the lock.
--   KEYS   the four of queue.lua
--   ARGV   token, lease in ms, '1' to wait in the queue when busy, '0' while nothing may be granted (quarantine)
--   reply  { server's clock in microseconds, fence, position, remaining, ours }
--          fence      > 0: token holds the lock, for its whole lease from now; asking again gives the same fence.
--                     0: busy, and then
--          position   in the queue, from 0; -1: not queued
--          remaining  of the holder's lease, in ms; -1: it never ends; -2: there is no holder
--          ours       1: the holder's token names a client of ours, which hands over; 0: it does not, so nobody will
local token, lease, may_wait, may_grant = ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1', ARGV[4] == '1'
local now = clock()
local holder = redis.call('GET', lock)

if holder == token then
    extend(lease)
    local fence = tonumber(redis.call('GET', fence_key))
    return { now, fence or grant(token, lease, now), 0, lease, 1 }
end

if not holder and may_grant then
    local heir
    if redis.call('EXISTS', waiters) == 1 then
        local handed = redis.call('HGET', waiters, HANDED)
        if handed then
            -- That hand-over ended unconfirmed.
            redis.call('HDEL', waiters, HANDED)
            for _, waiter in ipairs(redis.call('ZRANGE', queue, 0, -1)) do
                if channel(waiter) == channel(handed) then leave(waiter) end
            end
        end
        heir = head(token)
    end
    if not heir or heir == token then
        if heir then leave(token) end
        return { now, grant(token, lease, now), 0, lease, 1 }
    end
    hand_over(heir, now)
    holder = heir
end

local position = -1
if may_wait then
    if not redis.call('ZSCORE', queue, token) then
        local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
        redis.call('ZADD', queue, (last or 0) + 1, token)
    end
    redis.call('HSET', waiters, token, lease)
    redis.call('PEXPIRE', queue, DAY)
    redis.call('PEXPIRE', waiters, DAY)
    position = redis.call('ZRANK', queue, token)
end
return { now, 0, position, redis.call('PTTL', lock), ours(holder or '') and 1 or 0 }
