-- The leaky bucket as a queue. The Rust of it: leaky_bucket.rs in tollgate-core.
--
-- KEYS     see gcra.lua
-- ARGV     see gcra.lua; the horizon is wider by the longest wait
-- RETURNS  see gcra.lua
--
-- Only what comes back differs.

local function leaky_bucket(parts, ...)
  local policy = gcra(parts, ...)
  local give_back = policy.refund

  -- Only the latest reservation can come back: those behind it have been told their delay already.
  policy.refund = give_back and function(key, text, units, stamp_us, stamp_frac)
    local us, frac = policy.look(key, text)
    -- A fraction of another denominator counts as a whole microsecond, and is no stamp's.
    if us == stamp_us and frac == stamp_frac and frac < parts then
      give_back(key, text, units, stamp_us, stamp_frac)
    end
  end

  return policy
end
