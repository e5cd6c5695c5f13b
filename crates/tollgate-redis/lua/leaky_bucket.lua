-- The leaky bucket as a queue. The Rust of it: leaky_bucket.rs in tollgate-core.
--
-- All as in gcra.lua, whose horizon is wider here by the longest wait; only what comes back differs.

local leaky_bucket = setmetatable({}, { __index = gcra })

-- Only the latest reservation can come back: those behind it have been told their delay already.
function leaky_bucket.refund(policy, key, units, stamp_us, stamp_frac)
  local us, frac = gcra.look(policy, key)
  if us == stamp_us and frac == stamp_frac then
    gcra.refund(policy, key, units, stamp_us, stamp_frac)
  end
end
