-- Returns the units of an interval. A clock, number.lua and `algorithms` come before it. It calls
-- the function `usage` of a policy, which logs and rings have.
--
-- KEYS[1]  the key of a log or a ring
-- ARGV[1]  numbers of 8 bytes (little-endian doubles)
--            interval   the microseconds before now
--            algorithm  a key of the result of `algorithms`
--            arguments  eleven: those of the algorithm with a cost of 0, then zeros
-- RETURNS  units

local interval, algorithm, a, b, c, d, e, f, g = struct.unpack('<ddddddddd', ARGV[1])
return algorithms()[algorithm](a, b, c, d, e, f, g).usage(KEYS[1], interval)
