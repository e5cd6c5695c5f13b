-- The record of a bucket that several versions of a policy ask for. versions.rs in tollgate-core has
-- it in Rust, and explains it. gcra.lua calls it for keys whose value is a record, or will be.
--
-- KEYS     a string of digits: 1; the open TAT, or zeros; for each version its limit and its burst
--          in 13 digits each, and its TAT in 16 digits with 10 of its fraction; and in the last 16
--          digits the latest TAT, rounded up. Older versions of this library read that one alone
-- ARGV     see gcra.lua
-- RETURNS  see gcra.lua

local function versions(parts, reach_us, reach_frac, limit, burst, window)
  local max_span = 4503599627370496
  local t_us, t_frac = math.floor(window / limit), window % limit / (limit / parts)

  local function ceil(us, frac)
    return frac > 0 and us + 1 or us
  end

  -- The most that a version owes with this reach.
  local function most_owed(us, frac, parts)
    local most_us, most_frac = 2 * us, 2 * frac
    if most_frac >= parts then
      most_us, most_frac = most_us + 1, most_frac - parts
    end
    if ceil(most_us, most_frac) > max_span then
      return us, frac
    end
    return most_us, most_frac
  end

  local most_us, most_frac = most_owed(reach_us, reach_frac, parts)
  local furthest_us = now + math.max(ceil(most_us, most_frac), math.min(1024 * window, max_span))

  -- Whether a TAT is of no version.
  local function is_foreign(us, frac)
    return ceil(us, frac) > furthest_us
  end

  -- How much of a span that ends at a stamp was forgiven.
  local function forgiven(us, frac, horizon_us, horizon_frac)
    local used_up_us, used_up_frac = horizon_us, horizon_frac
    if burst > 0 then
      if no_more_than(us, frac, most_us, most_frac) then
        return 0, 0
      end
      used_up_us, used_up_frac = reach_us, reach_frac
    end
    us, frac = us - used_up_us, frac - used_up_frac
    if frac < 0 then
      us, frac = us - 1, frac + parts
    end
    return us, frac
  end

  local function digits(number, width)
    local text = text_of(number)
    return string.rep('0', width - #text) .. text
  end

  -- The bucket of a version: T, its horizon, and the TAT of a bucket used up.
  local function bucket(of_limit, of_burst, us, frac)
    local a, b = window, of_limit
    while b > 0 do
      a, b = b, a % b
    end
    local its = { limit = of_limit, burst = of_burst, us = us, frac = frac, parts = of_limit / a }
    its.t_us, its.t_frac = math.floor(window / of_limit), window % of_limit / a
    its.span_us, its.span_frac = multiple(of_burst, its.t_us, its.t_frac, its.parts)
    its.full_us = now + its.span_us
    return its
  end

  -- Cuts a TAT that is further ahead than any debt: the clock has stepped back.
  local function cut(its)
    local most_us, most_frac = most_owed(its.span_us, its.span_frac, its.parts)
    if no_more_than(its.us, its.frac, now + most_us, most_frac) then
      return false
    end
    its.us, its.frac = its.full_us, its.span_frac
    return true
  end

  -- Charges units that another version granted. What a version owes grows by no other.
  local function charge_other(its, units)
    if its.us < now then
      its.us, its.frac = now, 0
    end
    if not no_more_than(its.us, its.frac, its.full_us, its.span_frac) then
      return
    end
    local us, frac = multiple(math.min(units, its.burst), its.t_us, its.t_frac, its.parts)
    us, frac = its.us + us, its.frac + frac
    if frac >= its.parts then
      us, frac = us + 1, frac - its.parts
    end
    if no_more_than(us, frac, its.full_us, its.span_frac) then
      its.us, its.frac = us, frac
    else
      its.us, its.frac = its.full_us, its.span_frac
    end
  end

  -- The units that are left, at most `most`.
  local function room(its, most)
    local us, frac = its.us, its.frac
    if us < now then
      us, frac = now, 0
    end
    us, frac = its.full_us - us, its.span_frac - frac
    if frac < 0 then
      us, frac = us - 1, frac + its.parts
    end
    if us < 0 then
      return 0
    end
    -- The terms are rounded, so the quotient is off by at most one.
    local count = math.min(most, math.floor((us + frac / its.parts) / (its.t_us + its.t_frac / its.parts)) + 1)
    while count > 0 do
      local us_of, frac_of = multiple(count, its.t_us, its.t_frac, its.parts)
      if no_more_than(us_of, frac_of, us, frac) then
        break
      end
      count = count - 1
    end
    return count
  end

  local function latest_of(record)
    local latest = record.open
    for i = 1, #record do
      latest = math.max(latest, ceil(record[i].us, record[i].frac))
    end
    return latest
  end

  -- Reads a record. `was_cut` is whether anything in it was too far ahead.
  local function read(text)
    local record = { open = tonumber(string.sub(text, 2, 17)), was_cut = false }
    for at = 18, #text - 16, 52 do
      local of_limit = math.max(1, tonumber(string.sub(text, at, at + 12)))
      local of_burst, us = tonumber(string.sub(text, at + 13, at + 25)), tonumber(string.sub(text, at + 26, at + 41))
      local its = bucket(of_limit, of_burst, us, tonumber(string.sub(text, at + 42, at + 51)))
      record.was_cut = cut(its) or record.was_cut
      record[#record + 1] = its
    end
    if is_foreign(record.open, 0) then
      record.open, record.was_cut = 0, true
    end
    return record
  end

  -- The TAT that a record becomes if all buckets are full, if the only one is out of debt, or if the
  -- policy has no versions.
  local function one(record)
    local first, latest = record[1], latest_of(record)
    if #record == 1 and record.open == 0
      and no_more_than(first.us, first.frac, first.full_us, first.span_frac) then
      return first.us, first.frac
    elseif latest <= now or burst == 0 then
      return latest, 0
    end
  end

  local function write(key, record)
    local latest, texts = latest_of(record), { '1', digits(record.open, 16) }
    if latest <= now then
      call('DEL', key)
      return
    end
    for i = 1, #record do
      local its = record[i]
      texts[#texts + 1] = digits(its.limit, 13) .. digits(its.burst, 13) .. digits(its.us, 16)
      texts[#texts + 1] = digits(its.frac, 10)
    end
    texts[#texts + 1] = digits(latest, 16)
    call('PSETEX', key, life(ends(latest, 0)), table.concat(texts))
  end

  -- Finds the TAT by which the version decides, and where it is: `own`, the place of its entry;
  -- `place`, that of one to be added, for which `takes_open` is whether it is the open TAT; or
  -- neither, if it gets what another has left.
  local function place(record)
    local free, shortest, longest = nil, nil, nil
    for i = 1, #record do
      local its = record[i]
      if its.limit == limit and its.burst == burst then
        record.own = i
        return its.us, its.frac
      elseif not free and ceil(its.us, its.frac) <= now then
        free = i
      end
      if its.span_us >= reach_us and (not shortest or its.span_us < shortest.span_us) then
        shortest = its
      end
      if not longest or its.span_us > longest.span_us then
        longest = its
      end
    end
    record.place = #record < 4 and #record + 1 or free
    if record.place then
      if record.open > 0 and record.open <= now + reach_us then
        record.takes_open = true
        return record.open, 0
      end
      return now + reach_us, reach_frac
    end
    local us, frac = multiple(room(shortest or longest, burst), t_us, t_frac, parts)
    us, frac = now + reach_us - us, reach_frac - frac
    if frac < 0 then
      us, frac = us - 1, frac + parts
    end
    return us, frac
  end

  -- Writes the entry of a version that has none, and what was cut. Returns whether there was any.
  local function refuse(key, us, frac, record)
    if record.is_foreign then
      store(key, us, frac, ends(us, frac))
      return true
    elseif record.place and not record.takes_open then
      record[record.place] = { limit = limit, burst = burst, us = us, frac = frac }
    elseif not record.was_cut then
      return false
    end
    write(key, record)
    return true
  end

  -- The TAT by which the version decides, and the record: of `text`, or to be made since TAT us and
  -- frac is beyond its reach. `false` if it becomes one TAT.
  local function look(key, text, us, frac)
    local record = text and read(text) or { open = 0 }
    if text then
      us, frac = one(record)
      if not us then
        us, frac = place(record)
        record.latest, record.refuse = latest_of(record), refuse
        return us, frac, record
      elseif frac >= parts then
        us, frac = us + 1, 0
      end
      if burst == 0 or no_more_than(us, frac, now + reach_us, reach_frac) then
        record.is_one, record.latest, record.refuse = true, latest_of(record), refuse
        return us, frac, record.was_cut and record or false
      end
    end
    if is_foreign(us, frac) then
      us, frac = now + reach_us, reach_frac
      if not text then
        store(key, us, frac, ends(us, frac))
        return us, frac, frac == 0
      end
      return us, frac, { is_one = true, is_foreign = true, latest = us, refuse = refuse }
    end
    us = ceil(us, frac)
    return now + reach_us, reach_frac, { open = us, latest = us, place = 1, refuse = refuse }
  end

  -- Writes the record after a charge of the version to TAT us and frac. Debt makes one.
  local function charge(key, units, us, frac, record)
    if type(record) ~= 'table' or record.is_one then
      if no_more_than(us, frac, now + reach_us, reach_frac) then
        store(key, us, frac, ends(us, frac))
        return
      end
      record = { open = 0, place = 1 }
    end
    for i = 1, #record do
      if i ~= record.own and i ~= record.place then
        charge_other(record[i], units)
      end
    end
    if record.takes_open then
      record.open = 0
    elseif record.open > 0 then
      record.open = math.max(record.open, now) + ceil(multiple(units, t_us, t_frac, parts))
    end
    local at = record.own or record.place
    if at then
      record[at] = { limit = limit, burst = burst, us = us, frac = frac }
    end
    write(key, record)
  end

  -- Refunds a span to the version, or to the open TAT. Returns the TAT that the record has become,
  -- to which nothing was refunded yet.
  local function refund(key, text, back_us, back_frac)
    local record, own = read(text), nil
    local us, frac = one(record)
    if us then
      if frac >= parts then
        us, frac = us + 1, 0
      end
      if is_foreign(us, frac) then
        us, frac = now + reach_us, reach_frac
      end
      return us, frac
    end
    for i = 1, #record do
      if record[i].limit == limit and record[i].burst == burst then
        own = record[i]
      end
    end
    if not own and record.open > now then
      record.open = math.max(now, record.open - back_us)
    elseif own and not no_more_than(own.us, own.frac, now, 0) then
      own.us, own.frac = own.us - back_us, own.frac - back_frac
      if own.frac < 0 then
        own.us, own.frac = own.us - 1, own.frac + parts
      end
      if own.us < now then
        own.us, own.frac = now, 0
      end
    end
    write(key, record)
  end

  return { look = look, charge = charge, refund = refund, is_foreign = is_foreign, forgiven = forgiven }
end
