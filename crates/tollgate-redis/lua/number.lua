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
-- All of a script runs again on each call, so that what a call does not do should cost it little. A function of the library
-- is made a local only where every decision calls it; algorithms are made where they are first asked for; and `refunds`,
-- which stands before all of this, tells whether they are asked to give back: their `refund` is not made where they are not.

local call, try, find = redis.call, redis.pcall, string.find

-- A number as text, in two parts, since %d takes 31 bits on a small machine. Redis takes texts faster than numbers.
local function text_of(number)
  local high = math.floor(number / 1000000000)
  if high > 0 then
    return string.format('%d%09d', high, number - high * 1000000000)
  end
  return string.format('%d', number)
end

-- How many milliseconds a key has to live whose state ends at that time: rounded up, by a millisecond where it is even.
-- Many keys of a call have the same.
local lives = {}
local function life(ends)
  local left = ends - now
  left = (left - left % 1000) / 1000 + 1 + linger
  lives[left] = lives[left] or text_of(left)
  return lives[left]
end

-- Stores a time and the number before it, until that state ends. Many keys of a call are given the same.
local last_time, last_text
local function store(key, time, number, ends)
  if time ~= last_time then
    last_time, last_text = time, text_of(time)
  end
  local value = last_text
  if number > 0 then
    value = text_of(number) .. string.rep('0', 16 - #value) .. value
  end
  call('PSETEX', key, life(ends), value)
end

-- Without an end to its life a key would be full for ever. Nothing of ours is written so.
local function ensure_end(key, ends)
  if call('PTTL', key) == -1 then
    call('PEXPIRE', key, life(ends))
  end
end
