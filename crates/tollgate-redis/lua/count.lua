-- Functions of the algorithms that count units.

-- Runs a command that reads a key. Returns false if the key has a foreign type, which counts as
-- empty. Other errors, such as a missing permission, fail the call.
local function read(...)
  local found = try(...)
  if type(found) == 'table' and found.err then
    return not find(found.err, 'WRONGTYPE') and call(...)
  end
  return found
end

-- How often a cost fits into the free units, at most `times`.
local function fitting(times, cost, free)
  if cost == 0 then
    return times
  end
  return math.min(times, math.max(0, math.floor(free / cost)))
end
