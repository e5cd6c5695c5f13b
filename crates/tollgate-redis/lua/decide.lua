-- The steps that acquire.lua and gcra_whole.lua share: making a policy, and deciding a set of one
-- check by its functions. acquire.lua explains policies, the arguments and the reply.
--
-- Sets
--   sent, at         the arguments, and the position of the next one
--   answer, answers  the numbers of the reply, and how many there are

local sent, at, call, try = ARGV[1], 1, redis.call, redis.pcall
local answer, answers, made = { now, 0, 0, 0 }, 1, nil

-- Makes the policy whose algorithm and arguments stand at a position of `sent`.
local function policy_at(from)
  made = made or algorithms()
  local algorithm, a, b, c, d, e, f, g, h, i, j, k = struct.unpack('<dddddddddddd', sent, from)
  return made[algorithm](a, b, c, d, e, f, g, h, i, j, k)
end

-- Decides a set of one check, and appends its reply. The caller computes its wait for `wanted`
-- times the cost.
local function decide(policy, key, text, max, wanted)
  local x, y, z = policy.look(key, text)
  local granted = policy.fits(max, x, y, z)
  if max > 0 and granted < wanted then
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
      policy.report(key, granted, (granted < max or max == 0) and wanted or 0, x, y, z)
  end
  answers = answers + policy.returns
  if granted > 0 then
    policy.charge(key, granted, x, y, z)
  end
end
