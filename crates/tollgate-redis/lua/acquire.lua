-- Acquires sets of checks: each set k times, with min <= k <= max, all or nothing across its checks; in order, each after
-- those before it. Behind it in what is loaded stand clock.lua, number.lua and the algorithms that are asked for, as
-- entries of `algorithms`.
--
-- KEYS     the keys of the sets, one after another: those of a set in the order of its checks
-- ARGV     groups of sets that are alike but for their keys, one after another:
--            sets      how many sets there are in the group
--            min, max  how often each is to be acquired; a max of 0 looks
--            checks    how many checks a set has; then for each of them
--              algorithm    its name
--              arguments    those of the algorithm, as many as it says
-- RETURNS  numbers of 8 bytes, the lowest first:
--            now, in microseconds since the epoch; then for each set
--              granted  how often; 0 is a denial, or a look
--              for each check what its algorithm says it returns: the state before the charge, from which the caller
--              computes what remains and how long to wait

local KEYS, ARGV = KEYS, ARGV
local keys, arguments, answers = 0, 0, 1
local answer = { now }

local function read_number()
  arguments = arguments + 1
  return tonumber(ARGV[arguments])
end

-- The checks of a group, each an algorithm and its policy.
local function read_checks()
  local checks = {}
  for i = 1, read_number() do
    arguments = arguments + 1
    local algorithm = algorithms[ARGV[arguments]]
    local given = {}
    for j = 1, algorithm.arguments do
      given[j] = read_number()
    end
    checks[i] = { algorithm = algorithm, policy = algorithm.policy(given) }
  end
  return checks
end

-- What a check answers: its state, or what its algorithm makes of that.
local function add(check, key, granted, refused)
  local algorithm = check.algorithm
  local a, b, c, d = check.a, check.b, check.c, nil
  if algorithm.report then
    a, b, c, d = algorithm.report(check.policy, key, granted, refused, a, b, c)
  end
  answer[answers + 1], answer[answers + 2], answer[answers + 3], answer[answers + 4] = a, b, c, d
  answers = answers + algorithm.returns
end

local function acquire(checks, first, min, max)
  -- First look at all ...
  local granted = max
  for i = 1, #checks do
    local check = checks[i]
    local algorithm, policy = check.algorithm, check.policy
    local a, b, c = algorithm.look(policy, KEYS[first + i])
    local fits = algorithm.fits(policy, max, a, b, c)
    check.a, check.b, check.c, check.fits = a, b, c, fits
    if fits < granted then
      granted = fits
    end
  end
  -- What waits beyond what was granted: a denied set, or the next.
  local refused = 0
  if granted < max or max == 0 then
    refused = max_of(1, min)
  end
  if granted < min then
    granted = 0
  end
  answers = answers + 1
  answer[answers] = granted
  -- ... and charge only if all have room.
  for i = 1, #checks do
    local check, key = checks[i], KEYS[first + i]
    add(check, key, granted, refused)
    if granted > 0 then
      check.algorithm.charge(check.policy, key, granted, check.a, check.b, check.c)
    elseif check.fits < min and call('PTTL', key) == -1 then
      -- Without an end to its life a key would be full for ever. Nothing of ours is written so.
      call('PEXPIRE', key, life(check.algorithm.ends(check.policy, check.a, check.b, check.c)))
    end
  end
end

while arguments < #ARGV do
  local sets, min, max = read_number(), read_number(), read_number()
  local checks = read_checks()
  for _ = 1, sets do
    acquire(checks, keys, min, max)
    keys = keys + #checks
  end
end

-- In chunks: unpack gives no more than 8,000 values.
local packed = {}
for first = 1, answers, 4000 do
  local last = min_of(answers, first + 3999)
  packed[#packed + 1] = struct.pack('<' .. string.rep('I8', last - first + 1), unpack(answer, first, last))
end
return table.concat(packed)
