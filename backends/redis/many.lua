-- Does what another script does for each of several locks, as if it were called for each alone, one after the other.
-- Building makes one such script of each that is called for many: where this says loadfile('script'), it puts that
-- other's text, as a function of KEYS and ARGV.
--   KEYS   K of each
--   ARGV   how many arguments each has, and then these
--   reply  the reply for each; an error that would have ended its call is its reply
local script = loadfile('script')
local each, replies = tonumber(ARGV[1]), {}
for i = 1, #KEYS do
    local done, reply = pcall(script, { KEYS[i] }, { unpack(ARGV, 2 + (i - 1) * each, 1 + i * each) })
    if not done and type(reply) ~= 'table' then reply = { err = tostring(reply) } end
    replies[i] = reply
end
return replies
