-- Reads the state of the lock, and changes nothing.
--   KEYS   K
--   ARGV   '1' to see only locks that dlock has taken (the key may be any application's string)
--          '2' to see the waiters
--   reply  for '2' the token and the kind of each waiter, in their order, of the first 20,000; otherwise
--          { kind, waiters, the clock, and for each holder: its token (its first 127 bytes), fence, remaining },
--          or nil: there is no such holder. At most 20,000 joint holders, those whose leases end last.
--          token      empty: the key never expires and dlock never locked it, so it may be an application's data
--          fence      0: unknown, since the holder is not a client of dlock, or the fence's key holds none
--          remaining  of the lease, in ms; -1: it never ends
local call, key = redis.call, KEYS[1]
if ARGV[1] == '2' then
    local reply, tokens = {}, call('ZRANGE', '{' .. key .. '}:dlock:queue', '0', '19999')
    for i = 1, #tokens do
        local said = call('HGET', '{' .. key .. '}:dlock:waiters', tokens[i])
        reply[2 * i - 1], reply[2 * i] = tokens[i], string.match(said or '', '^%d+@%d+(.*)') or ''
    end
    return reply
end
local held, fence = call('GET', key), call('GET', '{' .. key .. '}:dlock:fence')
if not held or (ARGV[1] == '1' and not fence) then return nil end
local _, clock, is_ours, _, _, _, joint = dofile('library.lua')
local now_ms = string.sub(clock, 1, 13)
local reply, lock = { '', call('ZCARD', '{' .. key .. '}:dlock:queue'), tonumber(clock) }, joint(held)
if not lock.is_held() then
    local remaining = call('PTTL', key)
    if remaining == -1 and not fence then held = '' end
    table.insert(reply, string.sub(held, 1, 127))
    local number = is_ours(held) and tonumber(fence) or 0
    table.insert(reply, number >= 0 and number < 2^53 and number or 0)
    table.insert(reply, remaining)
    return reply
end
reply[1] = held
local live = call('ZREVRANGEBYSCORE', lock.holders, '+inf', '(' .. now_ms, 'WITHSCORES', 'LIMIT', 0, 20000)
for i = 1, #live, 2 do
    table.insert(reply, live[i])
    table.insert(reply, math.abs(tonumber(call('HGET', lock.grants, live[i])) or 0))
    table.insert(reply, tonumber(live[i + 1]) - now_ms)
end
return reply
