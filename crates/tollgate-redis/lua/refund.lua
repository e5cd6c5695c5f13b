-- Refunds granted units, renews slots, and resets keys. A clock, number.lua and `algorithms` come
-- before it, and reply.lua behind it. It calls the function `refund` of each policy: see
-- acquire.lua.
--
-- KEYS     the key of each grant, one group after another. A group is of grants of one policy, and
--          its keys are different; but those of slots need not be
-- ARGV[1]  numbers of 8 bytes (little-endian doubles), for one group after another:
--            algorithm:  a key of the result of `algorithms`. 0 resets the keys of the group
--            arguments:  eleven: those of the algorithm, whose cost says nothing here, then zeros
--            grants:     the number of them
--            then for each grant, but not for resets
--              units:         the number of units to refund; 0 renews a slot
--              stamp, parts:  identifies the grant: TAT after it in microseconds and parts, the
--                             start of its window, the number of its sub-window, its time, or the
--                             time and the number of its slot; 2^54 for the newest units
--              span, parts:   units x T, for a bucket; for a slot, 1 if a renewal claims it again,
--                             and 0
-- RETURNS  for each renewal 1 if the slot is held, else 0, as numbers of 8 bytes

local sent, at, keys, made = ARGV[1], 1, 0, nil
local answer, answers = {}, 0
while at <= #sent do
  local algorithm, a, b, c, d, e, f, g, h, j, k, l, grants = struct.unpack('<ddddddddddddd', sent, at)
  at = at + 104
  if algorithm == 0 then
    redis.call('DEL', unpack(KEYS, keys + 1, keys + grants))
  else
    made = made or algorithms()
    local policy = made[algorithm](a, b, c, d, e, f, g, h, j, k, l)
    local texts = policy.reads and {} or redis.call('MGET', unpack(KEYS, keys + 1, keys + grants))
    for i = 1, grants do
      local units, stamp, parts, span_us, span_frac = struct.unpack('<ddddd', sent, at)
      at = at + 40
      local held = policy.refund(KEYS[keys + i], texts[i], units, stamp, parts, span_us, span_frac)
      if units == 0 then
        answers = answers + 1
        answer[answers] = held
      end
    end
  end
  keys = keys + grants
end
