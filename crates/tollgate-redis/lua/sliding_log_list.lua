-- The sliding log in a list, the default: small, and as fast for a hundred thousand entries as for ten.
--
-- KEYS     a list: the time of each unit in microseconds since the epoch, the newest last
-- ARGV     see sliding_log.lua
-- RETURNS  see sliding_log.lua

local list = {}

-- The time at an index, where -1 is the newest; nil where there is none of ours.
function list.time_at(key, index)
  local text = read('LINDEX', key, index < 0 and index or text_of(index))
  if text and find(text, '^%d+$') then
    return tonumber(text)
  end
end

function list.length(key)
  return call('LLEN', key)
end

-- How many entries are at a time or before it: by steps that double, since mostly none or few are, then by halves.
function list.count_until(key, length, time)
  local low, high = 0, 1
  while high <= length and (list.time_at(key, high - 1) or 0) <= time do
    low, high = high, high * 2
  end
  high = math.min(high, length + 1)
  while high - low > 1 do
    local middle = math.floor((low + high) / 2)
    if (list.time_at(key, middle - 1) or 0) <= time then
      low = middle
    else
      high = middle
    end
  end
  return low
end

function list.drop_oldest(key, entries)
  call('LTRIM', key, text_of(entries), -1)
end

function list.drop_newest(key, entries)
  call('LTRIM', key, 0, '-' .. text_of(entries + 1))
end

function list.add(key, time, units)
  local text = text_of(time)
  for added = 0, units - 1, 4000 do
    -- In chunks: unpack gives no more than 8,000 values.
    local times = {}
    for i = 1, math.min(4000, units - added) do
      times[i] = text
    end
    call('RPUSH', key, unpack(times))
  end
end

function list.remove(key, time, units)
  call('LREM', key, '-' .. text_of(units), text_of(time))
end

local function sliding_log_list(limit, window, cost)
  return sliding_log(list, limit, window, cost)
end
