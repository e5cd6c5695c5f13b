-- Acquires sets of checks: each set k times, with min <= k <= max, all or nothing across its checks; in order, each after
-- those before it. Before it in what is loaded stand a clock, number.lua and the algorithms that are asked for, as entries
-- of `algorithms`: each makes a policy of its arguments, and a policy can look at a key, tell how often its cost fits,
-- charge it, report, and tell when its state ends.
--
-- KEYS     the keys of the sets, one after another: those of a set in the order of its checks
-- ARGV[1]  numbers of 8 bytes (doubles, the lowest byte first): groups of sets that are alike but for their keys, one after
--          another:
--            sets      how many sets there are in the group
--            min, max  how often each is to be acquired; a max of 0 looks
--            checks    how many checks a set has; then for each of them
--              algorithm    which of `algorithms`
--              arguments    how many the algorithm takes; then those
-- RETURNS  numbers of 8 bytes, in the same form:
--            now, in microseconds since the epoch; then for each set
--              granted  how often; 0 is a denial, or a look
--              for each check what its algorithm says it returns: the state before the charge, from which the caller
--              computes what remains and how long to wait

local KEYS, sent, unpacked = KEYS, ARGV[1], struct.unpack
local answer, answers, keys, at = { now, 0, 0, 0 }, 1, 0, 1

-- Without an end to its life a key would be full for ever. Nothing of ours is written so.
local function ensure_end(policy, key, a, b, c)
  if call('PTTL', key) == -1 then
    call('PEXPIRE', key, life(policy:ends(a, b, c)))
  end
end

-- How many times a cost is refused beyond what is granted: those of a denied set, or one for the next. It is what the caller
-- will ask the wait of.
local function refusals(granted, min, max)
  if granted < max or max == 0 then
    return max_of(1, min)
  end
  return 0
end

-- Sets of one check, as most are: what `acquire` does, without its book-keeping.
local function acquire_alone(sets, policy, min, max)
  local look, fits, report, charge = policy.look, policy.fits, policy.report, policy.charge
  for i = keys + 1, keys + sets do
    local key = KEYS[i]
    local a, b, c = look(policy, key)
    local granted = fits(policy, max, a, b, c)
    if granted < min then
      granted = 0
      ensure_end(policy, key, a, b, c)
    end
    local w, x, y, z = a, b, c, nil
    if report then
      w, x, y, z = report(policy, key, granted, refusals(granted, min, max), a, b, c)
    end
    answer[answers + 1], answer[answers + 2], answer[answers + 3] = granted, w, x
    if y then
      answer[answers + 4], answer[answers + 5] = y, z
    end
    answers = answers + 1 + policy.returns
    if granted > 0 then
      charge(policy, key, granted, a, b, c)
    end
  end
  keys = keys + sets
end

local function acquire(policies, min, max)
  -- First look at all ...
  local granted = max
  for i = 1, #policies do
    local policy = policies[i]
    policy.a, policy.b, policy.c = policy:look(KEYS[keys + i])
    policy.room = policy:fits(max, policy.a, policy.b, policy.c)
    granted = min_of(granted, policy.room)
  end
  local refused = refusals(granted, min, max)
  if granted < min then
    granted = 0
  end
  answers = answers + 1
  answer[answers] = granted
  -- ... and charge only if all have room.
  for i = 1, #policies do
    local policy, key = policies[i], KEYS[keys + i]
    local a, b, c, d = policy.a, policy.b, policy.c, nil
    if policy.report then
      a, b, c, d = policy:report(key, granted, refused, a, b, c)
    end
    answer[answers + 1], answer[answers + 2], answer[answers + 3], answer[answers + 4] = a, b, c, d
    answers = answers + policy.returns
    if granted > 0 then
      policy:charge(key, granted, policy.a, policy.b, policy.c)
    elseif policy.room < min then
      ensure_end(policy, key, policy.a, policy.b, policy.c)
    end
  end
  keys = keys + #policies
end

while at <= #sent do
  local sets, min, max, wanted
  sets, min, max, wanted, at = unpacked('<dddd', sent, at)
  local policies = {}
  for i = 1, wanted do
    local algorithm, arguments
    algorithm, arguments, at = unpacked('<dd', sent, at)
    policies[i] = algorithms[algorithm](unpacked(sub('<dddddddd', 1, arguments + 1), sent, at))
    at = at + 8 * arguments
  end
  if wanted == 1 then
    acquire_alone(sets, policies[1], min, max)
  else
    for _ = 1, sets do
      acquire(policies, min, max)
    end
  end
end

-- In chunks: unpack gives no more than 8,000 values.
local packed = ''
for first = 1, answers, 4000 do
  local last = min_of(answers, first + 3999)
  packed = packed .. struct.pack('<' .. string.rep('d', last - first + 1), unpack(answer, first, last))
end
return packed
