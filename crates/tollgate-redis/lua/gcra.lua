-- The generic cell rate algorithm (GCRA), a token bucket. gcra.rs in tollgate-core has it in Rust,
-- and explains it. gcra_whole.lua decides most checks; this file decides all others.
--
-- KEYS     a string: TAT (theoretical arrival time) in microseconds since the epoch. Its fraction,
--          in parts of a microsecond, stands before it
-- ARGV     parts            the number of parts of a microsecond: the denominator of the emission
--                           interval T
--          horizon, parts   how far TAT may lie ahead of now: burst x T, plus a leaky bucket's
--                           longest wait
--          furthest, parts  a TAT further ahead than this comes from a clock that ran ahead, and is
--                           cut to the horizon. It is the horizon if the clock is behind a time
--                           that it has shown before. Otherwise it is at least 1,024 windows, since
--                           another version of the policy may have a longer horizon
--          cost, parts      cost x T; 2^53 and 0 if the cost can never pass
-- RETURNS  TAT before the charge, and its parts if there is more than one

-- When a key expires: at the first full step after TAT, when the bucket is full.
local function ends(us, frac)
  if frac > 0 then
    us = us + 1
  end
  return us - us % step + step
end

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

-- n x (us + frac / parts), exactly. The product of n and frac may exceed 2^53, so n is split in
-- two.
local function multiple(n, us, frac, parts)
  if frac == 0 then
    return n * us, 0
  end
  local high = math.floor(n / 65536)
  local carry = high * frac
  local sum = (carry % parts) * 65536 + (n - high * 65536) * frac
  return n * us + math.floor(carry / parts) * 65536 + math.floor(sum / parts), sum % parts
end

local function no_more_than(us, frac, most_us, most_frac)
  return us < most_us or (us == most_us and frac <= most_frac)
end

local function gcra(parts, horizon_us, horizon_frac, furthest_us, furthest_frac, cost_us, cost_frac)
  local last_us = now + furthest_us

  local function is_too_far(us, frac)
    return us > last_us or (us == last_us and frac > furthest_frac)
  end

  -- TAT, its parts, and whether the stored value has no fraction.
  local function look(key, text)
    local us, frac = time_and_number(text)
    local is_whole = us > 0 and frac == 0
    -- A fraction with another denominator counts as a whole microsecond.
    if frac >= parts then
      us, frac = us + 1, 0
    end
    if is_too_far(us, frac) then
      us, frac, is_whole = now + horizon_us, horizon_frac, horizon_frac == 0
      store(key, us, frac, ends(us, frac))
    end
    return us, frac, is_whole
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

  local function charge(key, granted, us, frac, is_whole)
    local more_us, more_frac = cost_us, cost_frac
    if granted > 1 then
      more_us, more_frac = multiple(granted, cost_us, cost_frac, parts)
    end
    if more_us + more_frac == 0 then
      return
    elseif is_whole and more_frac == 0 then
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
    store(key, us, frac, ends(us, frac))
  end

  -- Refunds the part of a charge that has not been refilled yet: at most the time from now to the
  -- stamp. The part of a stamp that is cut was forgiven when the clock stepped back.
  local refund = refunds and function(key, text, units, stamp_us, stamp_frac, span_us, span_frac)
    local us, frac, is_whole = look(key, text)
    if stamp_frac >= parts then
      stamp_frac = 0
    end
    if us < now or stamp_us < now then
      return
    end
    local back_us, back_frac = stamp_us - now, stamp_frac
    if no_more_than(span_us, span_frac, back_us, back_frac) then
      back_us, back_frac = span_us, span_frac
    end
    if is_too_far(stamp_us, stamp_frac) then
      back_us = back_us - (stamp_us - now - horizon_us)
      back_frac = back_frac - (stamp_frac - horizon_frac)
      if back_frac < 0 then
        back_us, back_frac = back_us - 1, back_frac + parts
      elseif back_frac >= parts then
        back_us, back_frac = back_us + 1, back_frac - parts
      end
      if back_us < 0 then
        return
      end
    end
    -- As in `grow`. The key lives on for what was refunded.
    if is_whole and back_frac == 0 and us - back_us > now then
      -- Redis does not read -0, which a stamp of just now would give.
      if back_us > 0 then
        call('INCRBY', key, '-' .. text_of(back_us))
      end
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
