-- Acquires sets of checks: each set k times, with min <= k <= max, all or nothing across its checks; in order, each after
-- those before it. Before it in what is loaded stand a clock, number.lua and the algorithms that are asked for, as what the
-- function `algorithms` gives, beside `ensure_end` of stored.lua. Each makes a policy of its arguments, a table of functions:
--   look(key, text)          the state under a key, in up to three values; `text` is what the key holds, where it is a string
--   fits(times, state)       how often the cost fits, at most `times`
--   charge(key, n, state)    takes the cost n times
--   report(key, n, refused, state)  what is answered of the state, where that is not the state itself
--   ends(state, key)         when the state means nothing more
--   refund(key, text, units, stamp, parts)  see refund.lua
--
-- KEYS     the keys of the sets, one after another: those of a set in the order of its checks; of sets of one check, none
--          twice in a group
-- ARGV[1]  numbers of 8 bytes (doubles, the lowest byte first): groups of sets that are alike but for their keys and for how
--          often each is to be acquired, one after another:
--            checks    how many checks a set has
--            whole     1 where gcra_whole.lua may decide; else 0
--            sets      how many sets there are
--            min       how often each is to be acquired at least
--            runs      how many runs of sets follow
--            then for each check
--              algorithm  which of `algorithms`
--              arguments  seven: those that the algorithm takes, and zeros
--            then for each run
--              alike      how many sets there are in it
--              max        how often each is to be acquired at most; 0 looks
-- RETURNS  numbers of 8 bytes, in the same form:
--            now, in microseconds since the epoch; then for each set either
--              TAT        before the charge: where `whole` is 1, and it was granted `max` times by gcra_whole.lua; or
--              times      -1 - how often it was granted; -1 is a denial, or a look
--              for each check what its algorithm says it returns: the state before the charge, from which the caller
--              computes what remains and how long to wait

-- Decides a set of one check, and puts what came of it behind so many answers. Returns how many there are then.
local function decide(made, policy, key, text, max, refused, answer, answers)
  local x, y, z = policy.look(key, text)
  local granted = policy.fits(max, x, y, z)
  if max > 0 and granted < refused then
    granted = 0
    made.ensure_end(key, policy, x, y, z)
  end
  answer[answers + 1], answer[answers + 2], answer[answers + 3] = -1 - granted, x, y
  if policy.report then
    answer[answers + 2], answer[answers + 3], answer[answers + 4], answer[answers + 5] =
      policy.report(key, granted, (granted < max or max == 0) and refused or 0, x, y, z)
  elseif policy.returns > 2 then
    answer[answers + 4] = z
  end
  if granted > 0 then
    policy.charge(key, granted, x, y, z)
  end
  return answers + 1 + policy.returns
end

local KEYS, sent, at, call, try = KEYS, ARGV[1], 1, redis.call, redis.pcall
local answer, answers, keys, made = { now, 0, 0, 0 }, 1, 0, nil

while at <= #sent do
  local checks, whole, sets, min, runs = struct.unpack('<ddddd', sent, at)
  at = at + 40
  -- How many times a cost is refused beyond what is granted: those of a denied set, or one for the next. It is what the
  -- caller will ask the wait of.
  local refused = min > 1 and min or 1

  if whole == 1 then
    -- gcra_whole.lua stands here in what is loaded.
  elseif checks == 1 then
    -- What stands below, without its book-keeping, and all keys read at once.
    local algorithm, a, b, c, d, e, f, g = struct.unpack('<dddddddd', sent, at)
    at = at + 64
    made = made or algorithms()
    local policy = made[algorithm](a, b, c, d, e, f, g)
    local texts, before = call('MGET', unpack(KEYS, keys + 1, keys + sets)), keys
    for _ = 1, runs do
      local alike, max = struct.unpack('<dd', sent, at)
      at = at + 16
      for i = keys + 1, keys + alike do
        answers = decide(made, policy, KEYS[i], texts[i - before], max, refused, answer, answers)
      end
      keys = keys + alike
    end
  else
    local policies = {}
    made = made or algorithms()
    for i = 1, checks do
      local algorithm, a, b, c, d, e, f, g = struct.unpack('<dddddddd', sent, at)
      at = at + 64
      policies[i] = made[algorithm](a, b, c, d, e, f, g)
    end
    for _ = 1, runs do
      local alike, max = struct.unpack('<dd', sent, at)
      at = at + 16
      for _ = 1, alike do
        -- First look at all ...
        local granted, texts = max, call('MGET', unpack(KEYS, keys + 1, keys + checks))
        for i = 1, checks do
          local policy = policies[i]
          policy.a, policy.b, policy.c = policy.look(KEYS[keys + i], texts[i])
          policy.room = policy.fits(max, policy.a, policy.b, policy.c)
          granted = math.min(granted, policy.room)
        end
        local refused = (granted < max or max == 0) and refused or 0
        if granted < min then
          granted = 0
        end
        answers = answers + 1
        answer[answers] = -1 - granted
        -- ... and charge only if all have room.
        for i = 1, checks do
          local policy, key = policies[i], KEYS[keys + i]
          local a, b, c, d = policy.a, policy.b, policy.c, nil
          if policy.report then
            a, b, c, d = policy.report(key, granted, refused, a, b, c)
          end
          answer[answers + 1], answer[answers + 2], answer[answers + 3], answer[answers + 4] = a, b, c, d
          answers = answers + policy.returns
          if granted > 0 then
            policy.charge(key, granted, policy.a, policy.b, policy.c)
          elseif max > 0 and policy.room < refused then
            made.ensure_end(key, policy, policy.a, policy.b, policy.c)
          end
        end
        keys = keys + checks
      end
    end
  end
end

-- In chunks: unpack gives no more than 8,000 values.
local packed = ''
for first = 1, answers, 4000 do
  local last = math.min(answers, first + 3999)
  local chunk = struct.pack('<' .. string.rep('d', last - first + 1), unpack(answer, first, last))
  packed = first == 1 and chunk or packed .. chunk
end
return packed
