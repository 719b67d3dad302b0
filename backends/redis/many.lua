-- Runs another script for each of several locks, as if it were called once per lock, in order. The build makes one such
-- script from each script that is called for many locks: its text, as a function of KEYS and ARGV, replaces
-- loadfile('script'). Consecutive calls for the same lock can share work: ARGV.more says that the next call is for the
-- same lock; a script that leaves work to that call sets ARGV.owes, which the next one finds as ARGV.owed.
--   KEYS   K of each
--   ARGV   the number of arguments that each has, and then these
--   reply  the reply for each; an error that would have ended its call is its reply
local script = loadfile('script')
local each, replies, owed = tonumber(ARGV[1]), {}, nil
for i = 1, #KEYS do
    local args = { unpack(ARGV, 2 + (i - 1) * each, 1 + i * each) }
    args.more, args.owed = KEYS[i + 1] == KEYS[i], owed
    local done, reply = pcall(script, { KEYS[i] }, args)
    owed = args.owes
    if not done and type(reply) ~= 'table' then reply = { err = tostring(reply) } end
    replies[i] = reply
end
return replies
