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
local answer = { now, 0, 0, 0 }

-- The next argument, a number; and as it was written.
local function read()
  arguments = arguments + 1
  local text = ARGV[arguments]
  return tonumber(text), text
end

-- The checks of a group, each an algorithm and its policy.
local function read_checks()
  local checks = {}
  for i = 1, (read()) do
    local _, name = read()
    local algorithm = algorithms[name]
    checks[i] = {
      algorithm = algorithm, policy = algorithm.policy(read), returns = algorithm.returns,
      look = algorithm.look, fits = algorithm.fits, report = algorithm.report, charge = algorithm.charge,
      room = 0, a = 0, b = 0, c = 0,
    }
  end
  return checks
end

local function acquire(checks, min, max)
  -- First look at all ...
  local granted = max
  for i = 1, #checks do
    local check = checks[i]
    local policy = check.policy
    local a, b, c = check.look(policy, KEYS[keys + i])
    local room = check.fits(policy, max, a, b, c)
    check.a, check.b, check.c, check.room = a, b, c, room
    if room < granted then
      granted = room
    end
  end
  -- What waits beyond what is granted: a denied set, or the next.
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
    local check, key = checks[i], KEYS[keys + i]
    local policy, a, b, c, d = check.policy, check.a, check.b, check.c, nil
    if check.report then
      a, b, c, d = check.report(policy, key, granted, refused, a, b, c)
    end
    answer[answers + 1], answer[answers + 2], answer[answers + 3], answer[answers + 4] = a, b, c, d
    answers = answers + check.returns
    if granted > 0 then
      check.charge(policy, key, granted, check.a, check.b, check.c)
    elseif check.room < min and call('PTTL', key) == -1 then
      -- Without an end to its life a key would be full for ever. Nothing of ours is written so.
      call('PEXPIRE', key, life(check.algorithm.ends(policy, check.a, check.b, check.c)))
    end
  end
  keys = keys + #checks
end

while arguments < #ARGV do
  local sets, min, max = (read()), (read()), (read())
  local checks = read_checks()
  for _ = 1, sets do
    acquire(checks, min, max)
  end
end

-- In chunks: unpack gives no more than 8,000 values.
local packed = ''
for first = 1, answers, 4000 do
  local last = min_of(answers, first + 3999)
  packed = packed .. struct.pack('<' .. string.rep('I8', last - first + 1), unpack(answer, first, last))
end
return packed
