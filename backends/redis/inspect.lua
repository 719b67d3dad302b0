-- Looks at the lock, and changes nothing.
--   KEYS   K
--   ARGV   '1' to see only locks that have been taken through us (the key may be any application's string)
--   reply  { kind, waiters, and for each holder: its token (its first 127 bytes), fence, remaining },
--          or nil: there is no such holder. Of joint holders, the 20,000 whose leases end last.
--          token      empty: the key never ends and was never ours, so it may be anybody's data
--          fence      0: unknown, since the holder is no client of ours
--          remaining  of the lease, in ms; -1: it never ends
local fence = call('GET', fence_key)
if not held or (ARGV[1] == '1' and not fence) then return nil end
local reply = { '', call('ZCARD', queue) }
if not joint(held) then
    local remaining = call('PTTL', lock)
    if remaining == -1 and not fence then held = '' end
    table.insert(reply, string.sub(held, 1, 127))
    table.insert(reply, ours(held) and tonumber(fence) or 0)
    table.insert(reply, remaining)
    return reply
end
reply[1] = held
local live = call('ZREVRANGEBYSCORE', holders, '+inf', '(' .. now_ms, 'WITHSCORES', 'LIMIT', 0, 20000)
for i = 1, #live, 2 do
    table.insert(reply, live[i])
    table.insert(reply, math.abs(tonumber(call('HGET', grants, live[i])) or 0))
    table.insert(reply, tonumber(live[i + 1]) - now_ms)
end
return reply
