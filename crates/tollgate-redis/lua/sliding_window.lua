-- The sliding window counter: two counts, the previous one weighted. In Rust: sliding_window.rs in
-- tollgate-core.
--
-- KEYS     a string of up to three numbers. The last 16 digits are the start of the current window
--          in microseconds since the epoch. The 13 digits before them are the units used in it. If
--          any units were used in the window before, they come first. Without them, the first
--          number has no leading zeros
-- ARGV     limit:   units
--          window:  microseconds
--          cost:    units
-- RETURNS  the start of the current window, the units used in it before the charge, and the units
--          used in the window before

-- count x covered / window, rounded up. If the product exceeds 2^53, it is computed by six bits of
-- the count at a time.
local function weighted(count, covered, window)
  if count * covered < 9007199254740992 then
    return math.ceil(count * covered / window)
  end
  local quotient, rest, unit = 0, 0, 68719476736
  while unit >= 1 do
    local sum = rest * 64 + (math.floor(count / unit) % 64) * covered
    quotient, rest = quotient * 64 + math.floor(sum / window), sum % window
    unit = unit / 64
  end
  if rest > 0 then
    return quotient + 1
  end
  return quotient
end

local function sliding_window(limit, window, cost)
  local function ends(start, current)
    if current > 0 then
      return start + 2 * window
    end
    return start + window
  end

  local function keep(key, start, current, previous)
    if previous > 0 then
      local value = string.format('%.0f%013.0f%016.0f', previous, current, start)
      call('PSETEX', key, life(ends(start, current)), value)
    elseif current > 0 then
      store(key, start, current, ends(start, current))
    else
      call('DEL', key)
    end
  end

  local function look(key, text)
    local start, current, previous = 0, 0, 0
    if text and find(text, '^[1-9]%d*$') then
      start = tonumber(string.sub(text, -16))
      current = count_of(string.sub(text, -29, -17))
      previous = count_of(string.sub(text, 1, -30))
    end
    local began = now - now % window
    if began >= start + 2 * window then
      current, previous = 0, 0
    elseif began > start then
      current, previous = 0, current
    elseif began < start then
      -- The clock stepped back. All counted units become those of this window.
      current, previous = math.min(previous + current, most_count), 0
      keep(key, began, current, previous)
    end
    return began, current, previous
  end

  local function fits(times, start, current, previous)
    local covered = window - (now - start)
    return fitting(times, cost, limit - weighted(previous, covered, window) - current)
  end

  local function charge(key, granted, start, current, previous)
    if cost > 0 then
      keep(key, start, current + granted * cost, previous)
    end
  end

  local refund = refunds and function(key, text, units, stamp)
    local start, current, previous = look(key, text)
    if stamp == 18014398509481984 and current + previous > 0 then
      keep(key, start, math.max(0, current - units), math.min(previous, math.max(0, previous + current - units)))
    elseif stamp == start and current > 0 then
      keep(key, start, math.max(0, current - units), previous)
    elseif stamp == start - window and previous > 0 then
      keep(key, start, current, math.max(0, previous - units))
    end
  end

  return { returns = 3, ends = ends, look = look, fits = fits, charge = charge, refund = refund }
end
