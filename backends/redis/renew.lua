-- The rest of renew_fast.lua: joint grants, and an exclusive one that becomes shared. Readers who are first in the
-- queue join it then; a writer among them has to wait for all of these, and so nobody gets in between.
if held and joint(held) then return keep(token, lease) and now or 0 end
if held ~= token or kind ~= SHARED then return 0 end
call('HDEL', waiters, HANDED)
call('SET', lock, kind)
call('DEL', holders, grants)
call('ZADD', holders, now_ms + lease, token)
if last_fence() == 0 then last = now end
call('HSET', grants, token, string.format('%.0f', last))
held, fenced = kind, true
settle()
if ARGV[4] ~= '0' then admit() end
return now
