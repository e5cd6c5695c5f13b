-- The leaky bucket as a queue: GCRA with other refunds. In Rust: leaky_bucket.rs in tollgate-core.
--
-- KEYS     see gcra.lua
-- ARGV     see gcra.lua; the horizon includes the longest wait
-- RETURNS  see gcra.lua

local function leaky_bucket(parts, ...)
  local policy = gcra(parts, ...)
  local give_back = policy.refund

  -- Only the last place in the queue is refunded. Callers behind any other place already know their
  -- delay.
  policy.refund = give_back and function(key, text, units, stamp_us, stamp_frac, span_us, span_frac)
    local us, frac, is_whole = policy.look(key, text)
    -- A rounded fraction with another denominator matches no stamp.
    if us == stamp_us and frac == stamp_frac and is_whole == (frac == 0) then
      give_back(key, text, units, stamp_us, stamp_frac, span_us, span_frac)
    end
  end

  return policy
end
