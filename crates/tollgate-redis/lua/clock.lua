-- The time for the whole script: the server's, so that a fleet shares one clock. It is read once.
--
-- Sets
--   now     microseconds since the epoch
--   linger  milliseconds that a key outlives its state: one, since Redis counts TTLs in
--           milliseconds, from a time that it may have read before this one

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local linger = 1
