-- Numbers, and how they are stored.
--
-- Lua's numbers are doubles, exact up to 2^53. Times and spans of a policy stay below that; what would leave it on the
-- way (a product of two large numbers) is computed in parts. No number of 15 digits or more is made a text by tostring or
-- `..`, which keep 14 of them.
--
-- A stored value is decimal digits and nothing else: a time in the last 16 of them, in microseconds since the epoch, and
-- before it, where it is not zero, a count or a fraction. While that is below 922, Redis keeps the value as an integer,
-- in no more memory than a counter takes.

local call, pcall = redis.call, redis.pcall
local floor, min_of, max_of = math.floor, math.min, math.max
local find, format, sub = string.find, string.format, string.sub

-- What a command reads; false where the key holds another type than ours, which counts as nothing. That a key may not be
-- read is another thing: then the call fails.
local function read(...)
  local found = pcall(...)
  if type(found) == 'table' and found.err then
    return not find(found.err, 'WRONGTYPE') and call(...)
  end
  return found
end

-- The digits stored under a key; nil where there is nothing, or something that is not ours.
local function digits(key)
  local text = read('GET', key)
  if text and find(text, '^[1-9]%d*$') then
    return text
  end
end

-- A number that was read where a count of units belongs. No count of ours is larger.
local function count_of(text)
  return min_of(tonumber(text) or 0, 4294967295)
end

-- The time in some digits, and the number before it.
local function time_and_number(text)
  if #text <= 16 then
    return tonumber(text), 0
  end
  return tonumber(sub(text, -16)), count_of(sub(text, 1, -17))
end

-- How many milliseconds a key has to live whose state ends at that time: rounded up, by a millisecond where it is even.
local function life(ends)
  local left = ends - now
  return (left - left % 1000) / 1000 + 1 + linger
end

-- A number as text, in two parts, since %d takes 31 bits on a small machine. Redis takes texts faster than numbers.
local function text_of(number)
  local high = floor(number / 1000000000)
  if high > 0 then
    return format('%d%09d', high, number - high * 1000000000)
  end
  return format('%d', number)
end

-- Stores a time and the number before it, until that state ends.
local function store(key, time, number, ends)
  local value = text_of(time)
  if number > 0 then
    value = text_of(number) .. string.rep('0', 16 - #value) .. value
  end
  call('PSETEX', key, text_of(life(ends)), value)
end

-- Sees to it that a key outlives its state, and by a second at most. Mostly it does already: to be told so costs less than
-- to set it, and what is set is set for a while.
local function outlive(key, ends)
  local needed = life(ends)
  local left = call('PTTL', key)
  if left < needed or left > needed + 990 then
    call('PEXPIRE', key, text_of(needed + 990))
  end
end

-- How often a cost fits into what is free, at most `times`.
local function fits(times, cost, free)
  if cost == 0 then
    return times
  end
  return min_of(times, max_of(0, floor(free / cost)))
end
