-- A count that starts anew each window. The Rust of it: fixed_window.rs in tollgate-core.
--
-- KEYS     a string: the start of the window in microseconds since the epoch, and before it the units used
-- ARGV     limit    units
--          window   microseconds
--          aligned  1 where windows begin at multiples of their length since the epoch, else 0
--          cost     units
-- RETURNS  the start of the window, and the units used before the charge

local function fixed_window_ends(policy, start)
  return start + policy.window
end

local function fixed_window_store(policy, key, start, used)
  if used > 0 then
    store(key, start, used, start + policy.window)
  else
    call('DEL', key)
  end
end

local function fixed_window_look(policy, key)
  local start, used = 0, 0
  local text = digits(key)
  if text then
    start, used = time_and_number(text)
  end
  -- At its very end the next window has begun.
  if used == 0 or now >= start + policy.window then
    start, used = now, 0
    if policy.aligned == 1 then
      start = now - now % policy.window
    end
  elseif start > now then
    -- It begins in the future: the clock stepped back, and nobody waits twice for that.
    start = now
    fixed_window_store(policy, key, start, used)
  end
  return start, used
end

local function fixed_window_fits(policy, times, start, used)
  return fits(times, policy.cost, policy.limit - used)
end

local function fixed_window_charge(policy, key, granted, start, used)
  if policy.cost > 0 then
    fixed_window_store(policy, key, start, used + granted * policy.cost)
  end
end

local function fixed_window_refund(policy, key, units, stamp)
  local start, used = fixed_window_look(policy, key)
  if start == stamp and used > 0 then
    fixed_window_store(policy, key, start, max_of(0, used - units))
  end
end

local function fixed_window(limit, window, aligned, cost)
  return {
    returns = 2, look = fixed_window_look, fits = fixed_window_fits, charge = fixed_window_charge,
    ends = fixed_window_ends, refund = fixed_window_refund,
    limit = limit, window = window, aligned = aligned, cost = cost,
  }
end
