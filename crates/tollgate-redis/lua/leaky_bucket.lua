-- The leaky bucket as a queue. The Rust of it: leaky_bucket.rs in tollgate-core.
--
-- All as in gcra.lua, whose horizon is wider here by the longest wait; only what comes back differs.

-- Only the latest reservation can come back: those behind it have been told their delay already.
local function leaky_bucket_refund(policy, key, units, stamp_us, stamp_frac)
  local us, frac = gcra_look(policy, key)
  if us == stamp_us and frac == stamp_frac then
    gcra_refund(policy, key, units, stamp_us, stamp_frac)
  end
end

local function leaky_bucket(...)
  local policy = gcra(...)
  policy.refund = leaky_bucket_refund
  return policy
end
