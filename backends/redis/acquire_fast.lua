-- Asks for the lock.
--   KEYS   the six of layout.lua
--   ARGV   token, lease in ms, kind, '1' to wait in the queue when busy, '0' while nothing may be granted (quarantine)
--   reply  { server's clock in microseconds, fence, position, remaining, ours }
--          fence      > 0: token holds the lock, for its whole lease from now; asking again gives the same fence.
--                     0: busy, and then
--          position   in the queue, from 0; -1: not queued
--          remaining  until somebody's lease has ended and the answer may be another one, in ms; -1: never; -2: nothing
--                     is in the way but the quarantine
--          ours       1: the holders are clients of ours, which hand over; 0: the holder is not, so nobody will
--          or a string: the lock is in use as something else: a word `dlock:permits:<limit>`, or empty for a lock
--
-- This part is what most calls need: an exclusive lock that is free, and nobody waits for it.
local token, lease, kind = ARGV[1], tonumber(ARGV[2]), ARGV[3]
if not held and #kind < 2 and ARGV[5] == '1' and redis.call('EXISTS', queue) == 0 then
    local time = redis.call('TIME')
    local now = time[1] * 1000000 + time[2]
    local fence = math.max((tonumber(redis.call('GET', fence_key)) or 0) + 1, now)
    redis.call('SET', lock, token, 'PX', lease)
    redis.call('SET', fence_key, string.format('%.0f', fence) .. kind, 'PX', lease + DAY)
    return { now, fence, 0, lease, 1 }
end
