-- GCRA in whole microseconds, which decides most checks: all costs are whole microseconds, and so
-- is TAT. Other cases are left to gcra.lua, which explains the stored value. The horizon is below
-- 2^52 here, so a sum that exceeds a limit is never rounded down to it.
--
-- Keys are charged optimistically: INCRBY adds the cost to TAT without a read before it, and its
-- answer shows the TAT before. If that was wrong, it is corrected: an idle bucket is raised to now,
-- and a cost that does not fit is subtracted again. Such a denial takes two writes, which are
-- replicated as well, just when many callers are denied. So the first one ends the optimism of its
-- group, and later denials only read. So do idle keys, and records of several versions, if they are
-- more than one in three: `optimism` counts them.
--
-- It is a second GCRA for its speed. One file was tried: gcra.lua charged optimistically, and its
-- functions decided all other keys. A function costs about 1,000 instructions to create in each
-- call, and 500 to use for each key. Instructions of Redis 7.0 per check that passes, by callgrind:
-- - this file: 9,534 in calls of 128, 13,001 in calls of 16, 65,496 alone
-- - one file: 9,908, 15,185, 94,760
-- - one file with the fewest functions, for sets of one check only: 9,570, 14,249, 79,716
--
-- Keys that are new or idle cost 22 to 50 % more in one file.
--
-- KEYS     see gcra.lua
-- ARGV     see gcra.lua; the cost is in whole microseconds
-- RETURNS  see gcra.lua and acquire.lua

-- Decides a group of sets of one check each. Their keys begin at position `first` of KEYS, and `at`
-- is the position of their arguments.
local function gcra_whole(first, sets, runs)
  local arguments, KEYS, call, try, tonumber, now, step = at, KEYS, call, try, tonumber, now, step
  local answer, appended = answer, answers
  local _, parts, horizon_us, _, reach_us, _, cost_us = struct.unpack('<ddddddd', sent, at)
  at = at + 96
  local latest_us, last_us, policy = now + horizon_us, now + reach_us, nil
  -- `texts` has the values that were read last. Its first belongs to the key behind `before`.
  local last, texts, before = first + sets - 1, nil, first - 1
  -- Above zero, keys are charged optimistically. It starts at 4 if the first key was in use.
  local optimism, i = 0, first
  -- The last end and the last TAT as texts, since many keys of a call get the same.
  local until_us_of_text, until_text, ends_of_life, life = 0, nil, 0, nil

  for _ = 1, runs do
    local alike, max = struct.unpack('<dd', sent, at)
    at = at + 16
    local more_us, more_text = max * cost_us, nil
    if more_us > horizon_us then
      optimism = 0
    end
    local to = i + alike - 1
    while i <= to do
      -- TAT before the charge, 0 if there is none, and what has been added to it already.
      local us, grown_us = nil, 0
      if optimism > 0 then
        -- For most keys this one command is all. Without this inner loop, and with `answers` in
        -- place of a local copy, a check in calls of 128 took 8 % more.
        more_text = more_text or text_of(more_us)
        local from, after_us = i, nil
        while i <= to do
          after_us = tonumber(try('INCRBY', KEYS[i], more_text))
          us = after_us and after_us - more_us
          if not us or us <= 0 or us < now or after_us > latest_us or us % step + more_us >= step then
            break
          end
          appended = appended + 1
          answer[appended] = us
          if parts > 1 then
            appended = appended + 1
            answer[appended] = 0
          end
          i = i + 1
        end
        optimism = optimism + i - from
        if i > to then
          break
        elseif us and after_us <= latest_us then
          grown_us = more_us
          optimism = us < now and optimism - 2 or optimism + 1
        else
          -- INCRBY failed because the value is a record or foreign, or the cost does not fit.
          optimism = us and 0 or optimism - 2
          if us then
            call('INCRBY', KEYS[i], '-' .. more_text)
          end
          us = nil
        end
      end
      local key, text = KEYS[i], nil
      if not us then
        text = texts and texts[i - before]
        if text == nil then
          before = i - 1
          texts = call('MGET', unpack(KEYS, i, (i == first or optimism > 0) and i or last))
          text = texts[1]
        end
        us = not text and 0 or string.find(text, '^[1-9]%d*$') and text + 0
      end

      local until_us = us and (us < now and now or us) + more_us
      if not us or us > last_us then
        us = nil
      elseif until_us <= latest_us then
        local rest_us = until_us - us - grown_us
        -- INCRBY costs half as much as writing the value.
        if us > 0 and rest_us == more_us then
          more_text = more_text or text_of(more_us)
          call('INCRBY', key, more_text)
        elseif us > 0 and rest_us > 0 then
          call('INCRBY', key, text_of(rest_us))
        end
        if us <= 0 or us % step + (until_us - us) >= step then
          local ends = until_us - until_us % step + step
          if ends ~= ends_of_life then
            local left = ends - now
            ends_of_life, life = ends, text_of((left - left % 1000) / 1000 + 1 + linger)
          end
          if us > 0 then
            call('PEXPIRE', key, life)
          else
            -- There was no value, or a foreign one.
            us = 0
            if until_us ~= until_us_of_text then
              until_us_of_text, until_text = until_us, text_of(until_us)
            end
            call('PSETEX', key, life, until_text)
          end
        end
        answer[appended + 1], answer[appended + 2] = us, 0
        appended = appended + (parts > 1 and 2 or 1)
        if i == first and us >= now then
          optimism = 4
        end
      elseif max == 1 and call('PTTL', key) ~= -1 then
        -- Denied, and the key has a TTL.
        answer[appended + 1], answer[appended + 2], answer[appended + 3] = -1, us, 0
        appended = appended + (parts > 1 and 3 or 2)
      else
        us = nil
      end

      if not us then
        -- A rare case: a partial grant, a fraction, another version, no TTL, a foreign value.
        policy = policy or policy_at(arguments)
        answers = appended
        decide(policy, key, text, max, 1)
        appended = answers
        if i == first and text and #text > 84 then
          -- A record says nothing about the other keys.
          optimism = 4
        end
      end
      i = i + 1
    end
  end
  answers = appended
end
