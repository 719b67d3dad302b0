-- Looks at the lock, and changes nothing.
--   KEYS   the four of queue.lua
--   ARGV   '1' to see only locks that have been taken through us (the key may be any application's string)
--   reply  { holder's token (its first 127 bytes), fence, remaining, waiters }, or nil: there is no such holder
--          token      empty: the key never ends and was never ours, so it may be anybody's data
--          fence      0: unknown, since the holder is no client of ours
--          remaining  of the lease, in ms; -1: it never ends
local holder = redis.call('GET', lock)
local fence = redis.call('GET', fence_key)
if not holder or (ARGV[1] == '1' and not fence) then return nil end
fence = ours(holder) and tonumber(fence) or 0
local remaining = redis.call('PTTL', lock)
if remaining == -1 and redis.call('EXISTS', fence_key) == 0 then holder = '' end
return { string.sub(holder, 1, 127), fence, remaining, redis.call('ZCARD', queue) }
