-- The generic cell rate algorithm (GCRA), a token bucket. gcra.rs in tollgate-core has it in Rust,
-- and explains it. gcra_whole.lua decides most checks; this file decides all others. versions.lua
-- has the record of a key that several versions of a policy ask for.
--
-- KEYS     a string: TAT (theoretical arrival time) in microseconds since the epoch. Its fraction,
--          in parts of a microsecond, stands before it; or a record
-- ARGV     parts            the number of parts of a microsecond: the denominator of the emission
--                           interval T
--          horizon, parts   how far TAT may lie ahead of now: burst x T, plus a leaky bucket's
--                           longest wait, or with debt
--          reach, parts     a TAT further ahead than this is that of another version. Without
--                           versions a clock ran ahead, and it is cut to the horizon
--          cost, parts      cost x T; 2^53 and 0 if the cost can never pass
--          units            the cost
--          limit, burst     those of the version. A burst of 0: there are no versions
--          window           microseconds
-- RETURNS  TAT before the charge, of the version that asks, and its parts if there is more than one

-- Adds to the TAT of an existing key. INCRBY costs half as much as writing the value. A key that
-- has lost its TTL gets one at its next step.
local function grow(key, us, more_us)
  if us < now then
    more_us = more_us + now - us
  end
  call('INCRBY', key, text_of(more_us))
  if us % step + more_us >= step then
    call('PEXPIRE', key, life(ends(us + more_us, 0)))
  end
end

local function gcra(
  parts, horizon_us, horizon_frac, reach_us, reach_frac, cost_us, cost_frac, units, limit, burst, window
)
  local last_us, several = now + reach_us, nil

  local function is_beyond(us, frac)
    return us > last_us or (us == last_us and frac > reach_frac)
  end

  -- TAT, its parts, and whether the stored value has no fraction. Instead of that the record of
  -- versions.lua, if there is one or will be.
  local function look(key, text)
    local us, frac = time_and_number(text)
    local kind = us > 0 and frac == 0
    local is_record = frac >= parts and #text > 84 and (#text - 33) % 52 == 0
    if frac >= parts then
      us, frac = us + 1, 0
    end
    if is_record or is_beyond(us, frac) then
      if is_record or burst > 0 then
        several = several or versions(parts, reach_us, reach_frac, limit, burst, window)
        return several.look(key, is_record and text, us, frac)
      end
      us, frac, kind = now + horizon_us, horizon_frac, horizon_frac == 0
      store(key, us, frac, ends(us, frac))
    end
    return us, frac, kind
  end

  local function fits(times, us, frac)
    local left_us, left_frac = horizon_us, horizon_frac
    if us >= now then
      left_us, left_frac = left_us - (us - now), left_frac - frac
      if left_frac < 0 then
        left_us, left_frac = left_us - 1, left_frac + parts
      end
    end
    if cost_us == 0 and cost_frac == 0 then
      return times
    elseif cost_us > left_us or (cost_us == left_us and cost_frac > left_frac) then
      return 0
    elseif times <= 1 then
      return times
    end
    -- The terms are rounded, so the quotient is off by at most one.
    local quotient = math.floor((left_us + left_frac / parts) / (cost_us + cost_frac / parts))
    local count = math.max(1, math.min(times, quotient + 1))
    while count > 1 do
      local us_of, frac_of = multiple(count, cost_us, cost_frac, parts)
      if no_more_than(us_of, frac_of, left_us, left_frac) then
        break
      end
      count = count - 1
    end
    return count
  end

  local function charge(key, granted, us, frac, kind)
    local more_us, more_frac = cost_us, cost_frac
    if granted > 1 then
      more_us, more_frac = multiple(granted, cost_us, cost_frac, parts)
    end
    if more_us + more_frac == 0 then
      return
    elseif kind == true and more_frac == 0 and math.max(us, now) + more_us <= last_us then
      grow(key, us, more_us)
      return
    end
    if us < now then
      us, frac = now, 0
    end
    us, frac = us + more_us, frac + more_frac
    if frac >= parts then
      us, frac = us + 1, frac - parts
    end
    if type(kind) == 'table' or is_beyond(us, frac) then
      several = several or versions(parts, reach_us, reach_frac, limit, burst, window)
      several.charge(key, granted * units, us, frac, kind)
    else
      store(key, us, frac, ends(us, frac))
    end
  end

  -- Refunds the part of a charge that has not been refilled yet: at most the time from now to the
  -- stamp. What a stamp is ahead of any debt was forgiven when the clock stepped back.
  local refund = refunds and function(key, text, units, stamp_us, stamp_frac, span_us, span_frac)
    local us, frac = time_and_number(text)
    local is_whole = us > 0 and frac == 0
    local is_record = frac >= parts and #text > 84 and (#text - 33) % 52 == 0
    if frac >= parts then
      us, frac = us + 1, 0
    end
    if is_record or is_beyond(us, frac) then
      several = several or versions(parts, reach_us, reach_frac, limit, burst, window)
      if not is_record and (burst == 0 or several.is_foreign(us, frac)) then
        us, frac = now + horizon_us, horizon_frac
        if burst > 0 then
          us, frac = now + reach_us, reach_frac
        end
        is_whole = frac == 0
        store(key, us, frac, ends(us, frac))
      end
    end
    if stamp_frac >= parts then
      stamp_frac = 0
    end
    if us < now or stamp_us < now then
      return
    end
    local back_us, back_frac = stamp_us - now, stamp_frac
    local forgiven_us, forgiven_frac = 0, 0
    if stamp_us < 18014398509481984 and is_beyond(stamp_us, stamp_frac) then
      several = several or versions(parts, reach_us, reach_frac, limit, burst, window)
      forgiven_us, forgiven_frac = several.forgiven(back_us, back_frac, horizon_us, horizon_frac)
    end
    if no_more_than(span_us, span_frac, back_us, back_frac) then
      back_us, back_frac = span_us, span_frac
    end
    back_us, back_frac = back_us - forgiven_us, back_frac - forgiven_frac
    if back_frac < 0 then
      back_us, back_frac = back_us - 1, back_frac + parts
    end
    if back_us < 0 or back_us + back_frac == 0 then
      return
    end
    if is_record then
      us, frac = several.refund(key, text, back_us, back_frac)
      if not us then
        return
      end
      is_whole = false
    end
    -- As in `grow`. The key lives on for what was refunded.
    if is_whole and back_frac == 0 and us - back_us > now then
      call('INCRBY', key, '-' .. text_of(back_us))
      return
    end
    us, frac = us - back_us, frac - back_frac
    if frac < 0 then
      us, frac = us - 1, frac + parts
    end
    if us > now or (us == now and frac > 0) then
      store(key, us, frac, ends(us, frac))
    else
      call('DEL', key)
    end
  end

  local returns = parts > 1 and 2 or 1
  return { returns = returns, ends = ends, look = look, fits = fits, charge = charge, refund = refund }
end
