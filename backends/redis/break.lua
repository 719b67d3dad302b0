-- Takes the lock away from its holders, and grants to those that are next. The fence goes on.
--   KEYS   K
--   ARGV   whether anything may be granted (library.lua), then, but if it is as here: '', '', '', '', '600000' (how
--          long a fence is kept at least, in ms: library.lua)
--   reply  1: there was a holder; 0: there was none; 2: the key never ends and was never ours: maybe anybody's data
local call, key = redis.call, KEYS[1]
local _, _, _, _, _, _, joint, may_grant = dofile('library.lua')
if not call('GET', key) then return 0 end
if call('PTTL', key) == -1 and call('EXISTS', '{' .. key .. '}:dlock:fence') == 0 then return 2 end
local lock = joint(false)
lock.look_at_keys()
call('DEL', key, lock.holders, lock.grants)
if may_grant(ARGV[1]) then lock.admit() end
return 1
