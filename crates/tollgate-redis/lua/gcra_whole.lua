-- GCRA in whole microseconds: most charges are of such, to a TAT that is one. What else there is takes the way of gcra.lua,
-- which tells what is stored. The horizon is below 2^52 here: no sum that is compared with its end is rounded down to it.
--
-- This decides a group of sets of one check. It stands in the loop of acquire.lua, and is no function: that would have to be made
-- in each call.
--
-- KEYS     see gcra.lua
-- ARGV     see gcra.lua; the cost is of whole microseconds
-- RETURNS  TAT before the charge, in microseconds since the epoch, of each set that was granted as often as was asked; what
--          acquire.lua tells of all others

local algorithm, parts, horizon_us, horizon_frac, furthest_us, furthest_frac, cost_us, cost_frac =
  struct.unpack('<dddddddd', sent, at)
at = at + 64
local latest_us, last_us, policy = now + horizon_us, now + furthest_us, nil
-- Of those texts that were read last, the first is that of the key behind `before`.
local first, last, texts, before = keys + 1, keys + sets, nil, keys
-- Keys are not read first as long as this is above zero: where the first was in use, and two in three of those since. It ends
-- with one that takes more: what has no room has to be given back, so that it is written twice, and replicated.
local hope = 0
local tonumber = tonumber
-- What many keys of a call are given alike, and how it is written.
local until_us_of_text, until_text, ends_of_life, life = 0, nil, 0, nil

for _ = 1, runs do
  local alike, max = struct.unpack('<dd', sent, at)
  at = at + 16
  local more_us, more_text = max * cost_us, nil
  if more_us > horizon_us then
    hope = 0
  end
  local i, to = keys + 1, keys + alike
  while i <= to do
    -- TAT before, which is 0 where there is none; and what has been added to it already.
    local us, grown_us = nil, 0
    if hope > 0 then
      -- Those that lie ahead grow by one command, which tells what they were. Most take nothing more.
      more_text = more_text or text_of(more_us)
      local from, after_us = i, nil
      while i <= to do
        after_us = tonumber(try('INCRBY', KEYS[i], more_text))
        us = after_us and after_us - more_us
        if not us or us <= 0 or us < now or after_us > latest_us or us % step + more_us >= step then
          break
        end
        answers = answers + 1
        answer[answers] = us
        i = i + 1
      end
      hope = hope + i - from
      if i > to then
        break
      elseif us and after_us <= latest_us then
        grown_us = more_us
        hope = us < now and hope - 2 or hope + 1
      else
        -- It has no room; or is no number, or would be too large for one, which is an error.
        if us then
          call('INCRBY', KEYS[i], '-' .. more_text)
        end
        us, hope = nil, 0
      end
    end
    local key, text = KEYS[i], nil
    if not us then
      text = texts and texts[i - before]
      if text == nil then
        before = i - 1
        texts = call('MGET', unpack(KEYS, i, i == first and i or last))
        text = texts[1]
      end
      us = not text and 0 or string.find(text, '^[1-9]%d*$') and text + 0
    end

    local until_us = us and (us < now and now or us) + more_us
    if not us or us > last_us then
      us = nil
    elseif until_us <= latest_us then
      local rest_us = until_us - us - grown_us
      -- In place: for half the price of writing it.
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
          -- There was none, or none of ours.
          us = 0
          if until_us ~= until_us_of_text then
            until_us_of_text, until_text = until_us, text_of(until_us)
          end
          call('PSETEX', key, life, until_text)
        end
      end
      answers = answers + 1
      answer[answers] = us
      if i == first and us >= now then
        hope = 4
      end
    elseif max == 1 and call('PTTL', key) ~= -1 then
      -- Denied, and with an end to its life.
      answer[answers + 1], answer[answers + 2], answer[answers + 3] = -1, us, 0
      answers = answers + 3
    else
      us = nil
    end

    if not us then
      -- It takes more thought: a part of what is asked, a fraction, what lies too far ahead, has no end or is none of ours.
      made = made or algorithms()
      policy = policy
        or made[algorithm](parts, horizon_us, horizon_frac, furthest_us, furthest_frac, cost_us, cost_frac)
      answers = decide(made, policy, key, text, max, refused, answer, answers)
    end
    i = i + 1
  end
  keys = keys + alike
end
