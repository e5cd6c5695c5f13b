-- A block: nothing passes until its end. In Rust: block.rs in tollgate-core.
--
-- KEYS     a string: the end of the block in microseconds since the epoch. Its length in
--          milliseconds, rounded up, stands before it
-- ARGV     limit:   1, or 2 to start a block
--          length:  of a new block, in microseconds
--          cost:    units
--          free:    1 if nothing is charged: the policy only refuses
-- RETURNS  the end of the block, or 0

local function block(limit, length, cost, free)
  local function ends(till)
    return till
  end

  local function keep(key, till, millis)
    store(key, till, millis, till)
  end

  local function look(key, text)
    local till, millis = time_and_number(text)
    if now >= till then
      return 0
    end
    if till > now + millis * 1000 then
      -- The clock stepped back. No caller waits longer than the length of its block.
      till = now + millis * 1000
      keep(key, till, millis)
    end
    return till
  end

  local function fits(times, till)
    if free == 1 and till == 0 then
      return times
    end
    return fitting(times, cost, till > 0 and limit - 1 or limit)
  end

  -- A block that runs ends when it would have.
  local function charge(key, _, till)
    if cost > 0 and free == 0 and till == 0 then
      keep(key, now + length, math.ceil(length / 1000))
    end
  end

  -- Time ends it, or a reset.
  local refund = refunds and function() end

  return { returns = 1, ends = ends, look = look, fits = fits, charge = charge, refund = refund }
end
