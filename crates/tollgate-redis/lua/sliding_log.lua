-- The sliding log: all charges and their times. In Rust: sliding_log.rs in tollgate-core.
--
-- A log is a sequence of runs, oldest first. A run has all units that were charged at one time, so
-- the cost of a request does not multiply the work. An entry is a time and a text:
--
--   time      in spans since the epoch. In sliding_log_*.lua a span is a microsecond.
--   text      COUNT or COUNT-RETURNED.
--   COUNT     Units charged up to and with this run, since the log was empty.
--   RETURNED  Units refunded, of this run and of some that follow. See `refunded`.
--
-- So the units in use are a difference of two counts, and a search for a unit is a binary search.
-- A head may stand before the runs, with a time of -1. Its text is COUNT or COUNT-NUMBER: the units
-- charged before the first run that is still stored, and the number of that run. Only a log with
-- refunds has the number.
--
-- sliding_log_list.lua and sliding_log_sorted_set.lua store the entries. Each has a table `layout`
-- of functions that find entries by position: 0 is the oldest, -1 the newest.
--
-- With n runs stored, and w of them over (older than the window): a check reads O(log n) entries. A
-- refund reads and writes O((log n)^2), usually a few. A charge also drops the w runs that are
-- over, by one command of O(w): each run is dropped once. `rebuild` takes O(n), at most once in n/2
-- refunds.
--
-- KEYS     see sliding_log_list.lua and sliding_log_sorted_set.lua
-- ARGV     limit:   units
--          window:  spans
--          cost:    units
-- RETURNS  a summary of the log before the charge, from which the caller computes the same report:
--          a time and a number of units, twice. The first is the time of the run that the refused
--          cost waits for, with the units that expire by then. The second is the time of the newest
--          run, with the other units

-- The numbers of an entry: its time, its count, and the number behind the dash. nil for each that
-- is foreign. `index` is that of its time in what a layout returned.
local function numbers_of(entries, index)
  local time, text = entries[index], entries[index + 1] or ''
  time = time and find(time, '^%-?%d+$') and math.min(tonumber(time), 9007199254740992)
  if find(text, '^%d+$') then
    return time, math.min(tonumber(text), 9007199254740992)
  end
  local _, _, count, more = find(text, '^(%d+)%-(%d+)$')
  if count then
    return time, math.min(tonumber(count), 9007199254740992), math.min(tonumber(more), 1125899906842624)
  end
  return time
end

local function text_of_both(count, more)
  return more and more > 0 and text_of(count) .. '-' .. text_of(more) or text_of(count)
end

-- The largest power of two that divides a number.
local function size_at(number)
  local size = 1
  while number % (2 * size) == 0 do
    size = 2 * size
  end
  return size
end

