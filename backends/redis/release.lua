-- The rest of release_fast.lua and release_held.lua.
local may_grant = ARGV[2] ~= '0'

if held == token then
    held = false
    if may_grant then admit() end
    if not held then
        call('DEL', lock)
        call('HDEL', waiters, HANDED)
    end
    return 1
end

local had
if held and joint(held) then
    local ends = tonumber(call('ZSCORE', holders, token))
    if ends then
        call('ZREM', holders, token)
        call('HDEL', grants, token)
        settle()
        had = ends > now_ms
    end
end
local left = had or leave(token) == 1
if left and may_grant and (not held or joint(held)) then
    sweep()
    admit()
end
return had and 1 or 0
