-- Numbers, and how they are stored.
--
-- Lua's numbers are doubles, exact up to 2^53. Times and spans of a policy stay below that; what would leave it on the
-- way (a product of two large numbers) is computed in parts. No number of 15 digits or more is made a text by tostring or
-- `..`, which keep 14 of them.
--
-- A stored value is decimal digits and nothing else: a time in the last 16 of them, in microseconds since the epoch, and
-- before it, where it is not zero, a count or a fraction. While that is below 922, Redis keeps the value as an integer,
-- in no more memory than a counter takes.
--
-- All of a script runs again on each call, so that what a call does not do should cost it little. To make a function costs
-- something, and more for each local that it uses of what is around it. So algorithms are made where they are first asked
-- for; what most calls do, gcra_whole.lua, is no function; and `refunds`, which stands before all of this, tells whether
-- algorithms are asked to give back: their `refund` is not made where they are not.

-- A number as text, in two parts, since %d takes 31 bits on a small machine. Redis takes texts faster than numbers; and some
-- versions take multiples of 100,000,000 wrongly, so that what may be as large is handed to a command as text only.
local function text_of(number)
  local high = math.floor(number / 1000000000)
  if high > 0 then
    return string.format('%d%09d', high, number - high * 1000000000)
  end
  return string.format('%d', number)
end

-- In microseconds: keys that hold a TAT live until a full step, so that they outlive their state by less than a second, and most
-- charges leave a key's life as it is.
local step = 900000
