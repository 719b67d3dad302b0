-- Precedes each script in a cluster, which has one more argument, before the others:
--   ARGV   the prefix of this node's channels: `dlock:{<number>}:`, for sharded channels, which are in a slot of this
--          node (Redis 7 and newer); or `dlock:<node id>:`
-- The record of incarnation.lua is `dlock:{<number>}:incarnation:<prefix>`, in a slot that the node has. Most calls
-- do not read it; it is in another slot than the lock, which is allowed as long as the node has both slots. The build
-- makes the scripts use the functions below (assemble.cmake).
--
-- A client that listens has chosen the channel by its own map of the slots. When slots have moved, it may be another
-- channel than the caller's.
local place = table.remove(ARGV, 1)
local sharded = string.find(place, '{', 1, true)
local found_of, found

local function channel_of(token)
    local client = string.sub(token, 1, 24)
    if found_of == client then return found end
    found_of, found = client, place .. client
    if redis.call('PUBSUB', sharded and 'SHARDNUMSUB' or 'NUMSUB', found)[2] > 0 then return found end
    found = nil
    if not sharded then return nil end
    local all = {}
    for i = 0, 255 do table.insert(all, 'dlock:{' .. i .. '}:' .. client) end
    local counts = redis.call('PUBSUB', 'SHARDNUMSUB', unpack(all))
    for i = 2, #counts, 2 do
        if counts[i] > 0 then found = counts[i - 1] end
    end
    return found
end

-- Returns 1 if a connection is subscribed for the client of this token, else 0.
local function listeners(token)
    return channel_of(token) and 1 or 0
end

local function publish(token, text)
    local channel = channel_of(token)
    if channel then redis.pcall(sharded and 'SPUBLISH' or 'PUBLISH', channel, text) end
end

return listeners, publish
