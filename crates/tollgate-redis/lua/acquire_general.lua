-- The rest of acquire.lua, which explains the names: the groups that gcra_whole.lua does not
-- decide, and the reply.

  elseif checks == 1 then
    -- One check in each set: all keys are read by one command.
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
        -- First look at all checks ...
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

-- In chunks, since unpack returns at most 8,000 values.
local packed = ''
for first = 1, answers, 4000 do
  local last = math.min(answers, first + 3999)
  local chunk = struct.pack('<' .. string.rep('d', last - first + 1), unpack(answer, first, last))
  packed = first == 1 and chunk or packed .. chunk
end
return packed
