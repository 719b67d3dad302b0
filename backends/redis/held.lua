-- What the lock's key holds; false: nothing.
local held = call('GET', lock)
