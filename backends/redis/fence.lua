-- Writes the next fence after `last`, the value of the fence's key, for a grant of this kind and lease (a string).
-- Returns the fence, also as a string. Most often it is the clock, and the last one was written with the same `life`,
-- so that its key lives long enough: then the value is only overwritten. The build puts a function of this text where
-- scripts say loadfile('fence.lua').
local key, last, now, clock, lease, kind, life = ...
local since = last and #last == 16 and kind == '' and #lease < 6 and now - tonumber(last) or 0
if since > 0 and since < now % (life * 1000) and redis.pcall('SETRANGE', key, '0', clock) == 16 then
    return now, clock
end
local fence = math.max((tonumber(last) or 0) + 1, now)
local text = string.format('%.0f', fence)
redis.call('SET', key, text .. kind, 'PX', lease + 3 * life)
return fence, text
