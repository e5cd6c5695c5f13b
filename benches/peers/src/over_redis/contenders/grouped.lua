-- gcra.lua for many buckets with the same arguments and time in one call. Returns for each how far
-- TAT lies ahead of now, or -1 if it is denied.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local interval, horizon = tonumber(ARGV[1]), tonumber(ARGV[2])
local answer = {}
for i, key in ipairs(KEYS) do
  local after = math.max(tonumber(redis.call('GET', key) or 0), now) + interval
  if after - now > horizon then
    answer[i] = -1
  else
    redis.call('SET', key, string.format('%.0f', after), 'PX', math.ceil((after - now) / 1000))
    answer[i] = after - now
  end
end
return answer
