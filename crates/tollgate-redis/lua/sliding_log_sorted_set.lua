-- The sliding log in a sorted set: dearer than the list, and can be looked at and searched by time.
--
-- KEYS     a sorted set: the score of each unit is its time in microseconds since the epoch; its member is the time, a
--          dash, and a number that tells the units of one microsecond apart
-- ARGV     see sliding_log.lua
-- RETURNS  see sliding_log.lua

local sorted_set = {}

function sorted_set.time_at(key, rank)
  local text = rank < 0 and rank or text_of(rank)
  local found = read('ZRANGE', key, text, text, 'WITHSCORES')
  if found and found[2] and find(found[2], '^%d+$') then
    return tonumber(found[2])
  end
end

function sorted_set.length(key)
  return call('ZCARD', key)
end

function sorted_set.count_until(key, length, time)
  return call('ZCOUNT', key, '-inf', string.format('%.0f', time))
end

function sorted_set.drop_oldest(key, entries)
  call('ZREMRANGEBYRANK', key, 0, text_of(entries - 1))
end

function sorted_set.drop_newest(key, entries)
  call('ZREMRANGEBYRANK', key, '-' .. text_of(entries), -1)
end

function sorted_set.add(key, time, units)
  local text = text_of(time)
  -- Members of one score are in the order of their text: the last has the highest number.
  local last = call('ZREVRANGEBYSCORE', key, text, text, 'LIMIT', 0, 1)[1]
  local number = last and count_of(string.match(last, '%d+$')) or 0
  for added = 0, units - 1, 2000 do
    -- In chunks: unpack gives no more than 8,000 values.
    local members = {}
    for i = 1, math.min(2000, units - added) do
      members[2 * i - 1] = text
      members[2 * i] = string.format('%s-%010.0f', text, number + added + i)
    end
    call('ZADD', key, unpack(members))
  end
end

function sorted_set.remove(key, time, units)
  local text = text_of(time)
  for removed = 0, units - 1, 4000 do
    local few = math.min(4000, units - removed)
    local members = call('ZREVRANGEBYSCORE', key, text, text, 'LIMIT', 0, few)
    if #members == 0 then
      return
    end
    call('ZREM', key, unpack(members))
  end
end

local function sliding_log_sorted_set(limit, window, cost)
  return sliding_log(sorted_set, limit, window, cost)
end
