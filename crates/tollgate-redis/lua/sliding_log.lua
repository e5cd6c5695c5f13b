-- The sliding log: all charges and their times. In Rust: sliding_log.rs in tollgate-core.
--
-- A log is a sequence of runs, oldest first. A run has all units that were charged at one time, so
-- the cost of a request does not multiply the work. An entry is a time and a count:
--
--   time   in spans since the epoch. In sliding_log_*.lua a span is a microsecond.
--   count  units charged up to and with this run, since the log was empty
--
-- So the units in use are a difference of two counts, and a search for a unit is a binary search. A
-- head may stand before the runs: a time of -1, and the count of the last run that was dropped.
-- sliding_log_list.lua and sliding_log_sorted_set.lua store the entries. Each has a table `layout`
-- of functions that find entries by position: 0 is the oldest, -1 the newest.
--
-- With n runs stored, and w of them over (older than the window): a check reads O(log n) entries. A
-- charge also drops the w runs that are over, by one command of O(w): each run is dropped once. A
-- refund writes all newer runs again, 1 to 3 us each. So it reaches back 1,024 runs, which is more
-- than a ring has. What an older run has charged stays charged.
--
-- KEYS     see sliding_log_list.lua and sliding_log_sorted_set.lua
-- ARGV     limit in units, window in spans, cost in units
-- RETURNS  a summary of the log before the charge, from which the caller computes the same report:
--          a time and a number of units, twice. The first is the time of the run that the refused
--          cost waits for, with the units that expire by then. The second is the time of the newest
--          run, with the other units

local NEWEST = 1024 -- `Algorithm::REFUNDABLE_TIMES`

-- The time and the count of an entry, nil for each that is foreign. `index` is that of its time in
-- what a layout returned.
local function numbers_of(entries, index)
  local time, count = entries[index], entries[index + 1]
  return time and find(time, '^%-?%d+$') and math.min(tonumber(time), 9007199254740992),
    count and find(count, '^%d+$') and math.min(tonumber(count), 9007199254740992)
end

