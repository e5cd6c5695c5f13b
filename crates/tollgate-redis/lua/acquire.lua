-- Acquires sets of checks. Each set is acquired k times, with min <= k <= max, all or nothing
-- across its checks. Sets are decided in order, each after those before it.
--
-- In a loaded script, these come before this file: a clock, number.lua, the function `algorithms`,
-- decide.lua, and gcra_whole.lua if a check needs GCRA. Behind it come track.lua, if a policy
-- tracks usage, and reply.lua. The result of `algorithms` has `ensure_end`
-- of stored.lua, and for each algorithm a function that makes a policy of its arguments. A policy
-- is a table of functions:
--   look(key, text):                the state under a key, in up to three values. `text` is the
--                                   value of the key, if that is a string
--   fits(times, state):             how often the cost fits, at most `times`
--   charge(key, n, state):          takes the cost n times
--   report(key, n, refused, state): what to return instead of the state (only some have it)
--   ends(state, key):               when the state expires
--   refund(key, text, units, stamp, parts): see refund.lua
-- and `returns` is the number of values that it returns for a check. If `reads` is true, it reads
-- its keys itself, which are no strings.
--
-- KEYS     the keys of all sets, one set after another, in the order of its checks. Sets of one
--          check in one group have different keys
-- ARGV[1]  numbers of 8 bytes (little-endian doubles), for one group after another. A group is of
--          sets that differ only in their keys and in `max`:
--            checks:    the number of checks in a set
--            whole:     1 if gcra_whole.lua may decide, else 0
--            sets:      the number of sets
--            min:       the least number of times to acquire each set
--            runs:      the number of runs of sets that follow
--            then for each check
--              algorithm: a key of the result of `algorithms`
--              arguments: eleven: those of the algorithm, then zeros
--            then for each run
--              alike:     the number of sets in it
--              max:       the most times to acquire each set; 0 only looks
-- RETURNS  numbers of 8 bytes, in the same form:
--            now:       microseconds since the epoch
--            then for each set
--              times:     -1 - how often it was granted, so -1 is a denial. Left out if the set was
--                         granted `max` times: no state begins with a negative number
--              state:     for each check the state before the charge, as its algorithm returns it.
--                         The caller computes from it what remains and how long to wait

local keys = 0
while at <= #sent do
  local checks, whole, sets, min, runs = struct.unpack('<ddddd', sent, at)
  at = at + 40
  -- The caller computes its wait for this many times the cost beyond the granted ones: `min` for a
  -- denied set, or one more time.
  local wanted = min > 1 and min or 1

  if whole == 1 then
    gcra_whole(keys + 1, sets, runs)
    keys = keys + sets
  elseif checks == 1 then
    -- One check in each set: all keys are read by one command.
    local policy = policy_at(at)
    at = at + 96
    local texts, before = policy.reads and {} or call('MGET', unpack(KEYS, keys + 1, keys + sets)), keys
    for _ = 1, runs do
      local alike, max = struct.unpack('<dd', sent, at)
      at = at + 16
      for i = keys + 1, keys + alike do
        decide(policy, KEYS[i], texts[i - before], max, wanted)
      end
      keys = keys + alike
    end
  else
    local policies = {}
    for i = 1, checks do
      policies[i] = policy_at(at)
      at = at + 96
    end
    for _ = 1, runs do
      local alike, max = struct.unpack('<dd', sent, at)
      at = at + 16
      for _ = 1, alike do
        -- First look at all checks ...
        local granted, texts = max, call('MGET', unpack(KEYS, keys + 1, keys + checks))
        for i = 1, checks do
          local policy = policies[i]
          policy.a, policy.b, policy.c = policy.look(KEYS[keys + i], texts[i])
          policy.room = policy.fits(max, policy.a, policy.b, policy.c)
          granted = math.min(granted, policy.room)
        end
        local refused = (granted < max or max == 0) and wanted or 0
        if granted < min then
          granted = 0
        end
        if granted < max then
          answers = answers + 1
          answer[answers] = -1 - granted
        end
        -- ... and charge only if all fit.
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
