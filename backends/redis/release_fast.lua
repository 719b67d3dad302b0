-- Ends token's grant and grants to those who are next, or takes token out of the queue.
--   KEYS   K
--   ARGV   token; '0' while nothing may be granted (quarantine)
--   reply  1: it had a grant; 0: it had none, and is not in the queue either
--
-- This part is an exclusive grant that nobody waits for.
local token = ARGV[1]
if held == token and call('EXISTS', '{' .. lock .. '}:queue') == 0 then
    call('DEL', lock)
    return 1
end
