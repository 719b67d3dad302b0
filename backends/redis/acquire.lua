-- Asks for the lock.
--   KEYS   K
--   ARGV   token, lease in ms, then the following, of which trailing ones equal to these defaults may be left out:
--          ''   letters: `w`: wait in the queue when busy. `h`, after it: report if no connection of the caller's
--               client is subscribed, which is also reported when a token retries. `c`: take the fence from the
--               clock. `m`, a number, a space and the key of the record of incarnation.lua: the same; but if there is
--               no fence, which FLUSHALL also deletes, the server must have been the same master for that long
--               (library.lua), in ms, and nothing is granted otherwise.
--               Neither `c` nor `m`: the caller was granted this lock over this very connection, with a fence from the
--               clock, less than a second ago. A server does not lose a fence without ending its connections (except by
--               SWAPDB, and by REPLICAOF there and back). So the fence is only incremented, which is less work for the
--               server, and what is known about the life of its key remains true
--          ''   kind
--          '1'  whether anything may be granted (library.lua): not in the quarantine
--          '600000'  for how long a fence is kept at least, in ms (library.lua)
--          none  in a cluster, the prefix of channels (channel.lua)
--   reply  0: there is no fence, so the data may have been deleted: repeat the call with `c` or `m` after finding out
--          since when the server has been the master (incarnation.lua);
--          a negative number: token holds the lock, for its whole lease from now; its fence is the absolute value;
--          a positive number: the same; it is both the server's clock in microseconds and the fence;
--          { server's clock in microseconds, fence, position, remaining, ours, and sometimes holder }
--          fence      > 0: token holds the lock, for its whole lease from now; a retry gets the same fence.
--                     0: busy, and then
--          position   in the queue, from 0; -1: not queued
--          remaining  until a lease ends and the answer may change, in ms; 0: it may change at once; -1: the lease
--                     never ends; -2: only the quarantine prevents the grant
--          ours       1: the holders are clients of dlock, which hand over; 0: the holder is not, and does not;
--                     plus 2 if no connection of the caller's client is subscribed, so that it would wait for nothing
--          holder     the token that has the lock
--          or a string: the lock is in use in another way: a word `dlock:permits:<limit>`, or empty for a lock
local call, key, token, how, kind = redis.call, KEYS[1], ARGV[1], ARGV[3] or '', ARGV[4] or ''
local prefix = '{' .. key .. '}:dlock:'
local queue, fence_key = prefix .. 'queue', prefix .. 'fence'
local waiting = call('ZCARD', queue)

-- The most frequent case: an exclusive lock that is free and has no waiters.
if (not ARGV[4] or kind == '' and ARGV[5] == '1') and waiting == 0 then
    local counts = (how == '' or how == 'w') and #ARGV[2] < 6
    local last, time = not counts and call('GET', fence_key), nil
    if not last and not counts and not string.find(how, '^w?h?c') then
        local age_ms, record = string.match(how, 'm(%d+) (.*)')
        local since = age_ms and string.match(call('GET', record) or '', '^%w+ %w+ (%d+)')
        time = call('TIME')
        if not since or time[1] * 1000 + time[2] / 1000 - since < tonumber(age_ms) then return 0 end
    end
    local taken = (not last or string.find(last, '^%d+ ?$') and tonumber(last) < 2^53)
        and redis.pcall('SET', key, token, 'NX', 'PX', ARGV[2])
    if taken and taken.ok then
        if counts then
            local fence = redis.pcall('INCR', fence_key)
            if type(fence) == 'number' and fence > 1e15 and fence < 2^53 then return -fence end
            -- The key held no fence, or was deleted by another client.
            call('DEL', key)
            if fence == 1 then
                call('DEL', fence_key)
                return 0
            end
        else
            time = time or call('TIME')
            local now, clock = time[1] * 1000000 + time[2], time[1] .. string.sub('00000' .. time[2], -6)
            local next_fence = loadfile('fence.lua')
            local fence = next_fence(fence_key, last, now, clock, ARGV[2], kind, tonumber(ARGV[6] or '600000'))
            return fence == now and now or { now, fence, 0, tonumber(ARGV[2]), 1 }
        end
    end
end

local waiters, channel_of = prefix .. 'waiters', loadfile('channel.lua')

-- Puts the caller into the queue if it wants to wait; `clock` is the server's, as a string of 16 digits, and `length`
-- the queue's, if known. Returns the caller's position, and 2 if no connection of its client is subscribed.
local function line_up(clock, length)
    if string.byte(how) ~= 119 then return -1, 0 end
    local last_one = call('ZRANGE', queue, '-1', '-1', 'WITHSCORES')
    local place, now_ms = (last_one[2] or 0) + 1, string.sub(clock, 1, 13)
    call('HSET', waiters, token, ARGV[2] .. '@' .. now_ms .. kind)
    local new = last_one[1] ~= token and call('ZADD', queue, 'NX', place, token) == 1
    -- The first waiter, every hundredth after it, and each retry, which every long wait makes, extend the life of the
    -- keys.
    if place % 100 == 1 or not new then
        call('PEXPIRE', queue, '86400000')
        call('PEXPIRE', waiters, '86400000')
    end
    local asks = not new or string.byte(how, 2) == 104
    local unheard = asks and not channel_of(token, true, ARGV[7])
    return new and length or call('ZRANK', queue, token), unheard and 2 or 0
end

-- True if the exclusive holder lingers, and so has to be told of other clients that ask.
local function lingers(fence)
    return string.byte(fence or '', -1) == 32
end

-- The most frequent of the other cases: a client of dlock holds the lock exclusively, so nothing can be granted. It
-- needs nothing of the library.
local both = call('MGET', key, fence_key)
local held, _, dot = both[1], string.find(both[1] or '', '^%x*%.')
if dot == 25 and held ~= token then
    if #kind > 1 and kind ~= 'dlock:shared' then return '' end
    local time = call('TIME')
    local position, unheard = line_up(time[1] .. string.sub('00000' .. time[2], -6), waiting)
    -- If the holder belongs to another client, it is told that the caller was refused.
    if lingers(both[2]) and held:sub(1, 24) ~= token:sub(1, 24) then
        local channel, publish = channel_of(held, false, ARGV[7])
        if channel then redis.pcall(publish, channel, 'wanted ' .. key) end
    end
    return { time[1] * 1000000 + time[2], 0, position, call('PTTL', key), 1 + unheard, held:sub(1, 127) }
end

-- The next: the caller was handed the lock exclusively, and asks since a message told it to.
if held == token and kind == '' and (not ARGV[5] or ARGV[5] == '1') and string.find(both[2] or '', '^%d+$')
    and tonumber(both[2]) < 2^53 then
    local time = call('TIME')
    call('PEXPIRE', key, ARGV[2])
    call('PEXPIRE', fence_key, ARGV[2] + 3 * tonumber(ARGV[6] or '600000'))
    return { time[1] * 1000000 + time[2], tonumber(both[2]), 0, tonumber(ARGV[2]), 1 }
end

local now, clock, is_ours, head, _, say, joint, allowed, late = dofile('library.lua')
local lease, now_ms = tonumber(ARGV[2]), string.sub(clock, 1, 13)
held = held or call('GET', key)
local lock = joint(held)
local limit_of, may_grant, held_jointly = lock.limit_of, allowed(ARGV[5]), lock.is_held()
local life = 3 * tonumber(ARGV[6] or '600000')

-- The token holds the lock already.
if held == token and (may_grant or call('PTTL', key) > late(lease)) then
    call('PEXPIRE', key, lease)
    call('PEXPIRE', fence_key, lease + life)
    local fence = lock.last_fence()
    if fence == 0 then fence = lock.take(token, ARGV[2], kind) end
    if kind == ' ' and not lingers(call('GET', fence_key)) then
        call('SET', fence_key, string.format('%.0f', fence) .. kind, 'PX', lease + life)
    end
    return { now, fence, 0, lease, 1 }
end
if held_jointly then
    local fence = lock.keep(token, lease, may_grant)
    if fence then return { now, fence, 0, lease, 1 } end
end

-- True if the data may have been deleted.
local function is_forgotten()
    if lock.last_fence() > 0 or string.find(how, '^w?h?c') then return false end
    local word = string.match(how, 'm(%d.*)')
    return not word or not allowed(word)
end

-- How the name is in use. Locks of other programs' clients are waited for, in whatever way the caller wants the lock.
lock.sweep()
local first, more, wants
if not held_jointly then first, more, wants = head(token) end
local use = held_jointly and held or first and wants
if use and limit_of(use) ~= limit_of(kind) then return limit_of(use) and use or '' end

local tired, left_free = not first and more, first and not held and lock.left_free() or 0
if may_grant and not tired and left_free == 0 and (not held or held_jointly) then
    if is_forgotten() then return 0 end
    local fence
    fence, tired = lock.admit(token, ARGV[2])
    if not fence and not tired and lock.room(kind) and not head(token) then
        fence = #kind > 1 and lock.enter(token, lease, kind) or lock.take(token, ARGV[2], kind)
    end
    if fence then return { now, fence, 0, lease, 1 } end
    held = lock.held
end

local position, unheard = line_up(clock)
local remaining = call('PTTL', key)
if tired or left_free > 0 then return { now, 0, position, left_free, 1 + unheard } end
if not may_grant and lock.room(kind) then
    remaining = -2
elseif held and limit_of(held) then
    -- The waiters in the queue get the permits that end first, one each.
    local beside = math.min(math.max(position, 0), math.max(lock.count() - 1, 0))
    local ends = call('ZRANGEBYSCORE', lock.holders, '(' .. now_ms, '+inf', 'WITHSCORES', 'LIMIT', beside, 1)[2]
    if ends then remaining = ends - now_ms end
    if position > 0 then
        remaining = math.min(remaining, 3000)
        position = position - beside
    end
end
local by_us = held and is_ours(held)
if by_us and held:sub(1, 24) ~= token:sub(1, 24) and lingers(call('GET', fence_key)) then
    say('wanted', held)
end
return { now, 0, position, remaining, ((by_us or lock.is_held()) and 1 or 0) + unheard }
