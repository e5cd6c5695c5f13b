-- Refunds granted units, and resets keys. A clock, number.lua and `algorithms` come before it. It
-- calls the function `refund` of each policy: see acquire.lua.
--
-- KEYS     the key of each grant, one group after another. A group is of grants of one policy, and
--          its keys are different
-- ARGV[1]  numbers of 8 bytes (little-endian doubles), for one group after another:
--            algorithm:  a key of the result of `algorithms`. 0 resets the keys of the group
--            arguments:  seven: those of the algorithm, whose cost says nothing here, then zeros
--            grants:     the number of them
--            then for each grant, but not for resets
--              units:         the number of units to refund
--              stamp, parts:  identifies the grant: TAT after it in microseconds and parts, the
--                             start of its window, the number of its sub-window, or its time
--              span, parts:   units x T, for a bucket
-- RETURNS  nothing

local sent, at, keys, made = ARGV[1], 1, 0, nil
while at <= #sent do
  local algorithm, a, b, c, d, e, f, g, grants = struct.unpack('<ddddddddd', sent, at)
  at = at + 72
  if algorithm == 0 then
    redis.call('DEL', unpack(KEYS, keys + 1, keys + grants))
  else
    made = made or algorithms()
    local policy = made[algorithm](a, b, c, d, e, f, g)
    local texts = redis.call('MGET', unpack(KEYS, keys + 1, keys + grants))
    for i = 1, grants do
      local units, stamp, parts, span_us, span_frac = struct.unpack('<ddddd', sent, at)
      at = at + 40
      policy.refund(KEYS[keys + i], texts[i], units, stamp, parts, span_us, span_frac)
    end
  end
  keys = keys + grants
end
