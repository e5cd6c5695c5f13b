-- The generic cell rate algorithm. The Rust of it, and what it means: gcra.rs in tollgate-core.
--
-- KEYS     a string: TAT, in microseconds since the epoch, and before it its fraction in parts of a microsecond
-- ARGV     parts            into how many parts a microsecond is cut: the denominator of the emission interval T
--          horizon, parts   how far TAT may lie ahead of now: burst x T, and a leaky bucket's longest wait
--          cost, parts      cost x T; 2^53 and 0 where the cost can never pass
-- RETURNS  TAT before the charge, and its parts

local gcra = { arguments = 5, returns = 2 }

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

-- a - b, where a is no less than b.
local function difference(a_us, a_frac, b_us, b_frac, parts)
  if a_frac < b_frac then
    return a_us - b_us - 1, a_frac - b_frac + parts
  end
  return a_us - b_us, a_frac - b_frac
end

function gcra.policy(arguments)
  return {
    parts = arguments[1],
    horizon_us = arguments[2], horizon_frac = arguments[3],
    cost_us = arguments[4], cost_frac = arguments[5],
    cost_text = format('%.0f', arguments[4]),
  }
end

-- From then on the bucket is full, and its TAT means nothing more.
function gcra.ends(policy, us, frac)
  if frac > 0 then
    return us + 1
  end
  return us
end

local function write(policy, key, us, frac)
  local ends = gcra.ends(policy, us, frac)
  if ends > now then
    call('SET', key, value_of(us, frac), 'PX', life(ends))
  else
    call('DEL', key)
  end
end

function gcra.look(policy, key)
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
  -- Beyond the horizon: a clock ran ahead, or the burst was larger then. That is an empty bucket, and no worse.
  local last = now + policy.horizon_us
  if us >= last and not no_more_than(us, frac, last, policy.horizon_frac) then
    us, frac = last, policy.horizon_frac
    write(policy, key, us, frac)
  end
  return us, frac
end

function gcra.fits(policy, times, us, frac)
  local cost_us, cost_frac, parts = policy.cost_us, policy.cost_frac, policy.parts
  local left_us, left_frac = policy.horizon_us, policy.horizon_frac
  if us >= now then
    left_us, left_frac = left_us - (us - now), left_frac - frac
    if left_frac < 0 then
      left_us, left_frac = left_us - 1, left_frac + parts
    end
  end
  if cost_us > left_us or (cost_us == left_us and cost_frac > left_frac) then
    return 0
  elseif times == 1 or (cost_us == 0 and cost_frac == 0) then
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

function gcra.charge(policy, key, granted, us, frac)
  local cost_us, cost_frac = multiple(granted, policy.cost_us, policy.cost_frac, policy.parts)
  if cost_us == 0 and cost_frac == 0 then
    return
  end
  if us >= now and frac == 0 and cost_frac == 0 then
    -- In place, which is half the price: the key is there and has a life.
    call('INCRBY', key, granted == 1 and policy.cost_text or format('%.0f', cost_us))
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
  write(policy, key, us, frac)
end

-- Gives back what of a charge has not been refilled yet: the cost, or what lies between now and the stamp.
function gcra.refund(policy, key, units, stamp_us, stamp_frac)
  local us, frac = gcra.look(policy, key)
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
  if no_more_than(us, frac, back_us, back_frac) then
    us, frac = 0, 0
  else
    us, frac = difference(us, frac, back_us, back_frac, policy.parts)
  end
  write(policy, key, us, frac)
end
