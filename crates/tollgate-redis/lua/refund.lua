-- Gives back units that were granted, and resets keys. Before it in what is loaded stands what acquire.lua tells; of a policy's ways this uses
-- `refund`.
--
-- KEYS     the key of each grant
-- ARGV[1]  numbers of 8 bytes (doubles, the lowest byte first); for each grant
--            units         how many come back
--            stamp, parts  which grant it is: TAT after it in microseconds and parts of one, the start of its window, the
--                          number of its sub-window, or its time
--            algorithm     which of `algorithms`; 0 resets the key, and then the other numbers are zeros
--            arguments     seven: those that the algorithm takes, with what comes back as the cost, and zeros
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
