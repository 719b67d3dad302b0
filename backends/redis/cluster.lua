-- Precedes each script in a cluster, which has three more arguments, in front of its own:
--   ARGV   the prefix of this node's channels: `dlock:{<number>}:`, for sharded channels, which are in a slot of this
--          node (Redis 7 and newer); or `dlock:<node id>:`
--          for an acquire: the caller's own clock in microseconds
--          the number of a hash tag whose slot this node has: `dlock:{<number>}:incarnation` records since when it has
--          been the same master. Most calls do not read it; it is in another slot than the lock, which is allowed as
--          long as the node has both slots
-- The build makes the scripts use the functions below (assemble.cmake).
--
-- A client that listens has chosen the channel by its own map of the slots. When slots have moved, it may be another
-- channel than the caller's.
--
-- The clocks of the nodes differ, so a client cannot tell from one node's clock how old a grant is that another node
-- reports. Therefore a waiter leaves its own clock beside this node's, and is told in its own clock when it was granted
-- the lock: never too late a time, as long as neither clock runs more than 1 % faster than the other. 1: unknown.
local place, caller_us, tag = table.remove(ARGV, 1), table.remove(ARGV, 1), table.remove(ARGV, 1)
local incarnation = 'dlock:{' .. tag .. '}:incarnation'
local sharded = string.find(place, '{', 1, true)
local found_of, found
local stamps = {}

-- Write and read a value in the hash of waiters (library.lua), followed by the two clocks and the place where they were
-- read.
local function write_waiter(text, clock)
    return text .. '|' .. caller_us .. ' ' .. clock .. ' ' .. place
end

local function read_waiter(token, value)
    local text, stamp = string.match(value or '', '^([^|]*)|?(.*)$')
    stamps[token] = stamp
    return string.match(text, '^(%d+)@(%d+)(.*)$')
end

-- Returns the waiter's own clock for a grant that is made now.
local function granted_at(token, clock)
    local asked_us, then_us, there = string.match(stamps[token] or '', '^(%d+) (%d+) (.*)$')
    local passed = there == place and clock - then_us or -1
    return passed < 0 and '1' or string.format('%.0f', math.floor(asked_us + passed - passed / 100))
end

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

return write_waiter, read_waiter, granted_at, listeners, publish, incarnation
