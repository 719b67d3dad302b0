-- Asks for the lock as acquire_fast.lua does, whose arguments and replies these are, once more: a client that was
-- granted it over this very connection, with a fence from the clock, less than a second ago. What a server may forget
-- or take back of a fence, it does not without ending its connections (but for SWAPDB, and REPLICAOF there and back).
-- So the fence is only counted up, which is less work for the server, and what is known of its key's life goes on to
-- hold.
--   reply  a negative number: token holds the lock, for its whole lease from now; its fence is that number's amount
if not ARGV[4] and #ARGV[2] < 8 and call('EXISTS', '{' .. lock .. '}:queue') == 0 then
    local taken = redis.pcall('SET', lock, ARGV[1], 'NX', 'PX', ARGV[2])
    if taken and taken.ok then
        local fence = redis.pcall('INCR', '{' .. lock .. '}:fence')
        if type(fence) == 'number' and fence > 1e15 then return -fence end
        -- It was no fence, or somebody deleted it.
        call('DEL', lock)
    end
end
