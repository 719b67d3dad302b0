-- The next fence after `last`, which is what the key holds, for a grant at `now` of this kind; writes it.
--   Most often that is the clock, and the last one is of the same day, and so lives long enough (FENCE_LIFE): then it is
--   only counted up.
local fence_key = '{' .. lock .. '}:fence'
local function count_up(last, now, kind, lease)
    local since = last and #last == 16 and kind == '' and lease <= DAY and now - (tonumber(last) or now) or 0
    if since > 0 and since < now % (1000 * DAY) and redis.pcall('INCRBY', fence_key, since) == now then return now end
    local fence = math.max((tonumber(last) or 0) + 1, now)
    call('SET', fence_key, string.format('%.0f', fence) .. kind, 'PX', lease + FENCE_LIFE)
    return fence
end
