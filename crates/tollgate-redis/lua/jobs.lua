-- Jobs of a key: slots with an owner by name. In Rust: jobs.rs in tollgate-core. A clock and
-- number.lua come before it.
--
-- KEYS[1]  a sorted set: a member is an id, and its score is the time at which its job ends
-- KEYS[2]  a hash: of each id its attempt, when it was taken, and 1 if it lingers. Under the empty
--          id it has the latest attempt of all.
-- ARGV     take, an id, the limit, the time and the longest time in microseconds.
--          renew, an id, an attempt, the time and the longest time.
--          release, an id, an attempt or nothing, the longest time and the time to linger.
--          holders.
-- RETURNS  take:     1, the attempt, when the job ends, and 1 if the id was not held before, or 0;
--                    without room 0, and the time until the first ends.
--          renew:    when the job ends, or 0 if that attempt does not hold it, or not for longer.
--          release:  1 if the job was held, otherwise 0.
--          holders:  of each job its id, attempt, age, the time until it ends, and 1 if it lingers.

local call = redis.call
local operation, id = ARGV[1], ARGV[2]
local now_text = text_of(now)

local function end_of(of)
  return tonumber(call('ZSCORE', KEYS[1], of) or '0')
end

-- The attempt of a job, when it was taken, and whether it lingers. A server may have evicted the
-- hash.
local function entry(of)
  local text = call('HGET', KEYS[2], of) or ''
  local attempt, taken, lingers = string.match(text, '^(%d+):(%d+):(%d)$')
  return tonumber(attempt or 0), tonumber(taken or now), tonumber(lingers or 0)
end

local function store(of, ends, attempt, taken, lingers)
  call('ZADD', KEYS[1], text_of(ends), of)
  call('HSET', KEYS[2], of, text_of(attempt) .. ':' .. text_of(taken) .. ':' .. lingers)
end

local function remove(of)
  call('ZREM', KEYS[1], of)
  call('HDEL', KEYS[2], of)
end

local function keep(key, time)
  call('PEXPIRE', key, text_of(math.ceil(math.max(0, time - now) / 1000) + linger))
end

-- Both keys live as long as the last job, and the latest attempt until later ones are greater. It
-- frees no memory, but behind it a script may write when memory is full.
local function expire()
  local last = tonumber(call('ZRANGE', KEYS[1], '-1', '-1', 'WITHSCORES')[2] or '0')
  keep(KEYS[1], last)
  keep(KEYS[2], math.max(last, tonumber(call('HGET', KEYS[2], '') or '0')))
end

if operation == 'take' then
  local limit, time, longest = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
  local latest = tonumber(call('HGET', KEYS[2], '') or '0')
  if latest > 0 and call('ZCARD', KEYS[1]) == 0 then
    -- A server may have evicted the set.
    call('DEL', KEYS[2])
  end
  local over = call('ZRANGE', KEYS[1], '-inf', now_text, 'BYSCORE')
  for i = 1, #over do
    remove(over[i])
  end
  local used = call('ZCOUNT', KEYS[1], '(' .. now_text, '+inf')
  if used >= limit and end_of(id) <= now then
    expire()
    -- No attempt is before the time at which it was taken.
    local all = latest > now and call('ZRANGE', KEYS[1], '0', '-1') or {}
    for i = 1, #all do
      local attempt, taken, lingers = entry(all[i])
      if taken > now then
        -- The clock has stepped back to before it was taken.
        store(all[i], math.min(end_of(all[i]), now + longest), attempt, now, lingers)
      end
    end
    local place = text_of(used - limit)
    local first =
      call('ZRANGE', KEYS[1], '(' .. now_text, '+inf', 'BYSCORE', 'LIMIT', place, '1', 'WITHSCORES')
    expire()
    return { 0, tonumber(first[2]) - now }
  end
  local is_new = 1
  if end_of(id) > now then
    local _, _, lingers = entry(id)
    is_new = lingers
  end
  local attempt = math.max(latest + 1, now)
  store(id, now + time, attempt, now, 0)
  call('HSET', KEYS[2], '', text_of(attempt))
  expire()
  return { 1, attempt, now + time, is_new }
end

if operation == 'renew' then
  local wanted, time, longest = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
  local attempt, taken, lingers = entry(id)
  if end_of(id) <= now or lingers == 1 or wanted ~= attempt then
    return 0
  end
  local ends = math.min(now + time, taken + longest)
  if ends <= now then
    -- The longest time was longer when it was taken.
    return 0
  end
  expire()
  store(id, ends, attempt, taken, 0)
  expire()
  return ends
end

if operation == 'release' then
  local wanted, longest, lingering = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
  local attempt, taken, lingers = entry(id)
  if end_of(id) <= now or lingers == 1 or wanted ~= '' and tonumber(wanted) ~= attempt then
    return 0
  end
  local ends = math.min(taken + longest, now + lingering)
  expire()
  if ends > now then
    store(id, ends, attempt, taken, 1)
  else
    remove(id)
  end
  expire()
  return 1
end

local counting = call('ZRANGE', KEYS[1], '(' .. now_text, '+inf', 'BYSCORE', 'WITHSCORES')
local holders = {}
for i = 1, #counting, 2 do
  local attempt, taken, lingers = entry(counting[i])
  local ends_after = tonumber(counting[i + 1]) - now
  holders[#holders + 1] = { counting[i], attempt, math.max(0, now - taken), ends_after, lingers }
end
return holders
