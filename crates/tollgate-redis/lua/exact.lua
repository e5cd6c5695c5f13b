-- Times and spans in microseconds and parts of one. exact.rs in tollgate-core has them in Rust.

-- When a key expires: at the first full step after TAT, when the bucket is full. A record is that of
-- versions.lua.
local function ends(us, frac, record)
  if type(record) == 'table' then
    us, frac = record.latest, 0
  end
  if frac > 0 then
    us = us + 1
  end
  return us - us % step + step
end

-- n x (us + frac / parts), exactly. The product of n and frac may exceed 2^53, so n is split in
-- two. It is below 2^41, and frac below 2^32.
local function multiple(n, us, frac, parts)
  if frac == 0 then
    return n * us, 0
  end
  local high = math.floor(n / 1048576)
  local carry = high * frac
  local sum = (carry % parts) * 1048576 + (n - high * 1048576) * frac
  return n * us + math.floor(carry / parts) * 1048576 + math.floor(sum / parts), sum % parts
end

local function no_more_than(us, frac, most_us, most_frac)
  return us < most_us or (us == most_us and frac <= most_frac)
end
