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
