-- A count that starts anew each window. The Rust of it: fixed_window.rs in tollgate-core.
--
-- KEYS     a string: the start of the window in microseconds since the epoch, and before it the units used
-- ARGV     limit    units
--          window   microseconds
--          aligned  1 where windows begin at multiples of their length since the epoch, else 0
--          cost     units
-- RETURNS  the start of the window, and the units used before the charge

local fixed_window = { arguments = 4, returns = 2 }

function fixed_window.policy(arguments)
  return { limit = arguments[1], window = arguments[2], aligned = arguments[3] == 1, cost = arguments[4] }
end

function fixed_window.ends(policy, start)
  return start + policy.window
end

local function write(policy, key, start, used)
  if used > 0 then
    call('SET', key, value_of(start, used), 'PX', life(start + policy.window))
  else
    call('DEL', key)
  end
end

function fixed_window.look(policy, key)
  local start, used = 0, 0
  local text = digits(key)
  if text then
    start, used = time_and_number(text)
  end
  -- At its very end the next window has begun.
  if used == 0 or now >= start + policy.window then
    start, used = now, 0
    if policy.aligned then
      start = now - now % policy.window
    end
  elseif start > now then
    -- It begins in the future: the clock stepped back, and nobody waits twice for that.
    start = now
    write(policy, key, start, used)
  end
  return start, used
end

function fixed_window.fits(policy, times, start, used)
  return fits(times, policy.cost, policy.limit - used)
end

function fixed_window.charge(policy, key, granted, start, used)
  if policy.cost > 0 then
    write(policy, key, start, used + granted * policy.cost)
  end
end

function fixed_window.refund(policy, key, units, stamp)
  local start, used = fixed_window.look(policy, key)
  if start == stamp and used > 0 then
    write(policy, key, start, max_of(0, used - units))
  end
end
