-- Takes the lock away from whoever holds it, and grants to those who are next. The fence goes on.
--   KEYS   K
--   ARGV   '0' while nothing may be granted (quarantine)
--   reply  1: there was a holder; 0: there was none; 2: the key never ends and was never ours: maybe anybody's data
if not held then return 0 end
if call('PTTL', lock) == -1 and call('EXISTS', fence_key) == 0 then return 2 end
call('DEL', lock, holders, grants)
call('HDEL', waiters, HANDED)
held = false
if ARGV[1] == '1' then admit() end
return 1