local function sliding_log(layout, limit, window, cost, span)
  local current = math.floor(now / span)

  local function ends(log)
    return ((log.newest or current) + window) * span
  end

  -- The units refunded of the runs from a position on. A run whose number is divisible by 2^k and
  -- not by 2^(k+1) keeps the sum of 2^k runs: a Fenwick tree. So a sum reads few entries, and a
  -- refund changes few. Sums are of newer runs, so that dropping old ones changes none.
  local function refunded(key, log, at)
    local sum = 0
    while log.first and at < log.length do
      local _, _, returned = numbers_of(layout.entries(key, at, at), 1)
      sum = sum + (returned or 0)
      at = at + size_at(log.first + at - 1)
    end
    return sum
  end

  -- Adds to the refunded units of the run at a position, in all sums that include it.
  local function add_refunded(key, log, at, units)
    repeat
      local entry = layout.entries(key, at, at)
      local _, count, returned = numbers_of(entry, 1)
      layout.replace(key, at, entry, text_of_both(count or 0, (returned or 0) + units))
      at = at - size_at(log.first + at - 1)
    until at < 1
  end

  -- Drops the runs from a position on, and subtracts their refunds from the sums of those before.
  local function cut(key, log, from)
    local gone, at = refunded(key, log, from), from
    while gone > 0 do
      at = at - size_at(log.first + at - 1)
      if at < 1 then
        break
      end
      local entry = layout.entries(key, at, at)
      local _, count, returned = numbers_of(entry, 1)
      local beyond = refunded(key, log, at + size_at(log.first + at - 1))
      layout.replace(key, at, entry, text_of_both(count or 0, (returned or 0) - (gone - beyond)))
    end
    layout.drop_newest(key, log.length - from)
    log.length = from
  end

  -- The log under a key. Runs inside the window are those that count.
  --   used:     the units of runs that count
  --   length:   the number of entries, with the head; nil if there are none or foreign ones
  --   over:     the number of entries that do not count, with the head
  --   gone:     the count of the last of these
  --   newest:   the time of the newest run
  --   returned: the number behind the dash of the newest run
  --   count:    the count of the newest run
  --   head:     whether there is a head
  --   base:     the count in the head
  --   first:    the number of the first run, if the head has it
  --   refunded: the units refunded of the runs that count
  --   oldest_time, oldest_count: those of the oldest run that counts, if known
  local function look(key)
    local newest, count, returned = numbers_of(layout.entries(key, -1, -1), 1)
    local length = count and newest and layout.length(key)
    if not length or length % 1 ~= 0 then
      return { used = 0 }
    end
    local front = layout.entries(key, 0, 1)
    local time, gone, first = numbers_of(front, 1)
    local log = { length = length, newest = newest, count = count, returned = returned, head = time == -1 }
    log.base, log.first = log.head and gone or 0, log.head and first and math.max(first, 1)

    if newest > current then
      -- The clock stepped back: runs in the future become one run now.
      local from = layout.count_until(key, length, current - 1, 0)
      local _, before = numbers_of(from > 0 and layout.entries(key, from - 1, from - 1) or {}, 1)
      before = before or 0
      local ahead = count - before - refunded(key, log, from)
      count = before + math.max(0, math.min(ahead, 4294967295))
      cut(key, log, from)
      layout.push(key, { text_of(current), text_of(count) })
      call('PEXPIRE', key, life((current + window) * span))
      log.length, log.newest, log.count, log.returned = from + 1, current, count, nil
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
          local _, gone_at_last = numbers_of(layout.entries(key, over - 1, over - 1), 1)
          gone = gone_at_last
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
    log.refunded = refunded(key, log, over)
    log.used = over < log.length and log.count - log.gone - log.refunded or 0
    log.used = math.max(0, math.min(log.used, 4294967295))
    return log
  end

  local function fits(times, log)
    return fitting(times, cost, limit - log.used)
  end

  -- The position of the run at whose end this many units have expired, in a log without refunds.
  -- Looks at the oldest run, then does a binary search.
  local function run_by_halves(key, log, units)
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

  -- The same in a log with refunds: over blocks of runs that double, then by halves of a block. The
  -- blocks are those of `refunded`.
  local function run_of(key, log, units)
    if not log.first then
      return run_by_halves(key, log, units)
    end
    local at, before, numbers = log.over, log.gone, log.first - 1
    local _, _, returned = numbers_of(layout.entries(key, at, at), 1)
    returned = returned or 0
    -- The count of the last of so many runs, and the units refunded of the block behind them.
    local function around(runs)
      local entries = layout.entries(key, at + runs - 1, at + runs)
      local _, count = numbers_of(entries, 1)
      local _, _, behind = numbers_of(entries, 3)
      return count or 0, behind or 0
    end
    local size = size_at(numbers + at)
    while at + size < log.length do
      local count, behind = around(size)
      if count - before - returned >= units then
        break
      end
      units, before, at, returned = units - (count - before - returned), count, at + size, behind
      size = size_at(numbers + at)
    end
    while size > 1 do
      size = size / 2
      if at + size < log.length then
        local count, behind = around(size)
        local found = count - before - (returned - behind)
        if found < units then
          units, before, at, returned = units - found, count, at + size, behind
        else
          returned = returned - behind
        end
      end
    end
    return at
  end

  -- Writes the log again: only the runs that count, each with the units that were not refunded.
  local function rebuild(key, log)
    local times, counts, returned = {}, {}, {}
    for from = log.over, log.length - 1, 2000 do
      local entries = layout.entries(key, from, math.min(from + 1999, log.length - 1))
      for i = 1, #entries, 2 do
        local _, count, units = numbers_of(entries, i)
        times[#times + 1], counts[#counts + 1], returned[#returned + 1] = entries[i], count or 0, units or 0
      end
    end
    call('DEL', key)
    local count, before, runs = 0, log.gone, {}
    for i = 1, #times do
      local units = counts[i] - before
      before = counts[i]
      if log.first then
        units = units - returned[i]
        local size = 1
        local sizes = size_at(log.first + log.over + i - 2)
        while size < sizes do
          units, size = units + (returned[i + size] or 0), 2 * size
        end
      end
      if units > 0 then
        count = count + units
        runs[#runs + 1], runs[#runs + 2] = times[i], text_of(count)
      end
      -- In chunks, since unpack returns at most 8,000 values.
      if #runs >= 4000 or (i == #times and #runs > 0) then
        layout.push(key, runs)
        runs = {}
      end
    end
  end

  local function charge(key, granted, log)
    local units = granted * cost
    if units == 0 then
      return
    end
    local count, returned = units, nil
    if log.used == 0 then
      call('DEL', key)
    else
      -- Counts stay below 2^52, where doubles are exact.
      if log.count + units > 4503599627370496 then
        rebuild(key, log)
        log = look(key)
      end
      if log.over > (log.head and 1 or 0) then
        layout.drop_oldest(key, log.over)
        local first = log.first and log.refunded > 0 and log.first + log.over - 1
        layout.head(key, text_of_both(log.gone, first))
      end
      count = log.count + units
      if log.newest == current then
        layout.drop_newest(key, 1)
        returned = log.returned
      end
    end
    layout.push(key, { text_of(current), text_of_both(count, returned) })
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

  local refund = refunds and function(key, text, units, stamp)
    local log = look(key)
    if log.used == 0 or units == 0 or stamp + window <= current then
      return
    end
    local at = layout.count_until(key, log.length, stamp, 0) - 1
    if at < log.over then
      return
    end
    local time, count = numbers_of(layout.entries(key, at, at), 1)
    if time ~= stamp or not count then
      return
    end
    local _, before = numbers_of(at > 0 and layout.entries(key, at - 1, at - 1) or {}, 1)
    local left = count - (before or 0) - (refunded(key, log, at) - refunded(key, log, at + 1))
    units = math.min(units, left)
    if units <= 0 then
      return
    end
    local used = log.used - units
    if used <= 0 then
      call('DEL', key)
      return
    end
    if units == left and at == log.length - 1 then
      -- All units of the newest run come back, so it is removed, and with it refunded runs before
      -- it: the newest run always has units left.
      local newest = run_of(key, log, used)
      cut(key, log, newest + 1)
      log.newest = numbers_of(layout.entries(key, newest, newest), 1) or current
    else
      if not log.first then
        if log.head then
          layout.drop_oldest(key, 1)
        else
          at, log.over, log.length = at + 1, log.over + 1, log.length + 1
        end
        layout.head(key, text_of_both(log.base, 1))
        log.first = 1
      end
      add_refunded(key, log, at, units)
      -- More than half of the runs may be refunded.
      if log.length > 2 * used + 64 then
        rebuild(key, log)
      end
    end
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
    local _, gone = numbers_of(layout.entries(key, at - 1, at - 1), 1)
    local used = at < log.length and log.count - (gone or 0) - refunded(key, log, at) or 0
    return math.max(0, math.min(used, log.used))
  end

  return {
    returns = 4, ends = ends, look = look, fits = fits, charge = charge, report = report, refund = refund, usage = usage
  }
end
