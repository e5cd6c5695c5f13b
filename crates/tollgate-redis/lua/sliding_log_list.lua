-- The sliding log in a list, the default. It is small, and about as fast for 100,000 runs as for
-- ten.
--
-- KEYS     a list: the time and the text of each entry, the newest last; see sliding_log.lua
-- ARGV     see sliding_log.lua
-- RETURNS  see sliding_log.lua

local list = {}

-- The times and texts of the entries from one position to another, in turn. Empty if the key has a
-- foreign type.
function list.entries(key, first, last)
  first = first < 0 and 2 * first or text_of(2 * first)
  return read('LRANGE', key, first, last < 0 and 2 * last + 1 or text_of(2 * last + 1)) or {}
end

function list.count_at(key, at)
  local text = call('LINDEX', key, text_of(2 * at + 1))
  return text and find(text, '^%d+$') and tonumber(text) or 0
end

-- Not an integer if the list is foreign.
function list.length(key)
  return call('LLEN', key) / 2
end

-- How many entries have this time or an earlier one. The first `low` are known to. Searches by
-- steps that double, since usually few have, then by halves.
function list.count_until(key, length, time, low)
  local function is_until(at)
    local text = call('LINDEX', key, text_of(2 * at))
    return (text and find(text, '^%-?%d+$') and tonumber(text) or 0) <= time
  end
  local high = math.max(1, 2 * low)
  while high <= length and is_until(high - 1) do
    low, high = high, high * 2
  end
  high = math.min(high, length + 1)
  while high - low > 1 do
    local middle = math.floor((low + high) / 2)
    if is_until(middle - 1) then
      low = middle
    else
      high = middle
    end
  end
  return low
end

function list.drop_oldest(key, entries)
  call('LTRIM', key, text_of(2 * entries), -1)
end

function list.drop_newest(key, entries)
  call('LTRIM', key, 0, '-' .. text_of(2 * entries + 1))
end

-- Appends times and texts, in turn.
function list.push(key, entries)
  call('RPUSH', key, unpack(entries))
end

function list.head(key, text)
  call('LPUSH', key, text, '-1')
end

local function sliding_log_list(limit, window, cost)
  return sliding_log(list, limit, window, cost, 1)
end
