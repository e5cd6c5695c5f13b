-- The window of a calendar: a count that restarts when its window ends. In Rust:
-- calendar_window.rs in tollgate-core.
--
-- The caller sends three windows: that of the time which it takes for the server's, the one before
-- and the next. The server's own time chooses among them, so that all callers change windows at
-- once. If that time is in none of them, a new window lasts for `window`. So no count is lost
-- before its time, and the caller knows better after the reply. It takes the charge that opened
-- such a window for one of its own windows, so a refund of that charge is lost.
--
-- A window keeps the end that its first charge saw. So other boundaries apply when it has ended.
--
-- KEYS     a string: the end of the window in microseconds since the epoch. The units used stand
--          before it. Under the same name without `~ends`, earlier versions stored the start of the
--          window instead: it counts as long as there is no other
-- ARGV     limit:   units
--          window:  microseconds
--          cost:    units
--          first, second, third, last: the boundaries of the windows in microseconds since the
--                   epoch
-- RETURNS  the end of the window, and the units used before the charge

local function calendar_window(limit, window, cost, first, second, third, last)
  local own = now + window
  if now >= first and now < second then
    own = second
  elseif now >= second and now < third then
    own = third
  elseif now >= third and now < last then
    own = last
  end
  -- No window is longer than its nominal length by more than an eighth.
  local longest = window + window / 8

  local function ends(to)
    return to
  end

  local function keep(key, to, used)
    if used > 0 then
      store(key, to, used, to)
    else
      call('DEL', key)
    end
  end

  local function look(key, text)
    local to, used = time_and_number(text)
    if not text then
      local start, earlier = time_and_number(call('MGET', key:sub(1, -6))[1])
      if now < start + longest then
        return own, earlier
      end
    end
    -- A window does not include its end.
    if used == 0 or now >= to then
      return own, 0
    end
    if to > math.max(own, now + longest) then
      -- No window ends so late, so the clock stepped back.
      to = own
      keep(key, to, used)
    end
    return to, used
  end

  local function fits(times, _, used)
    return fitting(times, cost, limit - used)
  end

  local function charge(key, granted, to, used)
    if cost > 0 then
      keep(key, to, used + granted * cost)
    end
  end

  local refund = refunds and function(key, text, units, stamp)
    local to, used = look(key, text)
    if (to == stamp or stamp == 18014398509481984) and used > 0 then
      keep(key, to, math.max(0, used - units))
    end
  end

  return { returns = 2, ends = ends, look = look, fits = fits, charge = charge, refund = refund }
end
