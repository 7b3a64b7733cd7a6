-- Applies one batch of one partition of the verdict topic to its shard of the blocklist.
--
-- KEYS: the hash of verdicts, the sorted set by expiry, the stream of changes.
-- ARGV: 1 partition   2 start, the offset that the batch begins at   3 next, the one after its end
--       4 applied, up to when this partition has been applied with this batch (µs); empty: not to its end
--       5 partitions of the topic   6 shard   7 shards   8 a random stamp   9 about how many entries the stream keeps
--       10 grace (µs)   11 heartbeat (ms)   12 how many expired entries to remove at most
--       and then for each record: its key, seq, until (µs) and value; an empty value removes.
-- Returns {1, next} when the batch was applied, {0, reached} when it begins elsewhere, {2, shards} when the blocklist has
-- another number of shards; nothing is written then.

local verdicts, expiry, changes = KEYS[1], KEYS[2], KEYS[3]
local function int(x) return string.format('%.0f', x) end

local meta = redis.call('HMGET', verdicts, '\0epoch', '\0n', '\0stamp', '\0beat', '\0reached:' .. ARGV[1], '\0applied', '\0shards')
if meta[7] and meta[7] ~= ARGV[7] then return {2, meta[7]} end
local reached = meta[5] or '0'
if reached ~= ARGV[2] then return {0, reached} end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local ms = math.floor(now / 1000)
local epoch, n, stamp, beat = tonumber(meta[1]), tonumber(meta[2]) or 0, meta[3] or '', tonumber(meta[4])

-- A new life of the shard. What is left of the old one goes: the hash is what counts.
local function begin()
  local last = redis.call('XREVRANGE', changes, '+', '-', 'COUNT', 1)
  local old = epoch or 0
  if last[1] then old = math.max(old, tonumber(string.match(last[1][1], '^%d+'))) end
  if not epoch then redis.call('DEL', expiry) end
  redis.call('DEL', changes)
  epoch, n, stamp = math.max(ms, old + 1), 0, ''
end
if not epoch then begin() end

-- Adds one entry to the stream, before what it says is written: when this is refused (no memory), so is the rest.
local function add(...)
  local mine = ARGV[8] .. '.' .. int(n + 1)
  local done = redis.pcall('XADD', changes, 'MAXLEN', '~', ARGV[9], int(epoch) .. '-' .. int(n + 1), 's', mine, 'p', stamp, ...)
  if type(done) == 'table' and done.err then
    if not string.find(done.err, 'equal or smaller', 1, true) then error(done.err) end
    begin() -- a stranger wrote to the stream
    mine = ARGV[8] .. '.1'
    redis.call('XADD', changes, int(epoch) .. '-1', 's', mine, 'p', stamp, ...)
  end
  n, stamp = n + 1, mine
end

local function remove(key)
  redis.call('HDEL', verdicts, key)
  redis.call('ZREM', expiry, key)
end

local function newer(old, seq)
  local ok, held = pcall(cjson.decode, old)
  return not ok or type(held) ~= 'table' or not tonumber(held.seq) or seq > tonumber(held.seq)
end

for i = 13, #ARGV, 4 do
  local key, seq, value = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 3]
  local old = redis.call('HGET', verdicts, key)
  if value == '' then
    if old then
      add('k', key)
      remove(key)
    end
  elseif not old or newer(old, seq) then
    local score = tonumber(ARGV[i + 2]) + ARGV[10]
    if old then score = math.max(score, tonumber(redis.call('ZSCORE', expiry, key) or 0)) end
    if score > now then
      add('k', key, 'v', value)
      redis.call('HSET', verdicts, key, value)
      redis.call('ZADD', expiry, int(score), key)
    elseif old then
      remove(key)
    end
  end
end

for _, key in ipairs(redis.call('ZRANGEBYSCORE', expiry, '-inf', int(now), 'LIMIT', 0, ARGV[12])) do remove(key) end

if ARGV[4] ~= '' then redis.call('HSET', verdicts, '\0applied:' .. ARGV[1], ARGV[4]) end
-- A heartbeat comes with the last partition that says up to when it is applied: publishers do that at the same moments. Where
-- one of them stands still, it comes later, so that enforcers hear that the stream lives.
local every, silent, first = tonumber(ARGV[11]), beat and ms - beat, tonumber(meta[6] or 0) == 0
if not beat or first or silent < 0 or silent >= every * 3 / 4 and ARGV[4] ~= '' or silent >= every * 5 / 4 then
  local least
  for p = tonumber(ARGV[6]), tonumber(ARGV[5]) - 1, tonumber(ARGV[7]) do
    local applied = tonumber(redis.call('HGET', verdicts, '\0applied:' .. int(p)) or 0)
    least = math.min(least or applied, applied)
  end
  least = least or 0
  if not beat or silent < 0 or silent >= every * 5 / 4 or first and least > 0
    or silent >= every * 3 / 4 and ARGV[4] ~= '' and tonumber(ARGV[4]) - least < every * 500 then
    add('h', int(least))
    redis.call('HSET', verdicts, '\0beat', int(ms), '\0applied', int(least))
  end
end

redis.call('HSET', verdicts, '\0epoch', int(epoch), '\0n', int(n), '\0stamp', stamp, '\0reached:' .. ARGV[1], ARGV[3], '\0shards', ARGV[7])
return {1, ARGV[3]}
