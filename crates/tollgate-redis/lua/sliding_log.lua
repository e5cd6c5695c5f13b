-- The time of every unit allowed. The Rust of it: sliding_log.rs in tollgate-core.
--
-- How the entries are laid out is in sliding_log_list.lua and sliding_log_sorted_set.lua: each gives what is asked of a
-- `layout` here.
--
-- KEYS     see there
-- ARGV     limit    units
--          window   microseconds
--          cost     units
-- RETURNS  what the log holds before the charge, in two parts that answer as the whole would: a time in microseconds
--          since the epoch and the units taken at it, twice. The first is the one that the refused cost waits for, with
--          the units that have to go until then; the second is the newest, with the rest.

local function sliding_log(layout, limit, window, cost)
  local function ends(_, _, _, key)
    return math.min(now, layout.time_at(key, -1) or now) + window
  end

  -- How many entries are stored, and how many of them are over; nil where there are none of ours.
  local function look(key)
    local newest = layout.time_at(key, -1)
    if not newest then
      return nil, 0
    end
    local length = layout.length(key)
    if newest > now then
      -- The clock stepped back: what lies in the future happened now.
      local ahead = length - layout.count_until(key, length, now)
      layout.drop_newest(key, ahead)
      layout.add(key, now, ahead)
      call('PEXPIRE', key, life(now + window))
    end
    return length, layout.count_until(key, length, now - window)
  end

  local function fits(times, length, over)
    return fitting(times, cost, limit - ((length or 0) - over))
  end

  local function charge(key, granted, length, over)
    local units = granted * cost
    if units == 0 then
      return
    end
    if not length or over == length then
      call('DEL', key)
    elseif over > 0 then
      layout.drop_oldest(key, over)
    end
    layout.add(key, now, units)
    call('PEXPIRE', key, life(now + window))
  end

  local function report(key, granted, refused, length, over)
    local used = (length or 0) - over
    if used == 0 then
      return now, 0, now, 0
    end
    -- Where a time stands among others that is not ours, it may lie ahead: nobody waits for longer than a window.
    local newest = math.min(now, layout.time_at(key, -1) or now)
    local missing = used + (granted + refused) * cost - limit
    if refused == 0 or missing <= 0 or missing > used then
      return newest, used, newest, 0
    end
    return math.min(now, layout.time_at(key, over + missing - 1) or now), missing, newest, used - missing
  end

  local refund = refunds and function(key, text, units, stamp)
    local length, over = look(key)
    if not length or units == 0 or stamp + window <= now then
      return
    end
    layout.remove(key, stamp, units)
    local newest = layout.time_at(key, -1)
    if newest then
      call('PEXPIRE', key, life(newest + window))
    end
  end

  return { returns = 4, ends = ends, look = look, fits = fits, charge = charge, report = report, refund = refund }
end
