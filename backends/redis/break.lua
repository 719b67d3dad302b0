-- Ends all grants of the lock, and grants it to the next waiters. The fence continues.
--   KEYS   K
--   ARGV   whether anything may be granted (library.lua), then, unless it has this default: '', '', '', '', '600000'
--          (for how long a fence is kept at least, in ms: library.lua), none (channel.lua)
--   reply  1: there was a holder; 0: there was none; 2: the key never expires and dlock never locked it: it may be an
--          application's data
local call, key = redis.call, KEYS[1]
local _, _, is_ours, _, _, say, joint, may_grant = dofile('library.lua')
local held = call('GET', key)
if not held then
    -- A server that has become a replica answers READONLY (renew.lua).
    call('DEL', '{' .. key .. '}:dlock:never')
    return 0
end
if call('PTTL', key) == -1 and call('EXISTS', '{' .. key .. '}:dlock:fence') == 0 then return 2 end
local lock = joint(false)
lock.look_at_keys()
local broken = is_ours(held) and { held } or call('ZRANGE', lock.holders, '0', '999')
call('DEL', key, lock.holders, lock.grants)
-- Without a fence the data may have been deleted, as for a release.
local asked = ARGV[1] and #ARGV[1] > 1
if may_grant(ARGV[1]) and (asked or call('EXISTS', '{' .. key .. '}:dlock:fence') == 1) then lock.admit() end
for _, token in ipairs(broken) do say('broken ' .. token, token) end
return 1
