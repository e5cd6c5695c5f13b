-- Gives back units that were granted. Before it in what is loaded stands what acquire.lua tells; of a policy's ways this uses
-- `refund`.
--
-- KEYS     the key of each grant
-- ARGV[1]  numbers of 8 bytes (doubles, the lowest byte first); for each grant
--            units         how many come back
--            stamp, parts  which grant it is: TAT after it in microseconds and parts of one, the start of its window, the
--                          number of its sub-window, or its time
--            algorithm     which of `algorithms`
--            arguments     how many the algorithm takes; then those, with what comes back as the cost
-- RETURNS  nothing

local sent, at = ARGV[1], 1

for i = 1, #KEYS do
  local units, stamp, parts, algorithm, arguments
  units, stamp, parts, algorithm, arguments, at = struct.unpack('<ddddd', sent, at)
  local policy = algorithms[algorithm](struct.unpack(sub('<dddddddd', 1, arguments + 1), sent, at))
  at = at + 8 * arguments
  policy:refund(KEYS[i], units, stamp, parts)
end
