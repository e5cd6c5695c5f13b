-- The fixed window: a count that starts at zero in each window. In Rust: fixed_window.rs in
-- tollgate-core.
--
-- KEYS     a string: the start of the window in microseconds since the epoch. The units used stand
--          before it
-- ARGV     limit:   units
--          window:  microseconds
--          aligned: 1 if windows start at multiples of their length since the epoch, else 0
--          cost:    units
-- RETURNS  the start of the window, and the units used before the charge

local function fixed_window(limit, window, aligned, cost)
  local function ends(start)
    return start + window
  end

  local function keep(key, start, used)
    if used > 0 then
      store(key, start, used, ends(start))
    else
      call('DEL', key)
    end
  end

  local function look(key, text)
    local start, used = time_and_number(text)
    -- A window does not include its end.
    if used == 0 or now >= ends(start) then
      start, used = now, 0
      if aligned == 1 then
        start = now - now % window
      end
    elseif start > now then
      -- The window starts in the future, so the clock stepped back. It starts now, so that no
      -- caller waits longer than a window.
      start = now
      keep(key, start, used)
    end
    return start, used
  end

  local function fits(times, _, used)
    return fitting(times, cost, limit - used)
  end

  local function charge(key, granted, start, used)
    if cost > 0 then
      keep(key, start, used + granted * cost)
    end
  end

  local refund = refunds and function(key, text, units, stamp)
    local start, used = look(key, text)
    if (start == stamp or stamp == 18014398509481984) and used > 0 then
      keep(key, start, math.max(0, used - units))
    end
  end

  return { returns = 2, ends = ends, look = look, fits = fits, charge = charge, refund = refund }
end
