-- Since when this server is the master that it is now, by the data. A server that is restarted or promoted, or whose
-- data are restored or flushed, is another one then, and may not know of the last grants of the one before.
--   KEYS   {dlock}:incarnation: the run id, the replication id, since when, by the server's clock in ms, and the epoch.
--          No lock has a key with braces. It never ends
--   ARGV   the epoch of the failover that made it the master, as the Sentinels say, which may name a server anew that
--          has believed all the time that it is the master; '': the caller does not ask them
--   reply  for how long, in ms
-- A promotion changes the replication id, and the former one becomes the second. So does the first replica that comes,
-- and the time after the last one has gone, but these leave no second id: the process was the master all along.
local call, key = redis.call, KEYS[1]
local server, replication, time = call('INFO', 'server'), call('INFO', 'replication'), call('TIME')
-- One that may be written to would keep what its master knows nothing of.
if not string.find(replication, 'role:master', 1, true) then return redis.error_reply('READONLY it is a replica') end
local run = string.match(server, '\nrun_id:(%w+)')
local id = string.match(replication, '\nmaster_replid:(%w+)')
local second = string.match(replication, '\nmaster_replid2:(%w+)')
if not run or not id then return redis.error_reply('ERR INFO names no run_id or no master_replid') end
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local old_run, old_id, since, old_epoch = string.match(call('GET', key) or '', '^(%w+) (%w+) (%d+) ?(%d*)$')
local epoch = ARGV[1] ~= '' and ARGV[1] or old_epoch or ''
since = tonumber(since)
-- A clock that was set back must not stretch what begins here.
if old_run ~= run or old_id ~= id and not (second and string.find(second, '^0+$')) or since > now
    or old_epoch ~= epoch then
    since = now
elseif old_id == id then
    return now - since
end
call('SET', key, run .. ' ' .. id .. ' ' .. string.format('%.0f', since) .. (epoch ~= '' and ' ' .. epoch or ''))
return now - since
