-- Removes what ran out long ago, without adding anything: a Redis without memory takes that, too.
-- KEYS: the hash of verdicts, the sorted set by expiry.   ARGV: 1 how many to remove at most
-- Returns how many were removed.
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000000 + time[2])
local expired = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, ARGV[1])
for _, key in ipairs(expired) do
  redis.call('HDEL', KEYS[1], key)
  redis.call('ZREM', KEYS[2], key)
end
return #expired
