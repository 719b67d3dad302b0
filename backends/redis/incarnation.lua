-- Returns how long this server has been the same master, by a record in its data. A server that is restarted or
-- promoted, or whose data are restored, exchanged or flushed, is another master after that, since it may not know the
-- last grants of the previous one.
--   KEYS   the record: the run id, the replication id, since when, by the server's clock in ms, how many commands it
--          has run that may exchange data (below), and the epoch or `-`. No lock has a key with braces. It never
--          expires
--   ARGV   the epoch of the failover that made it the master, as the Sentinels say, which may also name again a server
--          that has considered itself the master all the time; '': the caller does not ask Sentinels
--   reply  for how long, in ms
--
-- A promotion changes the replication id, and the former one becomes the second id. The id also changes when the first
-- replica arrives, and some time after the last one has left, but without a second id: the process was the master all
-- along.
--
-- Without a record of this process, its own history is the evidence, if INFO covers all of it: a process that has been
-- a master since it was started, and has run no such command, emptied no database and evicted nothing, has forgotten
-- nothing since then.
local call, key = redis.call, KEYS[1]
local server, replication, time = call('INFO', 'server'), call('INFO', 'replication'), call('TIME')
-- A writable replica would store a record that its master does not have.
if not string.find(replication, 'role:master', 1, true) then return redis.error_reply('READONLY it is a replica') end
local run = string.match(server, '\nrun_id:(%w+)')
local id = string.match(replication, '\nmaster_replid:(%w+)')
local second = string.match(replication, '\nmaster_replid2:(%w+)')
if not run or not id then return redis.error_reply('ERR INFO names no run_id or no master_replid') end
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local always_master = second and string.find(second, '^0+$')

-- What INFO has counted since the statistics were last reset: commands that empty a database, and with it its record;
-- and commands that may exchange the data and the record with it, or give this node slots of the cluster without
-- their keys (Redis 7 and newer tell subcommands apart).
local emptying, exchanging = ' flushall flushdb ',
    ' swapdb debug replicaof slaveof failover cluster|addslots cluster|addslotsrange cluster|reset cluster|replicate '
local emptied, exchanged, told, reset = 0, 0, false, false
for name, calls in string.gmatch(call('INFO', 'commandstats'), 'cmdstat_([^:\n]+):calls=(%d+)') do
    local word = ' ' .. name .. ' '
    told = true
    if string.find(emptying, word, 1, true) then emptied = emptied + calls end
    if string.find(exchanging, word, 1, true) then exchanged = exchanged + calls end
    if (name == 'config' or name == 'config|resetstat') and calls ~= '0' then reset = true end
end

-- Returns since when the process proves to have forgotten nothing; nil: it does not.
local function proved(epoch_known)
    local up = string.match(server, '\nuptime_in_seconds:(%d+)')
    local evicted = string.match(call('INFO', 'stats'), '\nevicted_keys:(%d+)')
    local tells_all = up and told and not reset and always_master and epoch_known
    if not tells_all or emptied + exchanged > 0 or evicted ~= '0' then return nil end
    return math.min(now, now - up * 1000 + 1000)
end

local old_run, old_id, since, old_exchanged, old_epoch =
    string.match(call('GET', key) or '', '^(%w+) (%w+) (%d+) (%d+) ([%d-]+)$')
local epoch = ARGV[1] ~= '' and ARGV[1] or old_epoch or '-'
local begins = old_run ~= run or old_id ~= id and not always_master
since = tonumber(since)
-- A clock that was set back must not extend the quarantine: the record starts over.
if begins or since > now or tonumber(old_exchanged) ~= exchanged or old_epoch ~= epoch then
    since = begins and proved(epoch == '-' or epoch == '0' or epoch == old_epoch) or now
    begins = true
elseif old_id == id then
    return now - since
end
local record = run .. ' ' .. id .. ' ' .. string.format('%.0f %.0f ', since, exchanged) .. epoch
local stored = redis.pcall('SET', key, record)
if stored.ok then return now - since end
-- At maxmemory nothing can be stored, but a release still completes: it must not find another master's valid record and
-- hand over.
if begins then call('DEL', key) end
return stored
