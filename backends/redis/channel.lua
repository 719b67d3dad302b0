-- Returns the channel on which the client of a token listens, and the command that sends a message there; nil: no
-- connection of it is subscribed, which is looked at in a cluster, or if one `must` be. The build puts a function of
-- this text where scripts say loadfile('channel.lua').
--   place   ARGV[7] of each script; nil: the channel is `dlock:<client>`. In a cluster, the prefix of this node's
--           channels: `dlock:{<number>}:`, for sharded channels, which are in a slot of this node (Redis 7 and newer);
--           or `dlock:<node id>:`. A client that listens has chosen the number by its own map of the slots: when slots
--           have moved, it may be another one than the caller's
local token, must, place = ...
local client = string.sub(token, 1, 24)
local channel, sharded = (place or 'dlock:') .. client, place and string.find(place, '{', 1, true)
local subscribers = not (must or place) or redis.call('PUBSUB', sharded and 'SHARDNUMSUB' or 'NUMSUB', channel)[2] > 0
if not subscribers then
    channel = nil
    if not sharded then return nil end
    local all = {}
    for i = 0, 255 do table.insert(all, 'dlock:{' .. i .. '}:' .. client) end
    local counts = redis.call('PUBSUB', 'SHARDNUMSUB', unpack(all))
    for i = 2, #counts, 2 do
        if counts[i] > 0 then channel = counts[i - 1] end
    end
end
return channel, sharded and 'SPUBLISH' or 'PUBLISH'
