-- Acquires sets of checks. Each set is acquired k times, with min <= k <= max, all or nothing
-- across its checks. Sets are decided in order, each after those before it.
--
-- A loaded script is this file, gcra_whole.lua (if a check needs GCRA) and acquire_general.lua.
-- Before them come a clock, number.lua, and the function `algorithms`. Its result has `ensure_end`
-- of stored.lua, and for each algorithm a function that makes a policy of its arguments. A policy
-- is a table of functions:
--   look(key, text):                the state under a key, in up to three values. `text` is the
--                                   value of the key, if that is a string
--   fits(times, state):             how often the cost fits, at most `times`
--   charge(key, n, state):          takes the cost n times
--   report(key, n, refused, state): what to return instead of the state (only some have it)
--   ends(state, key):               when the state expires
--   refund(key, text, units, stamp, parts): see refund.lua
-- and `returns` is the number of values that it returns for a check.
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
--              arguments: seven: those of the algorithm, then zeros
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

-- Decides a set of one check. Appends its reply behind the first `answers` numbers of `answer`, and
-- returns the new length.
local function decide(made, policy, key, text, max, refused, answer, answers)
  local x, y, z = policy.look(key, text)
  local granted = policy.fits(max, x, y, z)
  if max > 0 and granted < refused then
    granted = 0
    made.ensure_end(key, policy, x, y, z)
  end
  if granted < max then
    answers = answers + 1
    answer[answers] = -1 - granted
  end
  answer[answers + 1], answer[answers + 2], answer[answers + 3] = x, y, z
  if policy.report then
    answer[answers + 1], answer[answers + 2], answer[answers + 3], answer[answers + 4] =
      policy.report(key, granted, (granted < max or max == 0) and refused or 0, x, y, z)
  end
  if granted > 0 then
    policy.charge(key, granted, x, y, z)
  end
  return answers + policy.returns
end

local KEYS, sent, at, call, try = KEYS, ARGV[1], 1, redis.call, redis.pcall
local answer, answers, keys, made = { now, 0, 0, 0 }, 1, 0, nil

while at <= #sent do
  local checks, whole, sets, min, runs = struct.unpack('<ddddd', sent, at)
  at = at + 40
  -- The caller computes its wait for this many times the cost beyond the granted ones: `min` for a
  -- denied set, or one more time.
  local refused = min > 1 and min or 1

  if whole == 1 then
