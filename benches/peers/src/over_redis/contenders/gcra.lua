-- The simplest GCRA. KEYS[1]: the bucket. ARGV: emission interval and horizon, in microseconds.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local tat = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now)
local after = tat + ARGV[1]
if after - now > tonumber(ARGV[2]) then
  return {0, tat - now}
end
redis.call('SET', KEYS[1], string.format('%.0f', after), 'PX', math.ceil((after - now) / 1000))
return {1, after - now}
