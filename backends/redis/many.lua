-- Does what another script does for each of several locks, as if it were called for each alone, one after the other.
-- Building makes one such script of each that is called for many: where this says loadfile('script'), it puts that
-- other's text, as a function of KEYS and ARGV. Where several in a row are for one lock, what they share may be done
-- once: ARGV.more says that the next is for this lock, too; a script that leaves work to that one sets ARGV.owes, which
-- it finds as ARGV.owed.
--   KEYS   K of each
--   ARGV   how many arguments each has, and then these
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
