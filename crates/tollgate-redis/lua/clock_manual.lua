-- The time of the whole script, in tests: instead of clock.lua, and never loaded in production.
--
-- ARGV[1]  now, in microseconds since the epoch; the other arguments move up.
--
-- Keys linger for an hour: they expire by the server's clock, which runs on while that of a test stands still.

local now = tonumber(table.remove(ARGV, 1))
local linger = 3600000
