-- Stores a version of the rules. KEYS: the hash of them   ARGV: 1 version   2 partitions   3 shards   4 its text; without one
-- enforcers hear of a version that they cannot have.
-- latest is the newest version, and kept those that are there, in the order in which they were stored.
local most, topic = 8, 4294967296 -- above a version's lower 32 bits is which topic it is of
local key, version = KEYS[1], ARGV[1]
local latest, had = unpack(redis.call('HMGET', key, 'latest', 'kept'))
if not latest or not had then redis.call('DEL', key) end
local kept = {}
for one in string.gmatch(latest and had or '', '%d+') do
  if one ~= version then kept[#kept + 1] = one end
end
kept[#kept + 1] = version
while #kept > most do redis.call('HDEL', key, table.remove(kept, 1)) end
local number, before = tonumber(version), tonumber(latest or '0') or 0
-- In a topic that was created anew versions count from the start: the one that was stored last is the newest.
if latest and math.floor(number / topic) == math.floor(before / topic) and before > number then version = latest end
redis.call('HSET', key, 'partitions', ARGV[2], 'shards', ARGV[3], 'latest', version, 'kept', table.concat(kept, ' '))
if ARGV[4] then redis.call('HSET', key, ARGV[1], ARGV[4]) end
return 1
