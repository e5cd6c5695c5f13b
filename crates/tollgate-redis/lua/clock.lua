-- The time of the whole script: the server's, so that a fleet shares one clock.
--
-- It is read once, and decides everything. Sets
--   now     microseconds since the epoch
--   linger  milliseconds that a key outlives its state: one, since Redis counts a key's life in whole milliseconds of a
--           clock that may have been read before this one

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local linger = 1
