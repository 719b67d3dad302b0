-- Ends token's grant and grants to those that are next, or takes token out of the queue.
--   KEYS   K
--   ARGV   token; '0' while nothing may be granted (quarantine)
--   reply  1: it had a grant; 0: it had none, and is not in the queue either
local call, key, token, may_grant = redis.call, KEYS[1], ARGV[1], ARGV[2] ~= '0'
local held = call('GET', key)

-- An exclusive grant that nobody waits for.
if held == token and call('EXISTS', '{' .. key .. '}:queue') == 0 then
    call('DEL', key)
    return 1
end

-- An exclusive grant that goes to the next, which asked for it exclusively.
local _, clock, _, head, hand_over, _, joint = dofile('library.lua')
if held == token and may_grant then
    local heir, lease, kind, more = head()
    if heir and #kind < 2 then
        hand_over(heir, lease, kind, more)
        return 1
    end
end

local lock = joint(held)
if held == token then
    lock.held = false
    if may_grant then lock.admit() end
    if not lock.held then
        call('DEL', key)
        call('HDEL', '{' .. key .. '}:waiters', 'handed to')
    end
    return 1
end

local had
if lock.is_held() then
    local ends = tonumber(call('ZSCORE', lock.holders, token))
    if ends then
        call('ZREM', lock.holders, token)
        call('HDEL', lock.grants, token)
        lock.settle()
        had = ends > tonumber(string.sub(clock, 1, 13))
    end
end
local left = had or lock.leave(token) == 1
if left and may_grant and (not lock.held or lock.is_held()) then
    lock.sweep()
    lock.admit()
end
return had and 1 or 0
