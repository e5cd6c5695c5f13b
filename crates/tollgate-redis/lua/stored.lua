-- What a stored value says: see number.lua.

-- A number that was read where a count of units belongs. No count of ours is larger.
local function count_of(text)
  return math.min(tonumber(text) or 0, 4294967295)
end

-- The time in a stored value, and the number before it; zeros where there is nothing, or something that is not ours.
local function time_and_number(text)
  if not text or not find(text, '^[1-9]%d*$') then
    return 0, 0
  elseif #text <= 16 then
    return text + 0, 0
  end
  return tonumber(text:sub(-16)), count_of(text:sub(1, -17))
end
