-- The sliding log in a sorted set, which can be searched by time with redis-cli.
--
-- KEYS     a sorted set: the score of an entry is its time, and the member its text; see
--          sliding_log.lua
-- ARGV     see sliding_log.lua
-- RETURNS  see sliding_log.lua

local sorted_set = {}

-- The times and texts of the entries from one position to another, in turn. Empty if the key has a
-- foreign type.
function sorted_set.entries(key, first, last)
  first, last = first < 0 and first or text_of(first), last < 0 and last or text_of(last)
  local found = read('ZRANGE', key, first, last, 'WITHSCORES') or {}
  for i = 1, #found, 2 do
    found[i], found[i + 1] = found[i + 1], found[i]
  end
  return found
end

function sorted_set.count_at(key, at)
  at = text_of(at)
  local text = call('ZRANGE', key, at, at)[1]
  return text and find(text, '^%d+$') and tonumber(text) or 0
end

function sorted_set.length(key)
  return call('ZCARD', key)
end

-- How many entries have this time or an earlier one.
function sorted_set.count_until(key, length, time)
  return call('ZCOUNT', key, '-inf', string.format('%.0f', time))
end

function sorted_set.drop_oldest(key, entries)
  call('ZREMRANGEBYRANK', key, 0, text_of(entries - 1))
end

function sorted_set.drop_newest(key, entries)
  call('ZREMRANGEBYRANK', key, '-' .. text_of(entries), -1)
end

-- Adds times and texts, in turn.
function sorted_set.push(key, entries)
  call('ZADD', key, unpack(entries))
end

function sorted_set.head(key, text)
  call('ZADD', key, '-1', text)
end

local function sliding_log_sorted_set(limit, window, cost)
  return sliding_log(sorted_set, limit, window, cost, 1)
end
