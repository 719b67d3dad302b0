-- Asks for the lock.
--   KEYS   K
--   ARGV   token, lease in ms, then, but for those at the end that are as here: '0' ('1' to wait in the queue when busy),
--          '' (kind), '1' ('0' while nothing may be granted: quarantine)
--   reply  a number: token holds the lock, for its whole lease from now, by the server's clock in microseconds, which is
--          its fence as well;
--          { server's clock in microseconds, fence, position, remaining, ours }
--          fence      > 0: token holds the lock, for its whole lease from now; asking again gives the same fence.
--                     0: busy, and then
--          position   in the queue, from 0; -1: not queued
--          remaining  until somebody's lease has ended and the answer may be another one, in ms; -1: never; -2: nothing
--                     is in the way but the quarantine
--          ours       1: the holders are clients of ours, which hand over; 0: the holder is not, so nobody will
--          or a string: the lock is in use as something else: a word `dlock:permits:<limit>`, or empty for a lock
--
-- This part is what most calls need: an exclusive lock that is free, and nobody waits for it.
local token, kind = ARGV[1], ARGV[4] or ''
if not ARGV[4] and call('EXISTS', '{' .. lock .. '}:queue') == 0 then
    local last = call('GET', fence_key)
    local taken = redis.pcall('SET', lock, token, 'NX', 'PX', ARGV[2])
    if taken and taken.ok then
        local time = call('TIME')
        local now, clock = time[1] * 1000000 + time[2], time[1] .. string.sub('00000' .. time[2], -6)
        local fence = count_up(fence_key, last, clock, now, kind, ARGV[2])
        return fence == now and now or { now, fence, 0, tonumber(ARGV[2]), 1 }
    end
end
local lease = tonumber(ARGV[2])
