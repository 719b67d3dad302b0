-- The rest of acquire_fast.lua and acquire_held.lua.
local may_grant = ARGV[5] ~= '0'
local held_jointly = held and joint(held)

-- What it had before, it has.
if held == token then
    call('PEXPIRE', lock, lease)
    call('PEXPIRE', fence_key, lease + FENCE_LIFE)
    call('HDEL', waiters, HANDED)
    local fence = last_fence()
    if fence == 0 then fence = grant(token, ARGV[2], kind) end
    if kind == ' ' and not lingers() then
        call('SET', fence_key, string.format('%.0f', fence) .. kind, 'PX', lease + FENCE_LIFE)
    end
    return { now, fence, 0, lease, 1 }
end
if held_jointly then
    local fence = keep(token, lease)
    if fence then return { now, fence, 0, lease, 1 } end
end

-- What others use it for. Other clients' locks are waited for, whatever for.
sweep()
local use = held
if not held_jointly then
    local first, _, wants = head(token)
    use = first and wants
end
if use and limit_of(use) ~= limit_of(kind) then return limit_of(use) and use or '' end

if may_grant and (not held or held_jointly) then
    local fence = admit(token, ARGV[2])
    if not fence and not head(token) and room(kind) then
        if joint(kind) then
            fence = join(token, lease, kind)
            settle()
        else
            fence = grant(token, ARGV[2], kind)
        end
    end
    if fence then return { now, fence, 0, lease, 1 } end
end

local position, remaining = line_up(), call('PTTL', lock)
if not may_grant and room(kind) then
    remaining = -2
elseif held and limit_of(held) then
    -- The permits that end first go to the first in the queue, one to each.
    local beside = math.min(math.max(position, 0), math.max(count() - 1, 0))
    local ends = call('ZRANGEBYSCORE', holders, '(' .. now_ms, '+inf', 'WITHSCORES', 'LIMIT', beside, 1)[2]
    if ends then remaining = tonumber(ends) - now_ms end
    if position > 0 then
        remaining = math.min(remaining, HAND_OVER)
        position = position - beside
    end
end
local by_us = held and ours(held)
if by_us then knock() end
return { now, 0, position, remaining, (by_us or held and joint(held)) and 1 or 0 }
