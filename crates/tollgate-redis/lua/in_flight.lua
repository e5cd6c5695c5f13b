-- Requests in flight: units that come back when their requests end, or a lease after they were
-- taken or renewed. In Rust: in_flight.rs in tollgate-core.
--
-- The identity of a unit is the time at which it was taken, and a number: that of the call, plus
-- how many units the call had taken before. So a release frees no other unit, and two calls would
-- need the same microsecond and the same random number of 32 bits to take one identity.
--
-- KEYS     a sorted set: a member is an identity, and its score is the time at which its lease ends
-- ARGV     limit:   units
--          lease:   microseconds
--          cost:    units
--          number:  the number of the first unit that this call takes
-- RETURNS  the units in use before the charge; the time at which as many leases have ended as a
--          refused request needs, or 0; the number of the next unit

local taken = 0

local function in_flight(limit, lease, cost, number)
  local function identity(time, unit)
    return text_of(time) .. ':' .. text_of(unit % 4294967296)
  end

  local function ends()
    return now + lease
  end

  -- Units whose lease has not ended.
  local function look(key)
    return read('ZCOUNT', key, '(' .. text_of(now), '+inf') or 0
  end

  local function fits(times, used)
    return fitting(times, cost, limit - used)
  end

  -- Runs a command with many members, in chunks, since unpack returns at most 8,000 values. `score`
  -- is left out if it is nil.
  local function each(run, command, key, members, score)
    for first = 1, #members, 3000 do
      local args = {}
      for i = first, math.min(first + 2999, #members) do
        if score then
          args[#args + 1] = score
        end
        args[#args + 1] = members[i]
      end
      run(command, key, unpack(args))
    end
  end

  -- Holds members for a lease from now on. The caller knows how many are in use.
  local function hold(key, members, used)
    if used == 0 then
      -- Of a foreign type, or ended.
      call('DEL', key)
    else
      call('ZREMRANGEBYSCORE', key, '-inf', text_of(now))
    end
    each(call, 'ZADD', key, members, text_of(now + lease))
    call('PEXPIRE', key, life(now + lease))
  end

  local function charge(key, granted, used)
    local members = {}
    for unit = 1, granted * cost do
      members[unit] = identity(now, number + taken)
      taken = taken + 1
    end
    if #members > 0 then
      hold(key, members, used)
    end
  end

  local function report(key, granted, refused, used)
    local missing, first_end = used + (granted + refused) * cost - limit, 0
    if refused > 0 and missing > 0 and missing <= used then
      -- The clock stepped back, if a lease ends later than one from now.
      local late = call('ZRANGEBYSCORE', key, '(' .. text_of(now + lease), '+inf')
      if #late > 0 then
        hold(key, late, used)
      end
      local found =
        call('ZRANGEBYSCORE', key, '(' .. text_of(now), '+inf', 'WITHSCORES', 'LIMIT', text_of(missing - 1), 1)
      first_end = tonumber(found[2]) or 0
    end
    return used, first_end, (number + taken) % 4294967296
  end

  -- Releases units; or renews one, if there are none, and returns 1 if it is held.
  local refund = refunds and function(key, text, units, time, unit)
    if units > 0 then
      local members = {}
      for i = 1, math.min(units, limit) do
        members[i] = identity(time, unit + i - 1)
      end
      return each(read, 'ZREM', key, members)
    end
    local member, used = identity(time, unit), look(key)
    local held = read('ZSCORE', key, member)
    if used < limit or (held and tonumber(held) > now) then
      hold(key, { member }, used)
      return 1
    end
    return 0
  end

  return {
    returns = 3, ends = ends, look = look, fits = fits, charge = charge, report = report, refund = refund
  }
end
