-- Writes the next fence after `last`, which is what the fence's key holds, for a grant at `now` of this kind; returns it.
--   Most often that is the clock, and the last one is of the same day (86,400 s), and so lives long enough (FENCE_LIFE):
--   then it is only counted up. It uses nothing from outside, since that would cost each call of the script something.
local fence_key = '{' .. lock .. '}:fence'
local function count_up(key, last, now, kind, lease)
    local since = last and #last == 16 and kind == '' and lease <= 86400000 and now - (tonumber(last) or now) or 0
    if since > 0 and since < now % 86400000000 and redis.pcall('INCRBY', key, since) == now then return now end
    local fence = math.max((tonumber(last) or 0) + 1, now)
    redis.call('SET', key, string.format('%.0f', fence) .. kind, 'PX', lease + 259200000)
    return fence
end
