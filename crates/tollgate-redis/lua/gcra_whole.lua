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

-- Two functions that charge a cost of whole microseconds n times: of `key, text`, and of `key` alone, whose text was not read.
-- They return n, or 0 for a denial of a single cost, and TAT before; or nothing where they did nothing, since that takes more
-- thought: a part of n, a fraction, what is none of ours.
local function gcra_whole(horizon_us, furthest_us, cost_us)
  local latest_us, last_us = now + horizon_us, now + furthest_us
  -- Those of the last n: it is mostly the same.
  local last_n, more_us, more_text = 0, 0, nil

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

  -- A TAT that lies ahead grows by one command, which tells what it was. Others are put right by one more.
  local function unknown(key, n)
    if n ~= last_n then
      last_n, more_us, more_text = n, n * cost_us, nil
    end
    if more_us > horizon_us then
      return nil
    end
    more_text = more_text or text_of(more_us)
    local after_us = try('INCRBY', key, more_text)
    if type(after_us) == 'table' then
      -- It is no number, or would be too large for one.
      return nil
    elseif after_us > latest_us then
      call('INCRBY', key, '-' .. more_text)
      return nil
    end
    local us = after_us - more_us
    if us <= 0 then
      -- There was none.
      store(key, now + more_us, 0, ends(now + more_us, 0))
      return n, 0
    end
    local grown_us = more_us
    if us < now then
      call('INCRBY', key, text_of(now - us))
      grown_us = now - us + more_us
    end
    prolong(key, us, grown_us)
    return n, us
  end

  return known, unknown
end
