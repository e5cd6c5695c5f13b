-- Returns the reply of acquire.lua or refund.lua, in chunks, since unpack returns at most 8,000
-- values.

local packed = ''
for first = 1, answers, 4000 do
  local last = math.min(answers, first + 3999)
  local chunk = struct.pack('<' .. string.rep('d', last - first + 1), unpack(answer, first, last))
  packed = first == 1 and chunk or packed .. chunk
end
return packed
