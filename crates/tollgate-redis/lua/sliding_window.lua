-- The sliding window counter: two counts, the previous one weighted. The Rust of it: sliding_window.rs in tollgate-core.
--
-- KEYS     a string: the start of the current window in microseconds since the epoch; before it the units used in that
--          window; and before those, where there are any, the units used in the window before (all but the first number
--          padded: to 10 digits a count, to 16 a time)
-- ARGV     limit    units
--          window   microseconds
--          cost     units
-- RETURNS  the start of the current window, the units used in it before the charge, and those used in the one before

-- count x covered / window, rounded up. Where the product exceeds 2^53, by six bits of the count at a time.
local function weighted(count, covered, window)
  if count * covered < 9007199254740992 then
    return math.ceil(count * covered / window)
  end
  local quotient, rest, unit = 0, 0, 1073741824
  while unit >= 1 do
    local sum = rest * 64 + (floor(count / unit) % 64) * covered
    quotient, rest = quotient * 64 + floor(sum / window), sum % window
    unit = unit / 64
  end
  if rest > 0 then
    return quotient + 1
  end
  return quotient
end

local function sliding_window_ends(policy, start, current)
  if current > 0 then
    return start + 2 * policy.window
  end
  return start + policy.window
end

local function sliding_window_store(policy, key, start, current, previous)
  local ends = sliding_window_ends(policy, start, current)
  if previous > 0 then
    call('PSETEX', key, text_of(life(ends)), format('%.0f%010.0f%016.0f', previous, current, start))
  elseif current > 0 then
    store(key, start, current, ends)
  else
    call('DEL', key)
  end
end

local function sliding_window_look(policy, key)
  local start, current, previous = 0, 0, 0
  local text = digits(key)
  if text then
    start = tonumber(sub(text, -16))
    current = count_of(sub(text, -26, -17))
    previous = count_of(sub(text, 1, -27))
  end
  local window = policy.window
  local began = now - now % window
  if began >= start + 2 * window then
    current, previous = 0, 0
  elseif began > start then
    current, previous = 0, current
  elseif began < start then
    -- The clock stepped back: the counts stand as if they were this window's.
    sliding_window_store(policy, key, began, current, previous)
  end
  return began, current, previous
end

local function sliding_window_fits(policy, times, start, current, previous)
  local covered = policy.window - (now - start)
  return fits(times, policy.cost, policy.limit - weighted(previous, covered, policy.window) - current)
end

local function sliding_window_charge(policy, key, granted, start, current, previous)
  if policy.cost > 0 then
    sliding_window_store(policy, key, start, current + granted * policy.cost, previous)
  end
end

local function sliding_window_refund(policy, key, units, stamp)
  local start, current, previous = sliding_window_look(policy, key)
  if stamp == start and current > 0 then
    sliding_window_store(policy, key, start, max_of(0, current - units), previous)
  elseif stamp == start - policy.window and previous > 0 then
    sliding_window_store(policy, key, start, current, max_of(0, previous - units))
  end
end

local function sliding_window(limit, window, cost)
  return {
    returns = 3, look = sliding_window_look, fits = sliding_window_fits, charge = sliding_window_charge,
    ends = sliding_window_ends, refund = sliding_window_refund,
    limit = limit, window = window, cost = cost,
  }
end
