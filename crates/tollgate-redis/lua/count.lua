-- What the algorithms that count units have in common.

-- What a command reads; false where the key holds another type than ours, which counts as nothing. That a key may not be
-- read is another thing: then the call fails.
local function read(...)
  local found = try(...)
  if type(found) == 'table' and found.err then
    return not find(found.err, 'WRONGTYPE') and call(...)
  end
  return found
end

-- How often a cost fits into what is free, at most `times`.
local function fitting(times, cost, free)
  if cost == 0 then
    return times
  end
  return math.min(times, math.max(0, math.floor(free / cost)))
end
