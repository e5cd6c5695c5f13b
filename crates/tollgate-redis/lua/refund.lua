-- Refunds granted units, and resets keys. A clock, number.lua and `algorithms` come before it. It
-- calls the function `refund` of each policy: see acquire.lua.
--
-- KEYS     the key of each grant
-- ARGV[1]  numbers of 8 bytes (little-endian doubles), for each grant
--            units         the number of units to refund
--            stamp, parts  identifies the grant: TAT after it in microseconds and parts, the start
--                          of its window, the number of its sub-window, or its time
--            algorithm     a key of the result of `algorithms`. 0 resets the key, and the other
--                          numbers are zeros
--            arguments     seven: those of the algorithm with the refund as the cost, then zeros
-- RETURNS  nothing

local made
for i = 1, #KEYS do
  local units, stamp, parts, algorithm, a, b, c, d, e, f, g = struct.unpack('<ddddddddddd', ARGV[1], 88 * i - 87)
  if algorithm == 0 then
    redis.call('DEL', KEYS[i])
  else
    made = made or algorithms()
    local policy = made[algorithm](a, b, c, d, e, f, g)
    policy.refund(KEYS[i], redis.call('MGET', KEYS[i])[1], units, stamp, parts)
  end
end
