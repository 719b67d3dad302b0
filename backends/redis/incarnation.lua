-- Returns for how long this server has been the same master, by a record in its data. A server that is restarted or
-- promoted, or whose data are restored or flushed, counts as another one from then on, since it may not know the last
-- grants of the one before.
--   KEYS   {dlock}:incarnation: the run id, the replication id, since when, by the server's clock in ms, and the epoch.
--          No lock has a key with braces. It never expires
--   ARGV   the epoch of the failover that made it the master, as the Sentinels say, which may also name a server anew
--          that has considered itself the master all the time; '': the caller does not ask Sentinels
--   reply  for how long, in ms
--
-- A promotion changes the replication id, and the former one becomes the second id. The arrival of the first replica,
-- and the time after the last one has gone, change the id, too, but leave no second id: the process was the master all
-- along.
local call, key = redis.call, KEYS[1]
local server, replication, time = call('INFO', 'server'), call('INFO', 'replication'), call('TIME')
-- A writable replica would store a record that its master does not have.
if not string.find(replication, 'role:master', 1, true) then return redis.error_reply('READONLY it is a replica') end
local run = string.match(server, '\nrun_id:(%w+)')
local id = string.match(replication, '\nmaster_replid:(%w+)')
local second = string.match(replication, '\nmaster_replid2:(%w+)')
if not run or not id then return redis.error_reply('ERR INFO names no run_id or no master_replid') end
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local old_run, old_id, since, old_epoch = string.match(call('GET', key) or '', '^(%w+) (%w+) (%d+) ?(%d*)$')
local epoch = ARGV[1] ~= '' and ARGV[1] or old_epoch or ''
since = tonumber(since)
-- A clock that was set back must not prolong the quarantine: the record begins anew.
if old_run ~= run or old_id ~= id and not (second and string.find(second, '^0+$')) or since > now
    or old_epoch ~= epoch then
    since = now
elseif old_id == id then
    return now - since
end
local record = run .. ' ' .. id .. ' ' .. string.format('%.0f', since) .. (epoch ~= '' and ' ' .. epoch or '')
local stored = redis.pcall('SET', key, record)
if stored.ok then return now - since end
-- At maxmemory nothing can be stored, but a release is carried through: it must not find a record in force that tells
-- of another master, and hand over.
if since == now then call('DEL', key) end
return stored
