-- What every script begins with: the layout of a lock.
--
-- The six keys of a lock, all in one hash slot (K is the name, with `{`, `}` and `%` percent-encoded). Scripts are given
-- the first, and make the others of it when they need them:
--            K            string  exclusive: the holder's token, with the lease as its expiry: exactly what `SET K
--                                 token NX PX lease` writes, so every client of that convention and we exclude each
--                                 other. Joint (shared, or permits): the word `dlock:shared` or
--                                 `dlock:permits:<limit>`, which expires with the last of the holders and keeps such
--                                 clients out as well
--            {K}:fence    string  the last fence; outlives the lease by a day at least. A name whose fence is gone starts
--                                 at the server's clock in microseconds, which is past every fence given out, unless
--                                 the server's wall clock was set back by more than that day. A client's first fence in
--                                 a second is the clock, too, unless that is behind; the others may be counted up from
--                                 it. A space at its end: the exclusive holder lingers
--            {K}:queue    zset    the waiters' tokens, in the order in which they came
--            {K}:waiters  hash    token -> lease in ms, `@`, when it last asked (the server's clock in ms) and kind,
--                                 for each of them; HANDED -> the token and the fence of an exclusive hand-over that
--                                 its receiver has not confirmed, when it was (in ms), `+`, and its lease in ms;
--                                 channel of a client -> when such a hand-over to it ended
--            {K}:holders  zset    the joint holders' tokens, by the server's clock in ms when their leases end
--            {K}:grants   hash    token -> fence, for each of them; negative while a hand-over is not confirmed
--
-- The kind of a grant: the word in K if it is joint; if it is exclusive: empty, or one space if its holder lingers.
--
-- The last two keys mean something only while K holds a word. Whoever writes a word where there was none empties them
-- first, so that nobody who held jointly before an exclusive or a foreign holder ever holds again: he finds himself
-- gone. A token among them holds until its time and not longer, even if K and others go on.
--
-- At maxmemory Redis refuses what needs memory only as the first write of a script. So an acquire is refused as a
-- whole, while a renewal or a release, which writes something else first, is always carried through.
--
-- Numbers that are arguments of commands are written as strings where that is easy: it is less work for the server.
local call, lock = redis.call, KEYS[1]
local DAY = 86400000
local FENCE_LIFE = 3 * DAY
local HANDED = 'handed to'
