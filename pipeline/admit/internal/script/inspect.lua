
-- Reads what there is of a key, and changes nothing.
-- KEYS: META   ARGV: 1 partition   2 key
-- Returns {TIME, META's list, the partition's, the key's}, each list empty where there is none.

local time = call('TIME')
local raw = call('MGET', META, META .. ':p:' .. ARGV[1], META .. ':k:' .. ARGV[2])
local out = {time[1] * 1000000 + time[2], {}, {}, {}}
for i = 1, 3 do
  if raw[i] then out[1 + i] = read(raw[i]) end
end
return out
