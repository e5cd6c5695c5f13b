-- Records the last use and the total of keys whose policies track usage. It stands between
-- acquire.lua and reply.lua, only in calls with such a policy. It reads the arguments and the reply
-- again, so that the steps that decide know nothing of it.
--
-- KEYS     behind those of acquire.lua, for each set the usage of its tracked checks, in their
--          order. A string: the total in units, and in the last 16 digits the time of the last use
--          in microseconds since the epoch
-- ARGV[2]  numbers of 8 bytes (little-endian doubles):
--            life:    how long a usage is kept from now on, in milliseconds
--            then for each group of sets, for each check
--              width: how many numbers its state has in the reply
--              units: its cost if it is tracked, else 0

local plan, after, place, name = ARGV[2], 9, 2, keys
local life, last_use = text_of(struct.unpack('<d', plan)), text_of(now)
last_use = string.rep('0', 16 - #last_use) .. last_use
local sub, tonumber, most = string.sub, tonumber, 9007199254740992
at = 1
while at <= #sent do
  local checks, _, sets, _, runs = struct.unpack('<ddddd', sent, at)
  at = at + 40 + 96 * checks
  local width, tracked, units, texts = 0, 0, {}, nil
  for _ = 1, checks do
    local numbers, cost = struct.unpack('<dd', plan, after)
    after, width = after + 16, width + numbers
    if cost > 0 then
      tracked = tracked + 1
      units[tracked] = cost
    end
  end
  local first = name
  for _ = 1, runs do
    local alike, max = struct.unpack('<dd', sent, at)
    at = at + 16
    for _ = 1, alike do
      local granted = max
      if answer[place] < 0 then
        granted, place = -1 - answer[place], place + 1
      end
      place = place + width
      for i = 1, granted > 0 and tracked or 0 do
        local key, text = KEYS[name + i], nil
        if checks == 1 then
          -- The keys of these sets differ, so all are read by one command.
          texts = texts or call('MGET', unpack(KEYS, first + 1, first + sets))
          text = texts[name - first + 1]
        else
          text = call('MGET', key)[1]
        end
        local total = granted * units[i]
        local before = text and tonumber(sub(text, 1, -17))
        -- A foreign value may be no number.
        if before and before > 0 then
          total = total + before < most and total + before or most
        end
        call('PSETEX', key, life, text_of(total) .. last_use)
      end
      name = name + tracked
    end
  end
end
