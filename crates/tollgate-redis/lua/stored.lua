-- Writes and reads stored values. number.lua explains their form.

local call, try, find = redis.call, redis.pcall, string.find

-- The TTL in milliseconds of a state that ends at a time, rounded up to the next millisecond.
-- Cached, since many keys of a call have the same: without this cache and that of `store`, a check
-- of a sliding window costs 1.14 x (`tollgate load --redis`, 512 in flight, 10,000 keys).
local lives = {}
local function life(ends)
  local left = ends - now
  left = (left - left % 1000) / 1000 + 1 + linger
  lives[left] = lives[left] or text_of(left)
  return lives[left]
end

-- Stores a time, and the number before it, until the state ends. The text of the last time is
-- cached, since many keys of a call get the same.
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

-- What a refusal writes: the entry of a version of a bucket, see versions.lua. And a TTL to a key
-- that has none, which would be full for ever. The scripts always set one, so another program has
-- removed it.
local function ensure_end(key, policy, x, y, z)
  if type(z) == 'table' and z.refuse and z.refuse(key, x, y, z) then
    return
  elseif call('PTTL', key) == -1 then
    call('PEXPIRE', key, life(math.max(now, policy.ends(x, y, z, key))))
  end
end

-- The most units that are counted in one window: MAX_COUNT of tollgate-core.
local most_count = 2199023255552

-- A count of units in a stored value. Bounded, since a foreign value may be larger.
local function count_of(text)
  return math.min(tonumber(text) or 0, most_count)
end

-- The time in a stored value, and the number before it. Zeros if the key is missing or foreign.
local function time_and_number(text)
  if not text or not find(text, '^[1-9]%d*$') then
    return 0, 0
  elseif #text <= 16 then
    return text + 0, 0
  end
  return tonumber(text:sub(-16)), count_of(text:sub(1, -17))
end
