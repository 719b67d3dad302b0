-- Shared by the scripts: the keys of a lock, its queue, and its joint holders. The build puts this text where scripts
-- say dofile('library.lua').
--
-- The keys of a lock, all in one hash slot (K is the name, with `{`, `}` and `%` percent-encoded). Scripts are
-- given the first, and derive the others when they need them:
--            K            string  exclusive: the holder's token, with the lease as its expiry: exactly what `SET K
--                                 token NX PX lease` writes, so that clients of that convention and dlock's exclude
--                                 each other. Joint (shared, or permits): the word `dlock:shared` or
--                                 `dlock:permits:<limit>`, which expires with the last of the holders and keeps such
--                                 clients out as well
--            {K}:dlock:fence    string  the last fence; outlives the lease by `life` (ARGV[6] of each script, in ms) at
--                                       least, and by three times that at most. A name without a fence starts at the
--                                       server's clock in microseconds, which is past every fence given out, unless the
--                                       server's wall clock was set back by more than that. A client's first fence in a
--                                       second is also the clock, unless that is behind; the next ones may be
--                                       incremented from it. A space at its end: the exclusive holder lingers
--            {K}:dlock:queue    zset    the waiters' tokens, in the order of their arrival
--            {K}:dlock:waiters  hash    each waiter's token -> its lease in ms, `@`, when it last asked (the server's
--                                       clock in ms) and its kind; FREE -> until when the lock is kept free (in ms)
--            {K}:dlock:holders  zset    the joint holders' tokens, by the end of their leases (server's clock in ms)
--            {K}:dlock:grants   hash    each joint holder's token -> its fence
--            {K}:dlock:turn     string  when the lock is next left free for a moment (in ms)
--
-- The kind of a grant: the word in K if it is joint; if it is exclusive: empty, or one space if its holder lingers.
--
-- Holders and grants are valid only while K holds a word. A script that writes a word where there was none deletes them
-- first, so that a joint holder from before an exclusive or a foreign one does not regain the lock: it finds that its
-- grant is gone. Each token among them holds until its own lease ends, even if K and other holders last longer.
--
-- The queue. A busy acquire that may wait appends its token once; a retry keeps its place. The script that ends a
-- grant, or removes a waiter, grants what has become free to the first live waiters in the same step: it records them
-- as holders and sends one message per grant, so that they need not ask. If a lock is found free although there are
-- waiters (its holder's lease has ended), the next acquire hands it over, so that no caller overtakes the queue.
--   A waiter is alive while a connection is subscribed to the channel of its client, which is named after the first 24
-- characters of the token. Dead waiters are dropped when they reach the head; the queue is never scanned. PUBLISH's own
-- count proves nothing: it includes monitors (PSUBSCRIBE *).
--   A client may be subscribed although it is stopped or its host is lost. Therefore a hand-over lasts at most 3 s,
-- until its receiver renews it or repeats its acquire. Waiters are told to retry within 3 s: when a lock is found free
-- although there are waiters, any that have not done so are not alive. So they cost only one hand-over in all.
--   At most 200 dead waiters are dropped in a call; then the caller is told to retry at once.
--   Other clients of the convention have no place in the queue: they poll. To give them a turn, a lock that is handed
-- over repeatedly is left free for FREE_MS every TURN_MS: the first waiter is told to look, and is answered when that
-- time ends.
--   All waiters and all dlock holders use the lock in the same way: as a lock (exclusive or shared), or as permits with
-- one limit. Any other use is refused, and so never enters the queue.
--   Abandoned keys expire a day after their last use (waiters retry far more often).
--
-- At maxmemory Redis refuses a command that needs memory only if it is the first write of a script. So an acquire is
-- refused as a whole, while a renewal or a release, which writes something else first, always completes.
--
-- Conversions between numbers and strings are avoided where possible: each costs the server as much as a command. So
-- does each table or function, since Lua creates them again in every call of a script. Hence there are few, and joint()
-- creates those that most calls do not need.
local next_fence, channel_of = loadfile('fence.lua'), loadfile('channel.lua')
local call, key, life = redis.call, KEYS[1], tonumber(ARGV[6] or '600000')
local prefix = '{' .. key .. '}:dlock:'
local queue, waiters, fence_key, turn = prefix .. 'queue', prefix .. 'waiters', prefix .. 'fence', prefix .. 'turn'
local HAND_OVER, FREE, FREE_MS, TURN_MS = '3000', 'free until', 120, 10000

-- The server's clock in microseconds, also as a string of 16 digits, and in milliseconds.
local time = call('TIME')
local now, clock = time[1] * 1000000 + time[2], time[1] .. string.sub('00000' .. time[2], -6)
local now_ms = (now - now % 1000) / 1000

-- Returns the time before the end of a grant, in ms, in which it is not renewed in the quarantine. Its client might
-- renew it without holding it, while a former master grants it to another client the moment it ends.
local function late(lease)
    return math.min(500, lease / 2)
end

-- True if the token has dlock's form: 24 hex characters that name a client, and a dot.
local function is_ours(token)
    local _, dot = string.find(token, '^%x*%.')
    return dot == 25
end

-- Returns the value of the fence's key. If that is not a fence, raises an error instead of overwriting it. From 2^53 on
-- Lua does not count exactly: the next fence might not be greater.
local function checked(last)
    if last and not (string.find(last, '^%d+ ?$') and tonumber(last) < 2^53) then
        error('WRONGTYPE ' .. fence_key .. ' holds no fence', 0)
    end
    return last
end

-- Returns the first live waiter, the lease that it is granted at first (a string), its kind, and whether others are
-- behind it. Or nil, and whether there may be one behind the dead that were dropped. The `caller` of an acquire is
-- alive, since it is asking.
local dropped = 0
local function head(caller)
    while true do
        local front = call('ZRANGE', queue, '0', '1')
        local first = front[1]
        if not first then return nil, false end
        local lease, asked, kind = string.match(call('HGET', waiters, first) or '', '^(%d+)@(%d+)(.*)$')
        if not lease and call('EXISTS', waiters) == 0 then
            -- The hash was deleted by another client: the waiters will retry.
            call('DEL', queue)
            return nil, false
        end
        local lives = lease and (first == caller or (not caller or now_ms - asked <= 3000)
            and channel_of(first, true, ARGV[7]))
        if lives then
            if first ~= caller and (#lease > 4 or #lease == 4 and lease > HAND_OVER) then lease = HAND_OVER end
            return first, lease, kind, front[2] ~= nil
        end
        if dropped == 200 then return nil, true end
        dropped = dropped + 1
        call('HDEL', waiters, first)
        call('ZREM', queue, first)
    end
end

-- Tells a waiter that it is granted the lock, "granted <token> <K>", or to retry, "look <K>"; or a lingering holder
-- that there is a waiter, "wanted <K>"; or a holder that it was broken, "broken <token> <K>". A waiter then asks for
-- its grant, and a holder renews: messages cannot be trusted, since PUBLISH is not a write command, and even a read-
-- only user knows everything in the data. Called after all writes, so that a message that cannot be sent prevents
-- none of them.
local function say(word, token)
    local channel, publish = channel_of(token, false, ARGV[7])
    if channel then redis.pcall(publish, channel, word .. ' ' .. key) end
end

-- Grants the free lock to the first waiter, an exclusive one, which gets a message unless it is the caller. `more`:
-- others are behind it. Returns the fence. If `releases`, the lock may be left free for a moment instead: 0.
local function hand_over(token, lease, kind, more, caller, releases)
    local both = call('MGET', fence_key, turn)
    local last, next_turn = checked(both[1] or call('GET', fence_key)), tonumber(both[2])
    if next_turn and next_turn <= now_ms and releases then
        call('DEL', key)
        call('SET', turn, now_ms + TURN_MS, 'PX', '600000')
        call('HSET', waiters, FREE, now_ms + FREE_MS)
        say('look', token)
        return 0
    end
    call('ZREM', queue, token)
    call('SET', key, token, 'PX', lease)
    if not next_turn then call('SET', turn, now_ms + TURN_MS, 'NX', 'PX', '600000') end
    local fence = next_fence(fence_key, last, now, clock, lease, kind, life)
    if more then
        call('HDEL', waiters, token)
    else
        call('DEL', waiters)
    end
    if token ~= caller then say('granted ' .. token, token) end
    if more and kind == ' ' then say('wanted', token) end
    return fence
end

-- Returns a table of the other functions, for joint holders and for longer paths. Its `held` is the value of the lock's
-- key.
local function joint(held)
    local holders, grants = prefix .. 'holders', prefix .. 'grants'
    local last, fenced -- the last fence, if known; whether this call gave it to a joint holder
    local lock = { holders = holders, grants = grants, held = held }

    -- Returns the limit in a kind; nil: it is not one of permits.
    function lock.limit_of(kind)
        local limit = tonumber(string.match(kind, '^dlock:permits:([1-9]%d*)$'))
        return limit and limit < 2^32 and limit or nil
    end

    -- True if the lock's key holds the word of joint holders; another program's token may only begin like one.
    function lock.is_held()
        local word = lock.held
        return word == 'dlock:shared' or word and lock.limit_of(word) ~= nil
    end

    function lock.last_fence()
        last = last or tonumber(checked(call('GET', fence_key)) or 0)
        return last
    end

    -- Raises an error if the keys of joint holders are of other types, before they are deleted.
    function lock.look_at_keys()
        call('ZCARD', holders)
        call('HGET', grants, '')
    end

    -- Takes token out of the queue. Returns 1 if it was there. Without any waiter FREE has no meaning.
    function lock.leave(token)
        call('HDEL', waiters, token)
        local removed = call('ZREM', queue, token)
        if removed == 1 and call('EXISTS', queue) == 0 then call('DEL', waiters) end
        return removed
    end

    -- Returns for how long, in ms, the lock stays free so that other clients get a turn.
    function lock.left_free()
        local left = (call('HGET', waiters, FREE) or 0) - now_ms
        return left > 0 and left <= FREE_MS and left or 0
    end

    -- Returns the number of joint holders.
    function lock.count()
        return call('ZCOUNT', holders, '(' .. now_ms, '+inf')
    end

    -- True if there is room for one more holder of this kind.
    function lock.room(kind)
        if lock.held ~= kind then return not lock.held end
        local limit = lock.limit_of(kind)
        return #kind > 1 and (not limit or lock.count() < limit)
    end

    -- Gives a joint holder the next fence, and returns it: a multiple of 16, of which a quorum makes different ones
    -- (<dlock/backend.h>). Must be followed by settle().
    local function new_fence(token)
        last = math.max(lock.last_fence() + 31, now + 15)
        last, fenced = last - last % 16, true
        call('HSET', grants, token, string.format('%.0f', last))
        return last
    end

    -- Makes token a joint holder with the next fence, which is returned. There must be room. Must be followed by
    -- settle().
    local function join(token, lease, kind)
        lock.last_fence() -- fails before anything is written
        if not lock.held then
            lock.look_at_keys()
            call('SET', key, kind)
            call('DEL', holders, grants)
            lock.held = kind
        end
        call('ZADD', holders, now_ms + lease, token)
        return new_fence(token)
    end

    -- Called after joint holders have joined, renewed or left: makes their word last as long as the last of them. The
    -- key is rewritten instead of given another expiry, since Redis before 7.2 deletes a key at once if its new expiry
    -- has passed since this script read the clock, and more holders may join before the script ends.
    function lock.settle()
        local latest = tonumber(call('ZREVRANGE', holders, 0, 0, 'WITHSCORES')[2])
        if not latest or latest <= now_ms then
            call('DEL', key, holders, grants)
            lock.held = false
            return
        end
        call('SET', key, lock.held, 'PX', latest - now_ms)
        call('PEXPIREAT', holders, latest + 60000)
        call('PEXPIREAT', grants, latest + 60000)
        if fenced then call('SET', fence_key, string.format('%.0f', last)) end
        call('PEXPIREAT', fence_key, latest + 3 * life)
    end

    -- Makes token the exclusive holder of a free lock, with no waiter before it. Returns the fence.
    function lock.take(token, lease, kind)
        local before = checked(call('GET', fence_key))
        call('SET', key, token, 'PX', lease)
        lock.held = token
        return (next_fence(fence_key, before, now, clock, lease, kind, life))
    end

    -- Makes token a joint holder, with room for it and no waiter before it. Returns the fence.
    function lock.enter(token, lease, kind)
        local fence = join(token, lease, kind)
        lock.settle()
        return fence
    end

    -- Makes `floor`, if it is not empty, the joint holder's fence. Must be followed by settle().
    local function raise(token, floor)
        if (floor or '') == '' then return end
        call('HSET', grants, token, floor)
        last, fenced = math.max(lock.last_fence(), floor), true
    end

    -- Makes an exclusive holder the first reader, with the fence that it has.
    function lock.downgrade(token, lease, kind, floor)
        lock.look_at_keys()
        call('DEL', holders, grants)
        call('SET', key, kind)
        call('ZADD', holders, now_ms + lease, token)
        if lock.last_fence() == 0 then last = now end
        call('HSET', grants, token, string.format('%.0f', last))
        lock.held, fenced = kind, true
        raise(token, floor)
        lock.settle()
    end

    -- Renews a joint holder's lease and returns its fence; nil: token is not a holder. `may_grant`: not in the
    -- quarantine.
    function lock.keep(token, lease, may_grant, floor)
        local ends = (tonumber(call('ZSCORE', holders, token)) or 0) - (may_grant and 0 or late(lease))
        if ends <= now_ms then return end
        call('PEXPIRE', fence_key, 3 * life)
        call('ZADD', holders, now_ms + lease, token)
        local fence = tonumber(call('HGET', grants, token)) or new_fence(token) -- deleted by another client
        raise(token, floor)
        lock.settle()
        return fence
    end

    -- Removes joint holders whose leases have ended, a hundred at a time.
    function lock.sweep()
        local gone = call('ZRANGEBYSCORE', holders, '-inf', now_ms, 'LIMIT', 0, 100)
        if #gone == 0 then return end
        call('HDEL', grants, unpack(gone))
        call('ZREM', holders, unpack(gone))
    end

    -- Grants the lock to waiters, starting with the first, as long as there is room. Each gets a message, except the
    -- caller, which gets the reply. Returns the caller's fence if it was among them, and whether there were too many
    -- dead waiters for one call. `releases`: as for hand_over().
    function lock.admit(caller, caller_lease, releases)
        local told_later, mine = {}, nil
        local token, lease, kind, more = head(caller)
        while token and lock.room(kind) do
            lease = token == caller and caller_lease or lease
            if #kind < 2 then
                local fence = hand_over(token, lease, kind, more, caller, releases)
                lock.held = fence > 0 and token
                return token == caller and fence or nil, false
            end
            lock.leave(token)
            local fence = join(token, lease, kind)
            if token == caller then
                mine = fence
            else
                table.insert(told_later, token)
            end
            token, lease, kind = head(caller)
        end
        local tired = not token and lease
        if not mine and #told_later == 0 then return nil, tired end
        lock.settle()
        if not token and not tired then call('DEL', waiters) end
        for _, grantee in ipairs(told_later) do say('granted ' .. grantee, grantee) end
        return mine, tired
    end

    return lock
end

-- Evaluates a caller's word about granting: '1' (or nothing): it may; '0': it may not; otherwise for how long the
-- server must have been the same master, in ms, and the key of the record that says so (incarnation.lua), a question
-- that the caller has asked just before.
local function may_grant(word)
    if not word or #word < 2 then return word ~= '0' end
    local age_ms, record = string.match(word, '^(%d+) (.*)$')
    local since = string.match(record and call('GET', record) or '', '^%w+ %w+ (%d+)')
    return since and now_ms - since >= tonumber(age_ms)
end

return now, clock, is_ours, head, hand_over, say, joint, may_grant, late
