-- Numbers as text.
--
-- Lua's numbers are doubles, exact up to 2^53. A policy's times and spans stay below that. A
-- product that may exceed it is computed in parts. tostring and `..` keep 14 digits, so they are
-- not used for numbers that may be longer.
--
-- A stored value is decimal digits only: the last 16 are a time in microseconds since the epoch,
-- and a count or a fraction may stand before them. If that is below 922, Redis stores the value as
-- an integer, which needs no more memory than a counter.
--
-- The whole script runs again on each call, so unused parts should cost little. Creating a function
-- costs time, and more for each outer local that it uses. Hence two rules. Algorithms are created
-- when first needed: gcra_whole.lua decides most checks without them. An algorithm's `refund` is
-- created only if `refunds` is true, and its `usage` only if `counts` is. Both stand before all
-- files.

-- A number as text, in two parts, since %d is limited to 31 bits on some machines. Commands get
-- large numbers as text: Redis accepts that faster, and some versions misread multiples of
-- 100,000,000.
local function text_of(number)
  local high = math.floor(number / 1000000000)
  if high > 0 then
    return string.format('%d%09d', high, number - high * 1000000000)
  end
  return string.format('%d', number)
end

-- In microseconds. Keys with a TAT expire at a full step. So they outlive their state by less than
-- a second, and most charges need not change the TTL.
local step = 900000