local function sliding_log(layout, limit, window, cost, span)
  local current = math.floor(now / span)

  local function ends(log)
    return ((log.newest or current) + window) * span
  end

  -- The log under a key. Runs inside the window are those that count.
  --   used:   the units of runs that count
  --   length: the number of entries, with the head; nil if there are none or foreign ones
  --   over:   the number of entries that do not count, with the head
  --   gone:   the count of the last of these
  --   newest, count: those of the newest run
  --   head:   whether there is a head
  --   oldest_time, oldest_count: those of the oldest run that counts, if known
  local function look(key)
    local newest, count = numbers_of(layout.entries(key, -1, -1), 1)
    local length = count and newest and layout.length(key)
    if not length or length % 1 ~= 0 then
      return { used = 0 }
    end
    local front = layout.entries(key, 0, 1)
    local time, gone = numbers_of(front, 1)
    local log = { length = length, newest = newest, count = count, head = time == -1 }
    if newest > current then
      -- The clock stepped back: runs in the future become one run now.
      local from = layout.count_until(key, length, current - 1, 0)
      local _, before = numbers_of(from > 0 and layout.entries(key, from - 1, from - 1) or {}, 1)
      before = before or 0
      log.count = before + math.max(0, math.min(count - before, most_count))
      layout.drop_newest(key, length - from)
      layout.push(key, { text_of(current), text_of(log.count) })
      call('PEXPIRE', key, life((current + window) * span))
      log.length, log.newest = from + 1, current
      front = layout.entries(key, 0, 1)
      time, gone = numbers_of(front, 1)
    end

    local last, over = math.max(-1, current - window), 0
    local second, gone_at_second = numbers_of(front, 3)
    if (time or 0) <= last then
      over = 1
      if log.length > 1 and (second or 0) <= last then
        over, gone = layout.count_until(key, log.length, last, 2), gone_at_second
        if over > 2 then
          gone = layout.count_at(key, over - 1)
        end
      end
    end
    -- The oldest run that counts may be among those read already.
    if over == 0 then
      log.oldest_time, log.oldest_count, gone = time, gone, 0
    elseif over == 1 then
      log.oldest_time, log.oldest_count = second, gone_at_second
    end
    log.over, log.gone = over, gone or 0
    log.used = over < log.length and math.max(0, math.min(log.count - log.gone, most_count)) or 0
    return log
  end

  local function fits(times, log)
    return fitting(times, cost, limit - log.used)
  end

  -- The position of the run at whose end this many units have expired. Looks at the oldest run,
  -- then does a binary search.
  local function run_of(key, log, units)
    local low, middle, high = log.over - 1, log.over, log.length - 1
    while high - low > 1 do
      local count = log.oldest_count
      if middle > log.over or not count then
        count = layout.count_at(key, middle)
      end
      if count - log.gone < units then
        low = middle
      else
        high = middle
      end
      middle = math.floor((low + high) / 2)
    end
    return high
  end

  -- Appends the entries from an index on, each count less the same units. In chunks, since unpack
  -- returns at most 8,000 values. A foreign count is 0. Without `numbers_of`, `text_of` and the
  -- functions of `math`, which take 2 to 3 x as long for 1,024 runs.
  local function push_less(key, entries, index, less)
    for from = index, #entries, 4000 do
      local runs, length = {}, 0
      for i = from, math.min(from + 3999, #entries), 2 do
        local count = tonumber(entries[i + 1])
        count = count and count > less and count <= 9007199254740992 and count - less or 0
        runs[length + 1], runs[length + 2] = entries[i], string.format('%.0f', count)
        length = length + 2
      end
      layout.push(key, runs)
    end
  end

  local function charge(key, granted, log)
    local units = granted * cost
    if units == 0 then
      return
    end
    local count = units
    if log.used == 0 then
      call('DEL', key)
    else
      -- Counts stay below 2^52, where doubles are exact: then they begin again.
      if log.count + units > 4503599627370496 then
        local runs = layout.entries(key, log.over, log.length - 1)
        call('DEL', key)
        push_less(key, runs, 1, log.gone)
        log = look(key)
      end
      if log.over > (log.head and 1 or 0) then
        layout.drop_oldest(key, log.over)
        layout.head(key, text_of(log.gone))
      end
      count = log.count + units
      if log.newest == current then
        layout.drop_newest(key, 1)
      end
    end
    layout.push(key, { text_of(current), text_of(count) })
    call('PEXPIRE', key, life((current + window) * span))
  end

  local function report(key, granted, refused, log)
    local used, newest = log.used, log.newest
    if used == 0 then
      return current, 0, current, 0
    end
    local missing = used + (granted + refused) * cost - limit
    if refused == 0 or missing <= 0 or missing > used then
      return math.max(0, newest), used, newest, 0
    end
    -- Bounded, since a foreign time may lie in the future: no wait is longer than a window.
    local at = run_of(key, log, missing)
    local time = at == log.over and log.oldest_time or numbers_of(layout.entries(key, at, at), 1) or current
    return math.max(0, math.min(current, time)), missing, newest, used - missing
  end

  -- Takes units out of the newest runs.
  local take_newest = refunds and function(key, units, log)
    if units >= log.used then
      return call('DEL', key)
    end
    local at = run_of(key, log, log.used - units)
    log.newest = numbers_of(layout.entries(key, at, at), 1) or current
    layout.drop_newest(key, log.length - at)
    layout.push(key, { text_of(log.newest), text_of(log.count - units) })
    call('PEXPIRE', key, life(ends(log)))
  end

  local refund = refunds and function(key, text, units, stamp)
    local log = look(key)
    if stamp == 18014398509481984 then
      return log.used > 0 and take_newest(key, units, log)
    end
    local at = -1
    if log.used > 0 then
      -- Work that ends soon settles the newest run.
      at = (stamp == log.newest and log.length or layout.count_until(key, log.length, stamp, 0)) - 1
    end
    if at < 0 or at < log.over or at < log.length - NEWEST then
      return
    end
    -- From the entry before the run on, if there is one.
    local first = math.max(0, at - 1)
    local entries = layout.entries(key, first, log.length - 1)
    local index = 2 * (at - first) + 1
    local time, count = numbers_of(entries, index)
    local before, before_count = numbers_of(entries, index - 2)
    local left = (count or 0) - (before_count or 0)
    units = math.min(units, left)
    if time ~= stamp or units <= 0 then
      return
    elseif units >= log.used then
      return call('DEL', key)
    end
    -- A run without units is left out.
    index = units == left and index + 2 or index
    layout.drop_newest(key, log.length - at)
    push_less(key, entries, index, units)
    log.newest = index > #entries and before or log.newest
    call('PEXPIRE', key, life(ends(log)))
  end

  -- The units of the runs whose last microsecond is within an interval.
  local usage = counts and function(key, interval)
    local log = look(key)
    local before = math.max(-1, math.floor((now - interval + 1) / span) - 1)
    local at = log.used > 0 and layout.count_until(key, log.length, before, 0) or 0
    if log.used == 0 or at <= log.over then
      return log.used
    end
    local used = at < log.length and log.count - layout.count_at(key, at - 1) or 0
    return math.max(0, math.min(used, log.used))
  end

  return {
    returns = 4, reads = true, ends = ends, look = look, fits = fits, charge = charge, report = report,
    refund = refund, usage = usage
  }
end
