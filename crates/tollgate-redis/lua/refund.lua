-- Gives back units that were granted. Behind it in what is loaded stand clock.lua, number.lua and the algorithms that are
-- asked for, as entries of `algorithms`.
--
-- KEYS     the key of each grant
-- ARGV     for each grant
--            algorithm   its name
--            arguments   those of the algorithm, as many as it says, with what comes back as the cost
--            units       how many come back
--            stamp, parts  which grant it is: TAT after it in microseconds and parts of one, the start of its window, the
--                        number of its sub-window, or its time
-- RETURNS  nothing

local arguments = 0

local function read_number()
  arguments = arguments + 1
  return tonumber(ARGV[arguments])
end

for i = 1, #KEYS do
  arguments = arguments + 1
  local algorithm = algorithms[ARGV[arguments]]
  local given = {}
  for j = 1, algorithm.arguments do
    given[j] = read_number()
  end
  local units, stamp, parts = read_number(), read_number(), read_number()
  algorithm.refund(algorithm.policy(given), KEYS[i], units, stamp, parts)
end
