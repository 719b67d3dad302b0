-- Does what follows for each of several locks, as if each were called alone, one after the other.
--   KEYS   K of each
--   ARGV   how many arguments each has, and then these
--   reply  the reply for each; an error that would have ended its call is its reply
local all, words, each, replies = KEYS, ARGV, tonumber(ARGV[1]), {}
for i = 1, #all do
    local KEYS, ARGV = { all[i] }, { unpack(words, 2 + (i - 1) * each, 1 + i * each) }
    local whole, reply = pcall(function()
