-- The time for the whole script in tests. Loaded instead of clock.lua, and never in production.
--
-- ARGV[1]  now, in microseconds since the epoch. It is removed, so the other arguments move up.
--
-- Keys linger for an hour: they expire by the server's clock, while a test's clock stands still.

local now = tonumber(table.remove(ARGV, 1))
local linger = 3600000
