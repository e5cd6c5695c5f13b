-- GCRA in whole microseconds: most charges are of such, to a TAT that is one. What else there is takes the way of gcra.lua,
-- which tells what is stored. The horizon is below 2^52 here: no sum that is compared with its end is rounded down to it.

-- In microseconds since the epoch.
local step = 900000

-- When the bucket is full, and its TAT means nothing more. Keys live until the next full step from there, so that they outlive
-- their state by less than a second, and most charges leave a key's life as it is.
local function ends(us, frac)
  if frac > 0 then
    us = us + 1
  end
  return us - us % step + step
end

-- Sees that a key lives as long as its TAT, which grew in place. Where somebody took its end from it, that is its next step.
local function prolong(key, us, more_us)
  if us % step + more_us >= step then
    call('PEXPIRE', key, life(ends(us + more_us, 0)))
  end
end

-- Adds to a TAT in place, for half the price of writing it: the key is there. `text` is that of `more_us`, if it is known.
local function grow(key, us, more_us, text)
  if us < now then
    more_us, text = more_us + now - us, nil
  end
  call('INCRBY', key, text or text_of(more_us))
  prolong(key, us, more_us)
end

-- Two functions that charge a cost of whole microseconds n times; the second where there are several sets.
local function gcra_whole(horizon_us, furthest_us, cost_us, sets)
  local latest_us, last_us = now + horizon_us, now + furthest_us
  -- Those of the last n: it is mostly the same.
  local last_n, more_us, more_text = 0, 0, nil

  -- Returns n, or 0 for a denial of a single cost, and TAT before; or nothing where it did nothing, since that takes more thought:
  -- a part of n, a fraction, what is none of ours.
  local function known(key, text, n)
    local us = 0
    if text then
      us = find(text, '^[1-9]%d*$') and text + 0
      if not us or us > last_us then
        return nil
      end
    end
    if n ~= last_n then
      last_n, more_us, more_text = n, n * cost_us, nil
    end
    if (us < now and now or us) + more_us > latest_us then
      if n > 1 then
        return nil
      end
      ensure_end(key, ends(us, 0))
      return 0, us
    end
    if us > 0 then
      more_text = more_text or text_of(more_us)
      grow(key, us, more_us, more_text)
    else
      store(key, now + more_us, 0, ends(now + more_us, 0))
    end
    return n, us
  end

  -- Without having read them: TATs that lie ahead, and have room, grow by one command each, which tells what they were. Those of
  -- the keys from `first` to `last`, up to one that is none of them; they go into `answer`, behind `answers` of it.
  -- Returns how many; and of that one, if it was charged all the same, what `known` would.
  local ahead = sets > 1 and function(first, last, n, answer, answers)
    if n ~= last_n then
      last_n, more_us, more_text = n, n * cost_us, nil
    end
    if more_us > horizon_us then
      return 0
    end
    more_text = more_text or text_of(more_us)
    -- What is here takes most of a script's time. Locals are what costs least.
    local KEYS, try, tonumber, now, step = KEYS, try, tonumber, now, step
    local latest_us, more_us, more_text = latest_us, more_us, more_text
    for i = first, last do
      local key = KEYS[i]
      local after_us = tonumber(try('INCRBY', key, more_text))
      if not after_us then
        -- An error: it is no number, or would be too large for one.
        return i - first
      elseif after_us > latest_us then
        call('INCRBY', key, '-' .. more_text)
        return i - first
      end
      local us = after_us - more_us
      if us <= 0 then
        -- There was none, or none of ours.
        store(key, now + more_us, 0, ends(now + more_us, 0))
        return i - first, n, 0
      elseif us < now then
        call('INCRBY', key, text_of(now - us))
        prolong(key, us, now - us + more_us)
        return i - first, n, us
      elseif us % step + more_us >= step then
        -- As `prolong`, which would ask once more.
        call('PEXPIRE', key, life(ends(after_us, 0)))
      end
      answers = answers + 1
      answer[answers] = us
    end
    return last - first + 1
  end

  return known, ahead
end
