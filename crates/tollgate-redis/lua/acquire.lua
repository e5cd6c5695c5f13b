-- Acquires sets of checks: each set k times, with min <= k <= max, all or nothing across its checks; in order, each after
-- those before it. Before it in what is loaded stand a clock, number.lua and the algorithms that are asked for, as entries
-- of `algorithms`. Each makes a policy of its arguments, which is a table of functions:
--   look(key, text)          the state under a key, in up to three values; `text` is what the key holds, where it is a string
--   fits(times, state)       how often the cost fits, at most `times`
--   charge(key, n, state)    takes the cost n times
--   take(n)                  where it is there, may give two functions that take the cost n times of a key that has room: of
--                            `key, text`, and of `key` alone, whose text was not read. They return the state before, and
--                            whether such a state is what the second hopes for; or nothing, where they took nothing
--   report(key, n, refused, state)  what is answered of the state, where that is not the state itself
--   ends(state)              when the state means nothing more
--   refund(key, text, units, stamp, parts)  see refund.lua
--
-- KEYS     the keys of the sets, one after another: those of a set in the order of its checks; of sets of one check, none
--          twice in a group
-- ARGV[1]  numbers of 8 bytes (doubles, the lowest byte first): groups of sets that are alike but for their keys and for how
--          often each is to be acquired, one after another:
--            checks    how many checks a set has
--            runs      how many runs of sets follow
--            then for each check
--              algorithm  which of `algorithms`
--              arguments  seven: those that the algorithm takes, and zeros
--            then for each run
--              sets      how many sets there are in it
--              min, max  how often each is to be acquired; a max of 0 looks
-- RETURNS  numbers of 8 bytes, in the same form:
--            now, in microseconds since the epoch; then for each set
--              granted  how often; 0 is a denial, or a look
--              for each check what its algorithm says it returns: the state before the charge, from which the caller
--              computes what remains and how long to wait

local KEYS, sent, at = KEYS, ARGV[1], 1
local answer, answers, keys = { now, 0, 0, 0 }, 1, 0

while at <= #sent do
  local checks, runs = struct.unpack('<dd', sent, at)
  at = at + 16
  local policies = {}
  for i = 1, checks do
    local algorithm, a, b, c, d, e, f, g = struct.unpack('<dddddddd', sent, at)
    at = at + 64
    policies[i] = algorithms[algorithm](a, b, c, d, e, f, g)
  end

  for _ = 1, runs do
    local sets, min, max = struct.unpack('<ddd', sent, at)
    at = at + 24
    -- How many times a cost is refused beyond what is granted: those of a denied set, or one for the next. It is what the
    -- caller will ask the wait of.
    local refused = math.max(1, min)

    if checks == 1 then
      -- As most sets are: what stands below, without its book-keeping, and all keys read at once.
      local policy, texts, first = policies[1], {}, 0
      local look, fits, report, charge, returns = policy.look, policy.fits, policy.report, policy.charge, policy.returns
      local known, unknown = nil, nil
      if sets >= 8 and max >= refused and policy.take then
        known, unknown = policy.take(max)
      end
      -- Keys are not read first as long as this is above zero: where the first was as hoped for, and two in three of those since.
      -- It ends with one that has no room, since what has to be given back is written twice, and replicated.
      local hope = 0
      for i = 1, sets do
        local key, text, a, b, c = KEYS[keys + i], nil, nil, nil, nil
        if hope > 0 then
          a, b, c = unknown(key)
          hope = not a and 0 or c and hope + 1 or hope - 2
        end
        if not a then
          text = texts[i - first]
          if text == nil then
            texts, first = call('MGET', unpack(KEYS, keys + i, keys + (i == 1 and known and 1 or sets))), i - 1
            text = texts[1]
          end
          if known then
            a, b, c = known(key, text)
            hope = i == 1 and c and 4 or 0
          end
        end
        if a then
          answer[answers + 1], answer[answers + 2], answer[answers + 3] = max, a, b
          answers = answers + 3
        else
          a, b, c = look(key, text)
          local granted = fits(max, a, b, c)
          if max > 0 and granted < refused then
            granted = 0
            ensure_end(key, policy.ends(a, b, c))
          end
          answer[answers + 1], answer[answers + 2], answer[answers + 3] = granted, a, b
          if report then
            answer[answers + 2], answer[answers + 3], answer[answers + 4], answer[answers + 5] =
              report(key, granted, (granted < max or max == 0) and refused or 0, a, b, c)
          elseif returns > 2 then
            answer[answers + 4] = c
          end
          answers = answers + 1 + returns
          if granted > 0 then
            charge(key, granted, a, b, c)
          end
        end
      end
      keys, sets = keys + sets, 0
    end

    for _ = 1, sets do
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
      answer[answers] = granted
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
          ensure_end(key, policy.ends(policy.a, policy.b, policy.c))
        end
      end
      keys = keys + checks
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
