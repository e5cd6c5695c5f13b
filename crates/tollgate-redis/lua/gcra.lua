-- The generic cell rate algorithm. The Rust of it, and what it means: gcra.rs in tollgate-core.
--
-- KEYS     a string: TAT, in microseconds since the epoch, and before it its fraction in parts of a microsecond
-- ARGV     parts            into how many parts a microsecond is cut: the denominator of the emission interval T
--          horizon, parts   how far TAT may lie ahead of now: burst x T, and a leaky bucket's longest wait
--          furthest, parts  beyond which TAT is taken for that of a clock that ran ahead: the horizon, or that of a policy
--                           which counts in the same key
--          cost, parts      cost x T; 2^53 and 0 where the cost can never pass
-- RETURNS  TAT before the charge, and its parts

-- n x (us + frac / parts), exactly. The product of n and frac may exceed 2^53, so n is taken in two halves.
local function multiple(n, us, frac, parts)
  if frac == 0 then
    return n * us, 0
  end
  local high = floor(n / 65536)
  local carry = high * frac
  local sum = (carry % parts) * 65536 + (n - high * 65536) * frac
  return n * us + floor(carry / parts) * 65536 + floor(sum / parts), sum % parts
end

local function no_more_than(us, frac, most_us, most_frac)
  return us < most_us or (us == most_us and frac <= most_frac)
end

-- From then on the bucket is full, and its TAT means nothing more.
local function gcra_ends(policy, us, frac)
  if frac > 0 then
    return us + 1
  end
  return us
end

local function gcra_look(policy, key)
  local text = digits(key)
  if not text then
    return 0, 0
  end
  local us, frac = time_and_number(text)
  if us < now then
    return us, frac
  end
  if frac >= policy.parts then
    us, frac = us + 1, 0
  end
  -- Beyond any horizon: a clock ran ahead, or the burst was larger then. That is an empty bucket, and no worse.
  local last = now + policy.furthest_us
  if us >= last and not no_more_than(us, frac, last, policy.furthest_frac) then
    us, frac = last, policy.furthest_frac
    store(key, us, frac, gcra_ends(policy, us, frac))
  end
  return us, frac
end

local function gcra_fits(policy, times, us, frac)
  local cost_us, cost_frac, parts = policy.cost_us, policy.cost_frac, policy.parts
  local left_us, left_frac = policy.horizon_us, policy.horizon_frac
  if us >= now then
    left_us, left_frac = left_us - (us - now), left_frac - frac
    if left_frac < 0 then
      left_us, left_frac = left_us - 1, left_frac + parts
    end
  end
  if cost_us == 0 and cost_frac == 0 then
    return times
  elseif not no_more_than(cost_us, cost_frac, left_us, left_frac) then
    return 0
  elseif times <= 1 then
    return times
  end
  -- The quotient of what was rounded is off by one at most.
  local quotient = floor((left_us + left_frac / parts) / (cost_us + cost_frac / parts))
  local fitting = max_of(1, min_of(times, quotient + 1))
  while fitting > 1 do
    local us_of, frac_of = multiple(fitting, cost_us, cost_frac, parts)
    if no_more_than(us_of, frac_of, left_us, left_frac) then
      break
    end
    fitting = fitting - 1
  end
  return fitting
end

local function gcra_charge(policy, key, granted, us, frac)
  local cost_us, cost_frac = policy.cost_us, policy.cost_frac
  if granted > 1 then
    cost_us, cost_frac = multiple(granted, cost_us, cost_frac, policy.parts)
  end
  if cost_us == 0 and cost_frac == 0 then
    return
  end
  if us >= now and frac == 0 and cost_frac == 0 then
    -- In place, for half the price: the key is there, with a life.
    if granted > 1 then
      call('INCRBY', key, text_of(cost_us))
    else
      policy.cost = policy.cost or text_of(cost_us)
      call('INCRBY', key, policy.cost)
    end
    outlive(key, us + cost_us)
    return
  end
  if us < now then
    us, frac = now, 0
  end
  us, frac = us + cost_us, frac + cost_frac
  if frac >= policy.parts then
    us, frac = us + 1, frac - policy.parts
  end
  store(key, us, frac, gcra_ends(policy, us, frac))
end

-- Gives back what of a charge has not been refilled yet: the cost, or what lies between now and the stamp.
local function gcra_refund(policy, key, units, stamp_us, stamp_frac)
  local us, frac = gcra_look(policy, key)
  if us < now or stamp_us < now then
    return
  end
  if stamp_frac >= policy.parts then
    stamp_frac = 0
  end
  local back_us, back_frac = stamp_us - now, stamp_frac
  if no_more_than(policy.cost_us, policy.cost_frac, back_us, back_frac) then
    back_us, back_frac = policy.cost_us, policy.cost_frac
  end
  us, frac = us - back_us, frac - back_frac
  if frac < 0 then
    us, frac = us - 1, frac + policy.parts
  end
  local ends = gcra_ends(policy, us, frac)
  if ends > now then
    store(key, us, frac, ends)
  else
    call('DEL', key)
  end
end

local function gcra(parts, horizon_us, horizon_frac, furthest_us, furthest_frac, cost_us, cost_frac)
  return {
    returns = 2, look = gcra_look, fits = gcra_fits, charge = gcra_charge, ends = gcra_ends, refund = gcra_refund,
    parts = parts, horizon_us = horizon_us, horizon_frac = horizon_frac, furthest_us = furthest_us,
    furthest_frac = furthest_frac, cost_us = cost_us, cost_frac = cost_frac, cost = false,
  }
end
