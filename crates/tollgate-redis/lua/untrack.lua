-- Takes refunded units from the totals of keys whose policies track usage. It stands before
-- refund.lua, only in calls with such a policy, and takes its keys away from KEYS.
--
-- KEYS     behind those of refund.lua: the usage of each key. track.lua explains it
-- ARGV[2]  numbers of 8 bytes (little-endian doubles): the units of each

local others = #KEYS - #ARGV[2] / 8
for i = #KEYS, others + 1, -1 do
  local key, units = KEYS[i], struct.unpack('<d', ARGV[2], 8 * (i - others) - 7)
  local text, life = redis.call('MGET', key)[1], redis.call('PTTL', key)
  if text and life > 0 and #text > 16 and string.find(text, '^%d+$') then
    local total = math.max(0, tonumber(string.sub(text, 1, -17)) - units)
    redis.call('PSETEX', key, life, text_of(total) .. string.sub(text, -16))
  end
  KEYS[i] = nil
end
