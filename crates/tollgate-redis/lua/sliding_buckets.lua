-- A ring of sub-windows. The Rust of it: sliding_buckets.rs in tollgate-core.
--
-- KEYS     a hash: n  the number of the newest sub-window since the epoch
--                  p  where in the ring it stands, from 0
--                  s  the sum of all counts
--                  0 to buckets  the units used in a sub-window, at its place in the ring
-- ARGV     limit    units
--          span     of a sub-window, in microseconds
--          buckets  how many sub-windows make a window: the ring has one more
--          cost     units
-- RETURNS  what the ring holds before the charge, in two parts that answer as the whole would: the number of a
--          sub-window and the units used in it, twice. The first is the one whose end the refused cost waits for, with
--          the units that have to go until then; the second is the newest, with the rest.

local function sliding_buckets(limit, span, buckets, cost)
  local ring, current = buckets + 1, math.floor(now / span)
  -- When the current sub-window ceases to count.
  local over = (current + ring) * span

  -- The counts at ages `first` to `last`, by age.
  local function counts(key, position, first, last)
    local found, places = {}, {}
    for age = first, last do
      places[#places + 1] = (position - age) % ring
    end
    if #places > 0 then
      local values = call('HMGET', key, unpack(places))
      for i = 1, #places do
        -- What is not digits is not ours: nothing.
        local text = values[i]
        found[first + i - 1] = text and find(text, '^%d+$') and count_of(text) or 0
      end
    end
    return found
  end

  -- The age of the newest sub-window that counts something.
  local function newest_age(found)
    for age = 0, ring - 1 do
      if (found[age] or 0) > 0 then
        return age
      end
    end
    return 0
  end

  local function ends(position, sum, moved, key)
    return over - newest_age(moved and counts(key, position, moved, ring - 1) or {}) * span
  end

  -- The place of the current sub-window, the sum over the ring, and over how many places the ring has moved since it was
  -- written; nil where all of it is over, or nothing of ours is there.
  local function look(key)
    local fields = read('HMGET', key, 'n', 'p', 's')
    for i = 1, 3 do
      if not fields or not fields[i] or not find(fields[i], '^%d+$') then
        return 0, 0, nil
      end
    end
    local moved = current - tonumber(fields[1])
    -- So many digits that they are infinite leave no rest.
    local position, sum = count_of(fields[2]) % ring, count_of(fields[3])
    if moved >= ring then
      return 0, 0, nil
    elseif moved < 0 then
      -- The clock stepped back: what lies ahead of it counts as of now.
      local back, together, places = math.min(-moved, buckets), 0, {}
      local found = counts(key, position, 0, back)
      for age = 0, back do
        places[age + 1], together = (position - age) % ring, together + found[age]
      end
      position, moved = (position - back) % ring, 0
      call('HDEL', key, unpack(places))
      call('HSET', key, 'n', text_of(current), 'p', position)
      if together > 0 then
        call('HSET', key, position, text_of(math.min(together, 4294967295)))
      end
      call('PEXPIRE', key, life(over))
    end
    for _, count in pairs(counts(key, position, ring - moved, ring - 1)) do
      sum = sum - count
    end
    return (position + moved) % ring, math.max(0, sum), moved
  end

  local function fits(times, position, sum)
    return fitting(times, cost, limit - sum)
  end

  -- Writes the ring as it was seen, with a change of one count.
  local function keep(key, position, sum, moved, place, change)
    if not moved then
      call('DEL', key)
    elseif moved > 0 then
      local passed = {}
      for age = 0, moved - 1 do
        passed[#passed + 1] = (position - age) % ring
      end
      call('HDEL', key, unpack(passed))
    end
    call('HSET', key, 'n', text_of(current), 'p', position, 's', text_of(sum + change))
    -- A field that is not ours cannot be counted up from, and counted nothing.
    local text = change < 0 and '-' .. text_of(-change) or text_of(change)
    if type(redis.pcall('HINCRBY', key, place, text)) == 'table' then
      call('HSET', key, place, text_of(math.max(0, change)))
    end
  end

  local function charge(key, granted, position, sum, moved)
    local units = granted * cost
    if units > 0 then
      keep(key, position, sum, moved, position, units)
      call('PEXPIRE', key, life(over))
    end
  end

  local function report(key, granted, refused, position, sum, moved)
    -- A charge is newer than all of it, and where nothing is refused nobody asks what has to go.
    if sum == 0 or (refused == 0 and granted * cost > 0) then
      return current, sum, current, 0
    end
    local found = counts(key, position, moved, ring - 1)
    local newest = current - newest_age(found)
    local missing = sum + (granted + refused) * cost - limit
    if missing <= 0 or missing > sum then
      return newest, sum, newest, 0
    end
    local age, going = ring, 0
    repeat
      age = age - 1
      going = going + (found[age] or 0)
    until going >= missing or age == 0
    return current - age, missing, newest, sum - missing
  end

  local refund = refunds and function(key, text, units, stamp)
    local position, sum, moved = look(key)
    local age = current - stamp
    if not moved or age < moved or age >= ring then
      return
    end
    local found = counts(key, position, moved, ring - 1)
    local back = math.min(found[age], units, sum)
    if back == sum then
      call('DEL', key)
    elseif back > 0 then
      keep(key, position, sum, moved, (position - age) % ring, -back)
      found[age] = found[age] - back
      call('PEXPIRE', key, life(over - newest_age(found) * span))
    end
  end

  return { returns = 4, ends = ends, look = look, fits = fits, charge = charge, report = report, refund = refund }
end
