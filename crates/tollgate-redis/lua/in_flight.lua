-- Requests in flight: units that come back when their requests end, or a time to live after they
-- were taken or renewed. In Rust: in_flight.rs in tollgate-core.
--
-- The identity of a unit is the time at which it was taken, and a number: that of the call, plus
-- how many units the call had taken before. So a release frees no other unit, and two calls would
-- need the same microsecond and the same random number of 32 bits to take one identity.
--
-- A time to live is for what is taken or renewed with it: one of another length changes no other
-- unit.
--
-- KEYS     a sorted set: a member is an identity, and its score is the end of its time to live
-- ARGV     limit:   units
--          ttl:     the time to live, in microseconds
--          cost:    units. No cost above 1 passes
--          number:  the number of the first unit that this call takes
-- RETURNS  the units in use before the charge; the time at which as many have ended as a refused
--          request needs, or 0; the number of the next unit

local taken = 0

local function in_flight(limit, ttl, cost, number)
  local now_text = text_of(now)

  -- Units whose time to live has not ended.
  local function look(key)
    return read('ZCOUNT', key, '(' .. now_text, '+inf') or 0
  end

  -- The time at which the last time to live ends: one from now, or that of a unit with a longer
  -- time to live.
  local function last_end(key)
    local latest = read('ZRANGE', key, '-1', '-1', 'WITHSCORES') or {}
    return math.max(now + ttl, tonumber(latest[2]) or 0)
  end

  -- Holds units for a time to live from now on, and returns how many are new. The caller knows how
  -- many are in use. If none is, the key has expired, or has a foreign type. In chunks, since
  -- unpack returns at most 8,000 values.
  local function hold(key, members, used)
    if used > 0 then
      call('ZREMRANGEBYSCORE', key, '-inf', now_text)
    end
    local ttl_ends, new = text_of(now + ttl), 0
    for first = 1, #members, 3000 do
      local args = {}
      for i = first, math.min(first + 2999, #members) do
        args[#args + 1] = ttl_ends
        args[#args + 1] = members[i]
      end
      local added = try('ZADD', key, unpack(args))
      if type(added) == 'table' and added.err then
        if used == 0 and find(added.err, 'WRONGTYPE') then
          call('DEL', key)
        end
        added = call('ZADD', key, unpack(args))
      end
      new = new + added
    end
    call('PEXPIRE', key, life(used > 0 and last_end(key) or now + ttl))
    return new
  end

  -- The identities of units in a row.
  local function identities(time, unit, units)
    local members = {}
    for i = 1, units do
      members[i] = time .. ':' .. text_of((unit + i - 1) % 4294967296)
    end
    return members
  end

  if refunds then
    -- Releases units; or renews one, if there are none, and returns 1 if it is held. One that is
    -- not held any more is claimed again if `claims` is 1 and there is room.
    local function refund(key, text, units, time, unit, claims)
      -- The limit may be lower than when they were claimed. No limit is above a million.
      local members = identities(text_of(time), unit, math.min(math.max(1, units), 1000000))
      if units > 0 then
        for first = 1, #members, 3000 do
          read('ZREM', key, unpack(members, first, math.min(first + 2999, #members)))
        end
        return
      end
      local held = read('ZSCORE', key, members[1])
      if held and tonumber(held) > now then
        hold(key, members, 1)
        return 1
      end
      local used = claims == 1 and look(key) or limit
      if used < limit then
        hold(key, members, used)
        return 1
      end
      return 0
    end

    return { reads = true, refund = refund }
  end

  local function fits(times, used)
    return cost > 1 and 0 or fitting(times, cost, limit - used)
  end

  local function charge(key, granted, used)
    local units = granted * cost
    if units > 0 then
      if hold(key, identities(now_text, number + taken, units), used) < units then
        -- The call fails, since two holders would release it.
        error('two slots have one identity')
      end
      taken = taken + units
    end
  end

  -- Cuts times to live that end later than one from now, of units that were taken with this time to
  -- live: the clock has stepped back since. A time to live that was renewed or is of another length
  -- proves nothing, and its holder may still run. Only the last ones; the next refusal cuts others.
  local function cut(key)
    local last = call('ZRANGE', key, '-100', '-1', 'WITHSCORES')
    for i = 1, #last, 2 do
      local taken, ttl_ends = tonumber(string.match(last[i], '^%d+')) or 0, tonumber(last[i + 1])
      if ttl_ends > now + ttl and ttl_ends - taken == ttl then
        call('ZADD', key, text_of(now + ttl), last[i])
      end
    end
  end

  local function report(key, granted, refused, used)
    local missing, first_end = used + (granted + refused) * cost - limit, 0
    if refused > 0 and missing > 0 and missing <= used then
      cut(key)
      -- By its rank from the end, since units that have ended may stand before the others.
      local rank = '-' .. text_of(used - missing + 1)
      first_end = math.min(now + ttl, tonumber(call('ZRANGE', key, rank, rank, 'WITHSCORES')[2]) or 0)
    end
    return used, first_end, (number + taken) % 4294967296
  end

  local function ends(_, _, _, key)
    return last_end(key)
  end

  return {
    returns = 3, reads = true, ends = ends, look = look, fits = fits, charge = charge, report = report
  }
end
